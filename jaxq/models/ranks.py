"""Ranks of sampled servers: how many words they take, the largest of d, and the largest of all n by one word."""

from __future__ import annotations

import functools
import math
import operator
from decimal import Decimal, localcontext
from typing import Any

import jax.numpy as jnp
import numpy as np


def size_class(n: int, d: int, rate: float) -> str:
    """How ranks are drawn: `packed` (a tick from one 64-bit word), `narrow` (32 bits a rank) or `wide` (64 bits a rank,
    the type from what they leave)."""
    if n > 10**6 or abs(1 - rate) < 1e-4:
        return "wide"
    return "packed" if n <= 2**16 and d * math.log2(n) + 32 <= 64 else "narrow"


def floyd(picks: list[Any], n: Any) -> list[Any]:
    """A uniform set of d ranks below n by Floyd's rule, from picks[k] uniform below n - k; their order is not uniform."""
    chosen: list[Any] = []
    for k in range(len(picks) - 1, -1, -1):
        repeated = functools.reduce(operator.or_, [picks[k] == other for other in chosen], np.bool_(False))
        chosen.append(jnp.where(repeated, n - np.uint32(k + 1), picks[k]))
    return chosen


def largest(picks: list[Any], n: Any, *, distinct: bool) -> Any:
    """The largest of the sampled ranks: the picks themselves, or the distinct ranks that `floyd` makes of them."""
    # ranks are below 2**31, and a TPU kernel has no maximum of unsigned numbers
    signed = [pick.astype(np.int32) for pick in (floyd(picks, n) if distinct else picks)]
    return functools.reduce(jnp.maximum, signed).astype(np.uint32)


def full_thresholds(n: int, replacement: bool) -> list[int]:
    """floor(2**64 P(largest of n ranks < n - j)) for j = 1, 2, ... while positive: how far below n - 1 the largest is."""
    if not replacement:
        return [0]
    with localcontext() as context:
        context.prec = 60
        scaled = [int(2**64 * ((1 - Decimal(j) / n).ln() * n).exp()) for j in range(1, min(n, 64))]
    return [value for value in scaled if value > 0] or [0]
