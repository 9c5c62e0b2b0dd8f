"""What the words after flags become; argparse makes its sentence of what they refuse."""

from __future__ import annotations

import argparse
import contextlib
import math
from pathlib import Path

from . import _check


def integer(text: str) -> int:
    """An integer; 1e6 counts as one."""
    try:
        return int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value == int(value) and abs(value) < 2**53):
            raise argparse.ArgumentTypeError(f"must be an integer; got {_check.shown(text)}") from None
        return int(value)


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number; got {_check.shown(text)}")
    return value


def duration(text: str) -> float:
    """Seconds, from a number with s, m or h behind it, or none."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    value = math.nan
    with contextlib.suppress(ValueError):
        value = float(text.rstrip("smh")) * units[text[-1] if text[-1:] in units else "s"]
    if not 0 <= value < math.inf or len(text.rstrip("smh")) < len(text) - 1:
        raise argparse.ArgumentTypeError(f"must be a time such as 30s, 10m or 2h; got {text!r}")
    return value


def capacity(text: str) -> int | None:
    """An integer, or inf for None."""
    return None if text == "inf" else integer(text)


def numbers_in(path: str, required: str = "--start must be 'empty', 'fixed-point' or a file of numbers T_1 T_2 ...") -> list[float]:
    """The numbers of a text file, separated by white space or commas; what was `required` begins the error."""
    try:
        words = Path(path).read_text().replace(",", " ").split()
    except (OSError, ValueError) as error:
        raise ValueError(f"{required}; got {_check.shown(path)} ({_check.reason(error)})") from None
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{required}; got {_check.shown(path)} with {str(error).partition(': ')[2]} in it") from None
