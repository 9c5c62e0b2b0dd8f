"""Checks of what users give: one sentence that says what was required, what came and what to do."""

from __future__ import annotations

import math
import numbers
from typing import Any

import jax
import numpy as np


def is_traced(value: Any) -> bool:
    """True inside a JAX transformation, where a value can be differentiated but not looked at."""
    return isinstance(value, jax.core.Tracer)


def integer(name: str, value: Any, low: int, high: int | None = None, hint: str = "") -> int:
    """Return `value` as a Python integer in [low, high], or raise ValueError."""
    whole = isinstance(value, (numbers.Integral, np.integer)) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        upper = f" and at most {high}" if high is not None else ""
        raise ValueError(f"{name} must be an integer at least {low}{upper}; got {value!r}{_tail(hint)}")
    return int(value)


def real(name: str, value: Any, low: float, high: float = math.inf, *, open_low: bool = False, open_high: bool = False,
         hint: str = "") -> Any:
    """Return `value` as a float in the interval, or raise ValueError; a traced value passes unchecked."""
    if is_traced(value):
        return value
    array = np.asarray(value)
    good = array.ndim == 0 and array.dtype.kind in "iuf"
    number = float(array) if good else math.nan
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below and math.isfinite(number)):
        required = f"above {low:g}" if open_low else f"at least {low:g}"
        if math.isfinite(high):
            required += f" and {'below' if open_high else 'at most'} {high:g}"
        raise ValueError(f"{name} must be a finite number {required}; got {value!r}{_tail(hint)}")
    return number


def times(ts: Any) -> np.ndarray:
    """Return save times as a float64 vector: finite, >= 0, strictly increasing, at least one."""
    try:
        array = np.asarray(ts, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"ts must be a list of numbers; got {ts!r}") from None
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"ts must be a one-dimensional list of at least one time; got shape {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"ts must be finite times >= 0; got {_first(array, ~np.isfinite(array) | (array < 0))}")
    if np.any(np.diff(array) <= 0):
        k = int(np.argmax(np.diff(array) <= 0))
        raise ValueError(f"ts must be strictly increasing; got {array[k]:g} then {array[k + 1]:g}; "
                         "sort them and drop duplicates")
    return array


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`, or raise ValueError."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def vector(name: str, value: Any) -> np.ndarray:
    """Return a non-empty finite one-dimensional array, integer dtype kept, or raise ValueError."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be a one-dimensional list of finite numbers; got {value!r}")
    return array


def _first(array: np.ndarray, bad: np.ndarray) -> float:
    return float(array[int(np.argmax(bad))])


def _tail(hint: str) -> str:
    return f"; {hint}" if hint else ""
