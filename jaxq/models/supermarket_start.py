"""Where a supermarket model starts: tail counts from what the user gave, and what is known of its steady state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _check
from ..chain import Steady
from .levels import choose_levels


def tail_counts(n: int, initial: Any) -> np.ndarray:
    """Integer tail counts (levels,) on n servers of None (empty), counts, or fractions rounded to n S_i half up.

    Raises ValueError for anything else.
    """
    if initial is None:
        return np.zeros(0, np.int64)
    tail = _check.vector("initial", initial)
    if tail.dtype.kind == "f":
        if tail.max() > 1 or tail.min() < 0:
            raise ValueError("initial given as floats must be fractions S_i in [0, 1]; "
                             f"got {float(tail[np.argmax((tail > 1) | (tail < 0))]):g}; give integers for tail counts")
        tail = np.floor(n * tail + 0.5).astype(np.int64)
    if np.any(np.diff(tail) > 0) or tail.max() > n or tail.min() < 0:
        raise ValueError(f"initial must be tail counts with n = {n} >= x_1 >= x_2 >= ... >= 0; got {initial!r}")
    return np.trim_zeros(tail, "b").astype(np.int64)


def steady(model: Any) -> Steady:
    """What is known of the steady state. Raises ValueError at arrival_rate >= 1 without a buffer."""
    rate, n, buffer = model.arrival_rate, model.n, model.buffer
    arrivals = n * rate
    if rate >= 1:
        if buffer is None:
            raise ValueError(f"a steady state needs arrival_rate below 1 per server, or a buffer; got {rate:g} without one; "
                             "lower arrival_rate or give a buffer")
        return Steady(arrivals, (1.0,), starts=(None, np.full(buffer, n)))
    # of one queue, M/M/1/buffer; n pooled servers are n times as fast
    edge = 1.0 if buffer is None else math.cos(math.pi / (buffer + 1))
    lone = 1 / (1 + rate - 2 * math.sqrt(rate) * edge)
    slow = lone if model.d == 1 else min(lone, 1 / ((1 - rate) * math.log(model.d)))
    start = np.floor(n * model.at_levels(choose_levels(n, model.d, rate)).guess() + 0.5).astype(np.int64)
    return Steady(arrivals, (1.0,), lossless=buffer is None, relaxation=max(slow, lone / n, 1.0), starts=(start,))
