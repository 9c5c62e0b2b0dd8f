"""Two parallel queues, join the shorter: the classical system behind the power of two choices.

Customers come at total rate Lambda, join the shorter of two queues (ties fair) and are lost when both are full. Server i works
at rate mu_i. `jaxq.exact.two_queues` solves it.

Sources: Haight, Biometrika 45 (1958) 401; Dester, Fricker and Tibi 2017, arXiv:1704.06442.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits
from ..chain import Model, Steady, ceil_clock

_TO_FIRST, _TO_SECOND, _FROM_FIRST, _FROM_SECOND = 1, 2, -1, -2  # marks; 0 is the null tick
_LEVELS = 16
_HIGHEST = 2**30


@dataclass(frozen=True)
class TwoQueues(Model, leaves=("capacity", "arrival_rate", "service_rates")):
    """Two queues, join the shorter: state (2, replicas), their lengths.

    Args:
      capacity: customers each queue holds, the one in service included, 1 <= capacity <= 10**6; None or inf: unbounded.
      arrival_rate: Lambda > 0, the **total** arrival rate. Unbounded queues are stable for Lambda < mu_1 + mu_2; the
        simulation does not ask for that.
      service_rates: (mu_1, mu_2), both > 0, in the same unit.
      levels: levels observed, grown when needed; a choice of speed that never changes a result.

    As an ensemble it has n = 2 servers: `tail` counts the queues with at least i customers, so results are per server and the
    mean number of customers in the system is 2 mean_queue_length. Counters: arrivals, lost.

    Initial states for `simulate`: None (empty), or the two queue lengths (integers).

    It is a plain `Model`: with two servers there is no mean field. `jumps`, `event_rates`, `start` and `occupancy` serve the
    exact solvers. Raises ValueError for parameters outside these ranges. Source: arXiv:1704.06442.

    Example::

        >>> model = jaxq.TwoQueues(capacity=1, arrival_rate=1.6)  # Erlang's formula: 1.6 (1 - B(2, 1.6)) / 2
        >>> round(float(jaxq.exact.stationary(model).mean_queue_length), 4)
        0.5361
    """

    capacity: Any
    arrival_rate: Any
    service_rates: Any = (1.0, 1.0)
    levels: int = _LEVELS

    def __post_init__(self) -> None:
        capacity = self.capacity
        if isinstance(capacity, float) and capacity == math.inf:
            capacity = None
        if capacity is not None:
            capacity = _check.integer("capacity", capacity, 1, 10**6, "it counts the customer in service; None is unbounded")
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is the total rate Lambda")
        try:
            first, second = self.service_rates
        except (TypeError, ValueError):
            raise ValueError(f"service_rates must be two rates (mu_1, mu_2); got {_check.shown(self.service_rates)}") from None
        services = tuple(_check.real(f"service_rates[{k}]", mu, 0.0, 1e6, open_low=True) for k, mu in enumerate((first, second)))
        levels = _check.integer("levels", self.levels, 1, _check.MOST_LEVELS)
        for name, value in (("capacity", capacity), ("arrival_rate", rate), ("service_rates", services),
                            ("levels", levels if capacity is None else min(levels, capacity))):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:  # type: ignore[override]
        """Two servers."""
        return 2

    @property
    def words(self) -> int:
        return 2

    def clock(self) -> float:
        return ceil_clock(Fraction(self.arrival_rate) + sum(Fraction(mu) for mu in self.service_rates))

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        total, bounds = Fraction(0), []
        for rate in (self.arrival_rate, *self.service_rates):
            total += Fraction(rate)
            # even, so that the lowest bit of the word, which breaks ties, does not depend on the type
            bounds.append(bits.split64(bits.threshold64(total, clock) & ~1))
        capacity = _HIGHEST if self.capacity is None else self.capacity
        return {"arrival": bounds[0], "first": bounds[1], "second": bounds[2], "capacity": np.int32(capacity)}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        lengths = self._lengths(initial)
        top, model = int(lengths.max()), self
        while top > model.levels:
            model = model._more()
        zeros = np.zeros(keys[0].size, np.int32)
        return model, (np.repeat(lengths[:, None], keys[0].size, axis=1), zeros + np.int32(top), zeros, zeros)

    def _lengths(self, initial: Any) -> np.ndarray:
        given = np.zeros(2, np.int32) if initial is None else _check.vector("initial", initial)
        most = 2**20 if self.capacity is None else self.capacity
        if given.shape != (2,) or given.dtype.kind not in "iu" or given.min() < 0 or given.max() > most:
            raise ValueError(f"initial must be two integer queue lengths between 0 and {most}; got {_check.shown(initial)}")
        return given.astype(np.int32)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> jax.Array:
        hi, lo = words
        before = [bits.lt64(hi, lo, *tables[name]) for name in ("arrival", "first", "second")]
        to = jnp.where((lo & np.uint32(1)) == 0, np.int32(_TO_FIRST), np.int32(_TO_SECOND))
        served = jnp.where(before[1], np.int32(_FROM_FIRST), jnp.where(before[2], np.int32(_FROM_SECOND), np.int32(0)))
        return jnp.where(before[0], to, served)

    def null(self, tables: Any) -> np.int32:
        return np.int32(0)

    def apply(self, tables: Any, state: Any, mark: jax.Array) -> Any:
        (first, second), highest, arrivals, lost = state
        arrival = mark > 0
        joins = arrival & (jnp.minimum(first, second) < tables["capacity"])
        to_first = (first < second) | ((first == second) & (mark == _TO_FIRST))
        first = (first + (joins & to_first).astype(np.int32) - ((mark == _FROM_FIRST) & (first > 0)).astype(np.int32))
        second = (second + (joins & ~to_first).astype(np.int32) - ((mark == _FROM_SECOND) & (second > 0)).astype(np.int32))
        return (jnp.stack([first, second]), jnp.maximum(highest, jnp.maximum(first, second)),
                arrivals + arrival.astype(np.int32), lost + (arrival & ~joins).astype(np.int32))

    def counts(self, state: Any) -> jax.Array:
        """(2 levels, replicas): 1 where queue 1 has at least i customers, i = 1, 2, ..., then the same of queue 2."""
        level = jnp.arange(1, self.levels + 1, dtype=np.int32)[None, :, None]
        reached = state[0][:, None, :] >= level
        return reached.reshape(2 * self.levels, -1).astype(np.int32)

    def tail(self, counts: Any) -> Any:
        half = counts.shape[0] // 2
        return counts[:half] + counts[half:]

    def pool_tails(self, counts: Any) -> Any:
        return counts.reshape(2, -1, *counts.shape[1:])

    def steady(self) -> Steady:
        load = self.arrival_rate / math.fsum(self.service_rates)
        if self.capacity is None and load >= 1:
            raise ValueError(f"a steady state needs arrival_rate below mu_1 + mu_2 = {math.fsum(self.service_rates):g}, or a "
                             f"finite capacity; got {self.arrival_rate:g}; lower it or give a capacity")
        crowd = math.inf if load >= 1 else 2 + math.ceil(load / (1 - load))
        return Steady(self.arrival_rate, self.service_rates, (0.5, 0.5), lossless=self.capacity is None,
                      starts=(None, [int(min(crowd, self.capacity or crowd))] * 2))

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        q, highest, arrivals, lost = state
        return {"arrivals": arrivals, "lost": lost}, (q, highest, jnp.zeros_like(arrivals), jnp.zeros_like(lost))

    def overflow(self, state: Any) -> jax.Array:
        return state[1] > self.levels

    def grow(self, state: Any) -> tuple[Self, Any]:
        return self._more(), state

    def _more(self) -> Self:
        return replace(self, levels=2 * self.levels)

    # the exact chain, state by state

    @property
    def jumps(self) -> np.ndarray:
        """(4, 2): an arrival to queue 1, to queue 2, a service at 1, at 2."""
        return np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.int32)

    def event_rates(self, states: np.ndarray) -> np.ndarray:
        """(states, 4) exact rates of the jumps in states (states, 2) of queue lengths."""
        q1, q2 = states.T
        full = _HIGHEST if self.capacity is None else self.capacity
        arrival = self.arrival_rate * (np.minimum(q1, q2) < full)
        first = np.where(q1 == q2, 0.5, q1 < q2)
        mu1, mu2 = self.service_rates
        return np.stack([arrival * first, arrival * (1 - first), mu1 * (q1 > 0), mu2 * (q2 > 0)], axis=1)

    def start(self, initial: Any) -> np.ndarray:
        """Queue lengths (2,) of what `simulate` takes as `initial`; ValueError for an infinite chain."""
        if self.capacity is None:
            raise ValueError("an exact chain needs a model of finite capacity; got TwoQueues(capacity=None); give a capacity, "
                             "or use jaxq.exact.two_queues, which certifies its truncation")
        return self._lengths(initial)

    def occupancy(self, states: np.ndarray) -> np.ndarray:
        """(states, capacity): queues with at least i customers in states (states, 2)."""
        level = np.arange(1, self.capacity + 1)
        return np.sum(states[:, :, None] >= level, axis=1)
