"""Random words, ranks and thresholds: the integer arithmetic between a seed and a mark.

Every function works on uint32 arrays of NumPy (host) and of JAX (device) alike, uses 32-bit operations only, and so gives
the same bits with x64 on and off. The generator is threefry2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011,
doi:10.1145/2063384.2063405).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _check

Words = Any  # a uint32 array, NumPy's or JAX's

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LOW = np.uint32(0xFFFF)
_HALF = np.uint32(16)

#: Purposes of a replica's own key streams (`stream`); the ticks use the replica's key itself.
CELLS, HALVING, INITIAL, LEAP, FORCED, BULK = 1, 2, 3, 4, 5, 6


def threefry(k0: Words, k1: Words, c0: Words, c1: Words) -> tuple[Words, Words]:
    """One block, 64 random bits, of threefry2x32-20 for key (k0, k1) and counter (c0, c1); shapes broadcast."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = c0 + keys[0], c1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def key_words(key: Any) -> np.ndarray:
    """Two uint32 words of a run's key: a typed threefry JAX key, or an integer seed 0 <= seed < 2**64.

    A seed becomes (seed >> 32, seed & 0xffffffff) here, not in `jax.random.key`, whose answer depends on x64.
    Raises ValueError for anything else (`rbg` keys too: under vmap they use the first key only).
    """
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != () or str(jax.random.key_impl(key)) not in ("fry", "threefry2x32"):
            raise ValueError(f"key must be one typed threefry2x32 key; got {_check.shown(key)}; "
                             "use jax.random.key(seed) or an integer seed")
        return np.asarray(jax.random.key_data(key), dtype=np.uint32)
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and 0 <= key < 2**64:
        return np.array([int(key) >> 32, int(key) & 0xFFFFFFFF], dtype=np.uint32)
    raise ValueError(f"key must be a typed JAX key or an integer seed with 0 <= seed < 2**64; got {_check.shown(key)}")


def fold_in(key: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys of replicas `ids` (uint32 vector): threefry of counter (0, id), the same words as `jax.random.fold_in`."""
    ids = np.asarray(ids, dtype=np.uint32)
    return threefry(key[:1], key[1:], np.zeros_like(ids), ids)


def stream(k0: Words, k1: Words, index: Words, purpose: int) -> tuple[Words, Words]:
    """A replica's key for another purpose than ticks (CELLS, HALVING, INITIAL, LEAP, FORCED, BULK); streams never share words."""
    return threefry(k0, k1, index, np.uint32(purpose << 28))


def tick_block(k0: Words, k1: Words, low: Words, high: Words, block: int) -> tuple[Words, Words]:
    """Block `block` (< 256) of tick number high * 2**32 + low (< 2**52) of the replica with key (k0, k1)."""
    return threefry(k0, k1, low, (high << np.uint32(8)) | np.uint32(block))


def mulhi32(a: Words, b: Words) -> Words:
    """High word of the 64-bit product of two uint32: floor(a b / 2**32)."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    t = a0 * b0
    u = a1 * b0 + (t >> _HALF)
    v = a0 * b1 + (u & _LOW)
    return a1 * b1 + (u >> _HALF) + (v >> _HALF)


def mulhi64(hi: Words, lo: Words, n: Words) -> Words:
    """floor((hi 2**32 + lo) n / 2**64): a rank below n (< 2**32) from 64 random bits."""
    return rank64(hi, lo, n)[0]


def rank64(hi: Words, lo: Words, n: Words) -> tuple[Words, Words]:
    """A rank below n (< 2**32) from 64 random bits, and the high word of the fraction that is left.

    Over all 2**64 words that high word is exactly uniform: the fractions left are the multiples of the power of two in n.
    """
    carry = mulhi32(lo, n)
    left = hi * n + carry
    return mulhi32(hi, n) + (left < carry).astype(np.uint32), left


def next_rank(hi: Words, lo: Words, n: Words) -> tuple[Words, Words, Words]:
    """Split a uniform 64-bit fraction into a rank below n (n <= 65536) and the fraction that is left, still uniform."""
    p0 = (lo & _LOW) * n
    p1 = (lo >> _HALF) * n + (p0 >> _HALF)
    p2 = (hi & _LOW) * n + (p1 >> _HALF)
    p3 = (hi >> _HALF) * n + (p2 >> _HALF)
    return p3 >> _HALF, (p3 << _HALF) | (p2 & _LOW), (p1 << _HALF) | (p0 & _LOW)


def lt64(hi: Words, lo: Words, bound_hi: Words, bound_lo: Words) -> Words:
    """(hi, lo) < (bound_hi, bound_lo) as 64-bit numbers."""
    return (hi < bound_hi) | ((hi == bound_hi) & (lo < bound_lo))


def threshold64(numerator: float | Fraction, denominator: float | Fraction) -> int:
    """round(2**64 numerator / denominator) of two numbers, floats being the exact rationals they are, at most 2**64 (host)."""
    ratio = Fraction(numerator) / Fraction(denominator)
    if not 0 <= ratio <= 1:
        raise ValueError(f"a probability must lie in [0, 1]; got {float(ratio)!r}")
    return math.floor(ratio * 2**64 + Fraction(1, 2))


def split64(value: int) -> tuple[np.uint32, np.uint32]:
    """(high, low) words of 0 <= value < 2**64; 2**64 itself, a certain event, becomes 2**64 - 1 (off by 2**-64)."""
    value = min(_check.integer("value", value, 0, 2**64), 2**64 - 1)
    return np.uint32(value >> 32), np.uint32(value & 0xFFFFFFFF)


def below(fraction: Any, bound: Any) -> Any:
    """A rank below `bound` from a uniform fraction of one or two words."""
    return mulhi32(fraction[0], bound) if len(fraction) == 1 else mulhi64(fraction[0], fraction[1], bound)


def total(rows: Words) -> Any:
    """The sum of rows over their first axis as int32, whatever x64 is."""
    return jnp.sum(rows, axis=0, dtype=np.int32)
