"""Median and range of a few measurements, in three digits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], scale: float = 1.0) -> str:
    """Median (least-most) of values / scale."""
    return f"{digits(statistics.median(values) / scale)} ({digits(min(values) / scale)}-{digits(max(values) / scale)})"


def digits(value: float) -> str:
    """Three digits, without an exponent where the number is large."""
    return f"{float(f'{value:.3g}'):.0f}" if value >= 100 else f"{value:.3g}"
