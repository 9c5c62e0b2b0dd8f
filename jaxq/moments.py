"""Means and variances over replicas from exact integer sums: the only float step is one division each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST = 2**40


@dataclass(frozen=True)
class Moments:
    """Sums of integers and of their squares over `replicas`: first of all levels together, then level by level, level 1 first."""

    replicas: int
    sums: list[int]
    squares: list[int]

    @classmethod
    def of(cls, x: np.ndarray) -> Moments:
        """Of integers x (levels, replicas), of either sign, below 2**40 in size as their sum over levels is (else ValueError)."""
        every = np.concatenate([x.sum(axis=0, dtype=np.int64)[None], x.astype(np.int64)])
        if np.abs(every).max() >= _MOST:
            raise ValueError(f"the customers of a replica must be fewer than 2**40; got {np.abs(every).max()}; use a shorter "
                             "horizon")
        return cls(x.shape[1], *_sums(every))

    def __add__(self, other: Moments) -> Moments:
        """Of the replicas of both."""
        rows = max(len(self.sums), len(other.sums))
        parts = [[a + b for a, b in zip(_padded(mine, rows), _padded(theirs, rows), strict=True)]
                 for mine, theirs in ((self.sums, other.sums), (self.squares, other.squares))]
        return Moments(self.replicas + other.replicas, *parts)

    @property
    def used(self) -> int:
        """Levels up to the last one with a sum other than 0."""
        return max((level for level, total in enumerate(self.sums) if level and total), default=0)

    def mean(self, levels: int) -> np.ndarray:
        """(1 + levels,): of all levels together, then of each."""
        return np.array([total / self.replicas for total in _padded(self.sums, 1 + levels)])

    def variance(self, levels: int) -> np.ndarray:
        """(1 + levels,), with divisor replicas - 1; nan with one replica."""
        count, pairs = self.replicas, zip(_padded(self.sums, 1 + levels), _padded(self.squares, 1 + levels), strict=True)
        if count == 1:
            return np.full(1 + levels, np.nan)
        return np.array([(count * squares - total * total) / (count * (count - 1)) for total, squares in pairs])


def _padded(values: list[int], rows: int) -> list[int]:
    return values[:rows] + [0] * (rows - len(values))


def _sums(x: np.ndarray) -> tuple[list[int], list[int]]:
    """Sums over the last axis of int64 x and of x**2, for -2**40 < x < 2**40, by limbs of 20 bits."""
    sums, squares = [0] * x.shape[0], [0] * x.shape[0]
    for start in range(0, x.shape[1], 2**16):
        part = x[:, start:start + 2**16]
        high, low = part >> 20, part & 0xFFFFF
        products: list[Any] = [np.einsum("lr,lr->l", a, b) for a, b in ((low, low), (high, low), (high, high))]
        for i, total in enumerate(part.sum(axis=1)):
            sums[i] += int(total)
            squares[i] += int(products[0][i]) + (int(products[1][i]) << 21) + (int(products[2][i]) << 40)
    return sums, squares
