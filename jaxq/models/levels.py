"""How many levels the supermarket model needs: the tail of its mean field falls doubly exponentially."""

from __future__ import annotations

import numpy as np

LEVELS = (8, 12, 16, 24, 32, 48, 64)


def exponents(d: int, levels: int) -> np.ndarray:
    """(d**i - 1)/(d - 1) for i = 1..levels (i at d = 1), inf beyond the floats."""
    with np.errstate(over="ignore"):
        i = np.arange(1.0, levels + 1)
        return i if d == 1 else np.cumsum(float(d) ** (i - 1))


def choose_levels(n: int, d: int, rate: float) -> int:
    """The least stored level count that the mean field fills with fewer than 1e-9 servers; more are grown when needed."""
    if rate >= 1:
        return 16
    occupied = int(np.sum(n * rate ** exponents(d, LEVELS[-1]) >= 1e-9)) + 1
    return next((levels for levels in LEVELS if levels >= occupied), LEVELS[-1])
