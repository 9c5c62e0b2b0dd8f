"""The Poisson path of each replica: how many ticks it has had by time t.

The marks of the chain do not depend on time, so time is a count: N_r(t) is Poisson with rate `clock`, drawn apart from the
marks and on the host. Each replica has one path, whatever the save grid, the horizon or a restart: time is cut in cells of
2**k units, k such that a cell has 1024 to 2048 ticks on average; a cell's count inverts one 64-bit word in the Poisson
distribution function; inside a cell the count before a time follows the binary digits of that time, halving by
Binomial(N, 1/2) = the ones among N random bits while N > 64 and placing the last ticks by 64-bit positions.
Everything is integer arithmetic on the replica's own words; a time is resolved to 2**-64 of a cell.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bits

_FEW = 64      # place the ticks of a node one by one from here on: one 64-bit position each
_BATCH = 2**18  # words of cell counts made at once


class PoissonPath:
    """Tick counts of replicas at increasing times, for a clock in ticks per unit time.

    Args:
      clock: ticks per unit time, > 0.
      keys: two uint32 vectors, the replicas' keys (`bits.fold_in`).
    """

    def __init__(self, clock: float, keys: tuple[np.ndarray, np.ndarray]) -> None:
        self.cell_exponent = 11 - math.frexp(clock)[1]  # clock * 2**k in [1024, 2048)
        self._thresholds = _poisson_thresholds(Fraction(clock) * Fraction(2) ** self.cell_exponent)
        zero = np.zeros_like(keys[0])
        self._keys = keys
        self._cell_keys = tuple(jnp.asarray(part) for part in bits.stream(*keys, zero, bits.CELLS))
        self._cell = 0                                   # cells already summed
        self._whole = np.zeros(keys[0].size, np.int64)   # ticks in them

    def count(self, time: float) -> np.ndarray:
        """Ticks each replica has had by `time` (at least any earlier one asked for): int64 (replicas,)."""
        cell, fraction = divmod(Fraction(time) / Fraction(2) ** self.cell_exponent, 1)
        if cell < self._cell:
            raise ValueError(f"count takes times that do not decrease; got {time!r}")
        if cell >= 2**32:
            raise ValueError(f"a horizon must have fewer than 2**42 ticks a replica; got time {time:g}; use a shorter one")
        self._sum_cells(int(cell))
        digits = int(fraction * 2**64)
        if digits == 0:
            return self._whole.copy()
        total = self._cell_counts(np.array([cell], np.uint32))[:, 0]
        stream = bits.stream(*self._keys, np.uint32(int(cell)), bits.HALVING)
        split = [np.uint32(digits >> 32), np.uint32(digits & 0xFFFFFFFF)]
        return self._whole + np.asarray(_count_before(*stream, total.astype(np.int32), *split)).astype(np.int64)

    def _sum_cells(self, end: int) -> None:
        width = 1 << max(0, (_BATCH // max(1, self._whole.size)).bit_length() - 1)
        while self._cell < end:  # widths are powers of two: few shapes to compile
            while self._cell + width > end:
                width //= 2
            cells = np.arange(self._cell, self._cell + width, dtype=np.uint32)
            self._whole += self._cell_counts(cells).sum(axis=1)
            self._cell += width

    def _cell_counts(self, cells: np.ndarray) -> np.ndarray:
        hi, lo = _cell_words(*self._cell_keys, cells)
        words = (np.asarray(hi).astype(np.uint64) << np.uint64(32)) | np.asarray(lo)
        return np.searchsorted(self._thresholds, words, side="right").astype(np.int64)


@jax.jit
def _cell_words(k0: Any, k1: Any, cells: Any) -> tuple[jax.Array, jax.Array]:
    return bits.threefry(k0[:, None], k1[:, None], cells[None, :], np.uint32(0))


@jax.jit
def _count_before(k0: Any, k1: Any, total: Any, hi: Any, lo: Any) -> jax.Array:
    """Ticks in the first (hi, lo) / 2**64 of a cell with `total` ticks; nodes of the halving tree have heap numbers."""

    def random(node: Any, block: Any) -> tuple[Any, Any]:
        return bits.threefry(k0, k1, node[1], (node[0] << np.uint32(8)) | block)

    def halve(carry: Any) -> Any:
        # every lane has the same time, so the same node, until it has few enough ticks and keeps the node it is at
        node, digits, path, remaining, size, before = carry
        blocks = (jnp.max(size).astype(np.uint32) + np.uint32(63)) // np.uint32(64)

        def ones(block: Any, left: Any) -> Any:
            for word, offset in zip(random(path, block), (0, 32), strict=True):
                wanted = jnp.clip(size - (block.astype(np.int32) * 64 + offset), 0, 32).astype(np.uint32)
                mask = jnp.where(wanted == 32, np.uint32(0xFFFFFFFF), (np.uint32(1) << wanted) - np.uint32(1))
                left = left + lax.population_count(word & mask).astype(np.int32)
            return left

        left = lax.fori_loop(np.uint32(0), blocks, ones, jnp.zeros_like(size))
        right_half = (digits[0] >> np.uint32(31)) == 1
        digits = ((digits[0] << np.uint32(1)) | (digits[1] >> np.uint32(31)), digits[1] << np.uint32(1))
        path = ((path[0] << np.uint32(1)) | (path[1] >> np.uint32(31)),
                (path[1] << np.uint32(1)) | right_half.astype(np.uint32))
        many = size > _FEW
        before = jnp.where(many & right_half, before + left, before)
        size = jnp.where(many, jnp.where(right_half, size - left, left), size)
        node = tuple(jnp.where(many, new, old) for new, old in zip(path, node, strict=True))
        remaining = tuple(jnp.where(many, new, old) for new, old in zip(digits, remaining, strict=True))
        return node, digits, path, remaining, size, before

    def goes_on(carry: Any) -> Any:
        _, digits, _, _, size, _ = carry
        return jnp.any(size > _FEW) & ((digits[0] | digits[1]) != 0)

    zero, one = jnp.zeros_like(k0), jnp.ones_like(k0)
    start = ((zero, one), (hi, lo), (jnp.uint32(0), jnp.uint32(1)), (zero + hi, zero + lo), total, jnp.zeros_like(total))
    node, _, _, remaining, size, before = lax.while_loop(goes_on, halve, start)

    def place(index: Any, count: Any) -> Any:
        inside = bits.lt64(*random(node, index.astype(np.uint32)), *remaining) & (index < size)
        return count + inside.astype(np.int32)

    return lax.fori_loop(np.int32(0), jnp.minimum(jnp.max(size), _FEW).astype(np.int32), place, before)


def _poisson_thresholds(mean: Fraction) -> np.ndarray:
    """floor(2**64 P(N <= j)) for j = 0, 1, ...: the count of a word is the number of thresholds at or below it."""
    with localcontext() as context:
        context.prec = 50
        mu = Decimal(mean.numerator) / Decimal(mean.denominator)
        term = (-mu).exp()
        total, j = term, 0
        thresholds: list[int] = []
        while len(thresholds) <= mu or thresholds[-1] < 2**64 - 1:
            thresholds.append(min(int(total * 2**64), 2**64 - 1))
            j += 1
            term *= mu / j
            total += term
    return np.array(thresholds, np.uint64)
