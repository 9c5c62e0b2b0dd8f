"""Checks of what users give: one sentence that says what was required, what came and what to do."""

from __future__ import annotations

import errno
import math
import numbers
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

MOST_LEVELS = 2**20  # of a model
MOST_TIMES = 10**6   # of an even grid of save times
_MOST = 100          # characters of what came in an error


def is_traced(value: Any) -> bool:
    """True inside a JAX transformation, where a value can be differentiated but not looked at."""
    return isinstance(value, jax.core.Tracer)


def shown(value: Any) -> str:
    """`value` as an error shows what came: its repr on one line, the middle of a long one left out."""
    try:
        return short(repr(value))
    except ValueError:  # Python does not write out an integer of more than 4300 digits
        return f"{type(value).__name__} too long to write out"


def short(text: str, most: int = _MOST) -> str:
    """A text on one line of about `most` characters, the middle of a longer one left out."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: 3 * most // 4]} ... {text[-most // 5:]}"


def integer(name: str, value: Any, low: int, high: int | None = None, hint: str = "") -> int:
    """Return `value` as a Python integer in [low, high], or raise ValueError."""
    whole = isinstance(value, (numbers.Integral, np.integer)) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        upper = f" and at most {high}" if high is not None else ""
        raise ValueError(f"{name} must be an integer at least {low}{upper}; got {shown(value)}{_tail(hint)}")
    return int(value)


def real(name: str, value: Any, low: float, high: float = math.inf, *, open_low: bool = False, open_high: bool = False,
         hint: str = "") -> Any:
    """Return `value` as a float in the interval, or raise ValueError; a traced value passes unchecked."""
    if is_traced(value):
        return value
    array = reals(value)
    number = float(array) if array is not None and array.ndim == 0 else math.nan
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if not (above and below and math.isfinite(number)):
        required = "" if low == -math.inf else f" above {low:g}" if open_low else f" at least {low:g}"
        if math.isfinite(high):
            required += f" and {'below' if open_high else 'at most'} {high:g}"
        raise ValueError(f"{name} must be a finite number{required}; got {shown(value)}{_tail(hint)}")
    return number


def reals(value: Any) -> np.ndarray | None:
    """`value` as an array of real numbers, integer dtype kept; None where it is something else (text, booleans, ragged lists)."""
    try:
        array = np.asarray(value)
        if array.dtype == object and all(isinstance(x, numbers.Real) and not isinstance(x, bool) for x in array.flat):
            array = array.astype(np.float64)  # fractions, and integers beyond 64 bits
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.dtype.kind in "iuf" else None


def times(ts: Any, name: str = "ts") -> np.ndarray:
    """Return save times as a float64 vector: finite, >= 0, strictly increasing, at least one."""
    array = reals(ts)
    if array is None or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a one-dimensional list of numbers with at least one time; got {shown(ts)}")
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ValueError(f"{name} must be finite times >= 0; got {_first(array, ~np.isfinite(array) | (array < 0))}")
    if np.any(np.diff(array) <= 0):
        k = int(np.argmax(np.diff(array) <= 0))
        raise ValueError(f"{name} must be strictly increasing; got {array[k]:g} then {array[k + 1]:g}; "
                         "sort them and drop duplicates")
    return array


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`, or raise ValueError."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {shown(value)}")
    return value


def flag(name: str, value: Any) -> bool:
    """Return True or False (1 and 0 will do), or raise ValueError: any text, "no" among them, would count as true."""
    if not isinstance(value, (bool, np.bool_, int)) or value not in (0, 1):
        raise ValueError(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def vector(name: str, value: Any) -> np.ndarray:
    """Return a non-empty finite one-dimensional array, integer dtype kept, or raise ValueError."""
    array = reals(value)
    if array is None or array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be a one-dimensional list of finite numbers; got {shown(value)}")
    return array


def grid(name: str, value: Any, *, finite: bool = True) -> np.ndarray:
    """Return an array (time, level) or (time, level, replica) as float64, or raise ValueError."""
    array = reals(value)
    if array is None or array.ndim not in (2, 3) or (finite and not np.all(np.isfinite(array))):
        raise ValueError(f"{name} must be (time, level) or (time, level, replica), finite numbers; got {shown(value)}")
    return array.astype(np.float64)


def instance(name: str, value: Any, kinds: type | tuple[type, ...], required: str) -> Any:
    """Return `value` if it is of one of these classes, or raise ValueError saying what is `required`."""
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {required}; got {type(value).__name__} {shown(value)}")
    return value


def path(name: str, value: Any) -> Path:
    """Return the path of a file or folder, or raise ValueError for what can be none."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name} must be a path, as text or a pathlib.Path; got {shown(value)}")
    return Path(text)


def output(name: str, value: Any) -> Path:
    """Return the path of a file that can be written, in a folder that is there, or raise ValueError; nothing is left behind."""
    target = path(name, value)
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        if target.exists() and not target.is_file():
            raise OSError("it is no regular file")
        with tempfile.TemporaryFile(dir=target.parent):
            pass
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "")
    except OSError as error:
        raise ValueError(f"{name} needs a file in an existing folder that can be written; got {shown(str(target))} "
                         f"({reason(error)}); choose another path") from error
    return target


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in few words: those of the system where it knows, else the error's own."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else short(str(error))


def devices(value: Any) -> list[Any]:
    """Return the JAX devices given, for None all there are, or raise ValueError."""
    if value is None:
        return jax.devices()
    if not isinstance(value, (list, tuple, np.ndarray)) or not len(value) or not all(isinstance(one, jax.Device) for one in value):
        raise ValueError(f"devices must be a list of JAX devices, such as jax.devices()[:1]; got {shown(value)}")
    return list(value)


def _first(array: np.ndarray, bad: np.ndarray) -> float:
    return float(array[int(np.argmax(bad))])


def _tail(hint: str) -> str:
    return f"; {hint}" if hint else ""
