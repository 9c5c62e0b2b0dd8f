"""Pools of like servers, by their share of all servers, service rate and buffer, and what models of them share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from .. import _check, bits
from ..chain import PopulationModel, ceil_clock

_FINE = 10**6  # R n up to which one 32-bit word gives router and rank, each within 1e6/2**32 = 2e-4 of its probability


@dataclass(frozen=True)
class Pool:
    """A pool of like servers: `fraction` of all servers (0 < fraction <= 1), service `rate` > 0 of each, per unit time, and
    `buffer`, the customers a server holds, the one in service included (None or inf: unbounded).

    Raises ValueError for values outside these ranges. The models of pools check that the fractions sum to 1.

    Example::

        >>> jaxq.Pool(fraction=0.5, rate=1.5, buffer=float("inf"))
        Pool(fraction=0.5, rate=1.5, buffer=None)
    """

    fraction: Any
    rate: Any = 1.0
    buffer: int | None = None

    def __post_init__(self) -> None:
        fraction = _check.real("fraction", self.fraction, 0.0, 1.0, open_low=True, hint="it is a share of all servers")
        rate = _check.real("rate", self.rate, 0.0, 1e6, open_low=True, hint="it is a server's service rate")
        unbounded = self.buffer is None or (isinstance(self.buffer, float) and self.buffer == math.inf)
        buffer = None if unbounded else _check.integer(
            "buffer", self.buffer, 1, 10**6, "it counts the customer in service; None is unbounded")
        for name, value in (("fraction", fraction), ("rate", rate), ("buffer", buffer)):
            object.__setattr__(self, name, value)


def _pool(buffer: int | None, numbers: Any) -> Pool:
    pool: Pool = object.__new__(Pool)  # no __init__: validation would meet tracers
    for name, value in zip(("fraction", "rate", "buffer"), (*numbers, buffer), strict=True):
        object.__setattr__(pool, name, value)
    return pool


jax.tree_util.register_pytree_node(Pool, lambda pool: ((pool.fraction, pool.rate), pool.buffer), _pool)


def listed(pools: Any) -> list[Pool]:
    """The pools as a list; ValueError for anything but at least one `Pool`."""
    if not isinstance(pools, (list, tuple)) or not pools or not all(isinstance(pool, Pool) for pool in pools):
        raise ValueError(f"pools must be a list of at least one jaxq.Pool; got {_check.shown(pools)}; use [Pool(1.0)] for like "
                         "servers")
    return list(pools)


def check_fractions(pools: Sequence[Pool]) -> list[float]:
    """The fractions; ValueError where they do not sum to 1."""
    fractions = [float(pool.fraction) for pool in pools]
    if abs(math.fsum(fractions) - 1) > 1e-9:
        raise ValueError(f"the fractions of the pools must sum to 1; got {fractions} with sum "
                         f"{math.fsum(fractions):.10g}; mend the fractions")
    return fractions


def divide(n: int, pools: Sequence[Pool]) -> list[int]:
    """Servers of each pool; ValueError where the fractions do not sum to 1 or do not divide n, naming the nearest n."""
    fractions = check_fractions(pools)
    if parts := _parts(n, fractions):
        return parts
    unit = math.lcm(*(Fraction(fraction).limit_denominator(10**6).denominator for fraction in fractions))
    sizes = [size for size in (n // unit * unit, (n // unit + 1) * unit) if 0 < size < 2**31 and _parts(size, fractions)]
    advice = f"the nearest n that do are {' and '.join(map(str, sizes))}" if sizes else "round the fractions to fewer digits"
    raise ValueError(f"n * fraction must be a whole number above 0 for every pool; got n={n} with fractions "
                     f"{fractions}; {advice}")


def _parts(n: int, fractions: list[float]) -> list[int]:
    """The whole numbers n * fraction, or nothing."""
    parts = [round(n * fraction) for fraction in fractions]
    slack = 1e-9 + n * 2.0**-52  # the second for the rounding of the fractions themselves
    whole = all(part and abs(n * fraction - part) <= slack for fraction, part in zip(fractions, parts, strict=True))
    return parts if whole and sum(parts) == n else []


def word_size(n: int, pools: Sequence[Pool], routers: int, arrival_rate: float) -> str:
    """How a tick is drawn: `packed` (one 64-bit word) or `wide` (64 bits for its type and 64 for router and rank)."""
    services = [n * pool.fraction * pool.rate for pool in pools]
    gap = abs(sum(services) - n * arrival_rate)
    least = min(n * arrival_rate, *services, gap) / (n * arrival_rate + sum(services))
    return "packed" if routers * n <= _FINE and least >= 1e-4 else "wide"


def pool_rates(model: Any) -> list[Fraction]:
    """Exact rates of the ticks of a model on pools: its arrivals, then the services of each pool."""
    services = [int(part) * Fraction(pool.rate) for part, pool in zip(model.servers, model.pools, strict=True)]
    return [model.n * Fraction(model.arrival_rate), *services]


def type_bounds(model: Any, clock: float) -> list[int]:
    """Where the types of a tick begin on 64-bit words: arrivals end at the first; each pool's services start at the next.

    The services lie from the top of the words down, null ticks between them and the arrivals.
    """
    arrivals, *services = pool_rates(model)
    arrival = bits.threshold64(arrivals, clock)
    tops = [2**64 - bits.threshold64(sum(services[pool:], Fraction(0)), clock) for pool in range(len(services))]
    return [arrival, *(max(arrival, top) for top in tops)]


class Pooled(PopulationModel):
    """What population models of n servers in `pools` share; `levels` stands for the buffers of those without one."""

    pools: Any
    levels: int
    buffers: tuple[int | None, ...]

    @property
    def depths(self) -> tuple[int, ...]:
        """Customers a server of each pool holds in the state."""
        return tuple(buffer or self.levels for buffer in self.buffers)

    @property
    def servers(self) -> np.ndarray:
        """(pools,) servers of each pool."""
        return np.array([round(self.n * pool.fraction) for pool in self.pools])

    def clock(self) -> float:
        return ceil_clock(sum(pool_rates(self), Fraction(0)))


def tail_classes(depths: Sequence[int]) -> np.ndarray:
    """`class_matrix` of counts that are tails of pools holding up to `depths` customers a server: those with 0, 1, 2, ..."""
    blocks = [np.eye(depth + 1, depth, -1, dtype=int) - np.eye(depth + 1, depth, dtype=int) for depth in depths]
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*blocks))


def tails(initial: Any, servers: Sequence[int], buffers: Sequence[int | None]) -> list[np.ndarray]:
    """Integer tail counts (levels,) of each pool from what the user gave: None (empty) or one list for each pool.

    Raises ValueError where they are not tails of pools with these servers and buffers.
    """
    if initial is None:
        return [np.zeros(0, np.int64) for _ in buffers]
    if not isinstance(initial, (list, tuple, np.ndarray)) or len(initial) != len(buffers):
        raise ValueError(f"initial must be one list of tail counts for each of the {len(buffers)} pools, such as "
                         f"{[[2, 1]] * len(buffers)}; got {initial!r}")
    found = []
    for pool, (given, most, buffer) in enumerate(zip(initial, servers, buffers, strict=True)):
        tail = _check.vector(f"initial[{pool}]", given if np.size(given) else [0])
        if tail.dtype.kind == "f" or np.any(np.diff(tail) > 0) or tail.max() > most or tail.min() < 0:
            raise ValueError(f"initial[{pool}] must be integer tail counts with {most} >= x_1 >= x_2 >= ... >= 0, for the "
                             f"{most} servers of the pool; got {given!r}")
        tail = np.trim_zeros(tail, "b").astype(np.int64)
        if buffer is not None and tail.size > buffer:
            raise ValueError(f"initial[{pool}] must have no customers above the buffer of {buffer}; got {tail.size} levels")
        found.append(tail)
    return found
