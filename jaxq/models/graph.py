"""The supermarket model server by server, as queue-length vectors: each vertex asks its neighbours.

A task that arrives at vertex v (rate lambda each) joins the shortest among v and d - 1 randomly chosen neighbours, ties
uniform; exponential(1) service. Default: d - 1 distinct neighbours; `replacement=True`: d - 1 independent draws from the
closed neighbourhood, v included. On the complete graph these are `Supermarket` without and with replacement, exactly.

Source: Budhiraja, Mukherjee and Wu 2019, arXiv:1712.07607. A graph has no closed occupancy process, hence no mean field of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits
from ..chain import Model, ceil_clock
from ..graphs import Graph
from .supermarket import MAX_D


@dataclass(frozen=True)
class GraphSupermarket(Model, leaves=("graph", "arrival_rate")):
    """Join the shortest of d on a graph: queue lengths, (n, replicas), at the vertices of `graph`.

    Args:
      graph: from `jaxq.graphs`.
      d: servers compared by a customer, its own vertex included, 1 <= d <= 64.
      arrival_rate: lambda > 0 at each vertex; the unit of time is the mean service time.
      replacement: d - 1 independent draws from the closed neighbourhood instead of d - 1 distinct neighbours.
      buffer: customers a server holds, the one in service included; arrivals to a full chosen server are lost. None: unbounded.
      levels: levels observed, grown when needed; never changes a result.

    Initial states for `simulate`: None (empty); n integer queue lengths; or float fractions S_1 >= S_2 >= ..., rounded to
    n S_i half up and given to vertices 0, 1, ... (the complete graph is exchangeable).
    """

    graph: Graph
    d: int
    arrival_rate: Any
    replacement: bool = False
    buffer: int | None = None
    levels: int = 16
    wide: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Graph):
            raise ValueError(f"graph must come from jaxq.graphs, such as graphs.complete(100); got {self.graph!r}")
        d = _check.integer("d", self.d, 1, MAX_D, "it counts the customer's own vertex")
        if not self.replacement and d > self.graph.n:
            raise ValueError(f"d must be at most n on the complete graph without replacement; got d={d} with n={self.graph.n}")
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per vertex")
        if self.buffer is not None:
            _check.integer("buffer", self.buffer, 1, 2**14, "it counts the customer in service; None is unbounded")
            object.__setattr__(self, "levels", self.buffer)
        object.__setattr__(self, "wide", self.graph.n > 10**6 or abs(1 - rate) < 1e-4)
        object.__setattr__(self, "replacement", bool(self.replacement))
        object.__setattr__(self, "arrival_rate", rate)

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of vertices."""
        return self.graph.n

    @property
    def words(self) -> int:
        return 2 + (2 if self.wide else 1) * self.d + 1  # type, servers, ties

    def clock(self) -> float:
        return ceil_clock(self.n * (1 + Fraction(self.arrival_rate)))

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        arrival = bits.threshold64(self.n * Fraction(self.arrival_rate), clock)
        service = 2**64 - bits.threshold64(self.n, clock)
        return {"n": np.uint32(self.n), "arrival": bits.split64(arrival), "service": bits.split64(max(service, arrival))}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        lengths = self._lengths(initial)
        model, top = self, int(lengths.max())
        if self.buffer is not None and top > self.buffer:
            raise ValueError(f"initial must have at most buffer = {self.buffer} customers at a server; got {top}")
        while top > model.levels:
            model = replace(model, levels=2 * model.levels)
        zeros = np.zeros(keys[0].size, np.int32)
        return model, (np.repeat(lengths.astype(np.int16)[:, None], keys[0].size, axis=1), zeros + top, zeros, zeros)

    def _lengths(self, initial: Any) -> np.ndarray:
        if initial is None:
            return np.zeros(self.n, np.int64)
        lengths = _check.vector("initial", initial)
        if lengths.dtype.kind == "f":
            if lengths.max() > 1 or lengths.min() < 0 or np.any(np.diff(lengths) > 0):
                raise ValueError(f"initial given as floats must be fractions 1 >= S_1 >= S_2 >= ... >= 0; got {initial!r}")
            tail = np.floor(self.n * lengths + 0.5).astype(np.int64)
            return np.sum(np.arange(self.n)[:, None] < tail, axis=1)
        if lengths.shape != (self.n,) or lengths.min() < 0 or lengths.max() > 2**14:
            raise ValueError(f"initial must be n = {self.n} queue lengths between 0 and {2**14}; got shape {lengths.shape} "
                             f"with values {int(lengths.min())} to {int(lengths.max())}")
        return lengths

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        hi, lo, *rest = words
        kind = jnp.where(bits.lt64(hi, lo, *tables["arrival"]), np.int32(1),
                         jnp.where(bits.lt64(hi, lo, *tables["service"]), np.int32(0), np.int32(-1)))
        bounds = [tables["n"] - np.uint32(0 if self.replacement else k) for k in range(self.d)]
        if self.wide:
            picks = [bits.mulhi64(rest[2 * k], rest[2 * k + 1], bound) for k, bound in enumerate(bounds)]
        else:
            picks = [bits.mulhi32(rest[k], bound) for k, bound in enumerate(bounds)]
        servers = picks if self.replacement else _distinct(picks)
        return kind, tuple(server.astype(np.int32) for server in servers), rest[-1]

    def null(self, tables: Any) -> Any:
        return np.int32(0), (np.int32(0),) * self.d, np.uint32(0)

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        q, highest, arrivals, lost = state
        kind, servers, word = mark
        replicas = q.shape[1]
        lane = jnp.arange(replicas, dtype=np.int32)
        flat = q.reshape(-1)
        lengths = [flat[server * np.int32(replicas) + lane] for server in servers]
        arrival = kind > 0
        chosen, length = servers[0], lengths[0]
        if self.d > 1:
            shortest, at_shortest = _choose(servers, lengths, word)
            chosen, length = jnp.where(arrival, at_shortest, chosen), jnp.where(arrival, shortest, length)
        full = jnp.zeros_like(arrival) if self.buffer is None else arrival & (length >= self.buffer)
        step = jnp.where(arrival, 1 - full.astype(np.int32), jnp.where((kind < 0) & (length > 0), np.int32(-1), np.int32(0)))
        after = length + step.astype(q.dtype)
        flat = flat.at[chosen * np.int32(replicas) + lane].set(after, unique_indices=True, mode="promise_in_bounds")
        return (flat.reshape(q.shape), jnp.maximum(highest, after.astype(np.int32)), arrivals + arrival.astype(np.int32),
                lost + full.astype(np.int32))

    def counts(self, state: Any) -> jax.Array:
        levels = jnp.arange(1, self.levels + 1, dtype=np.int16)
        return jax.lax.map(lambda level: jnp.sum((state[0] >= level).astype(np.int32), axis=0, dtype=np.int32), levels)

    def tail(self, counts: Any) -> Any:
        return counts

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        q, highest, arrivals, lost = state
        return {"arrivals": arrivals, "lost": lost}, (q, highest, jnp.zeros_like(arrivals), jnp.zeros_like(lost))

    def overflow(self, state: Any) -> jax.Array:
        return state[1] > self.levels

    def grow(self, state: Any) -> tuple[Self, Any]:
        return replace(self, levels=2 * self.levels), state


def _distinct(picks: list[Any]) -> list[Any]:
    """An ordered sample without replacement: pick k, below n - k, counts the servers that earlier picks left, in order."""
    servers: list[Any] = []
    for pick in picks:
        for taken in _ascending(servers):
            pick = pick + (pick >= taken).astype(np.uint32)
        servers.append(pick)
    return servers


def _ascending(values: list[Any]) -> list[Any]:
    """The values in increasing order, by insertion with min and max."""
    ordered: list[Any] = []
    for value in values:
        for k, other in enumerate(ordered):
            ordered[k], value = jnp.minimum(other, value), jnp.maximum(other, value)
        ordered.append(value)
    return ordered


def _choose(servers: tuple[Any, ...], lengths: list[Any], word: Any) -> tuple[Any, Any]:
    """The least length and a server that has it, uniform among the tied ones by one word."""
    shortest = lengths[0]
    for length in lengths[1:]:
        shortest = jnp.minimum(shortest, length)
    ties = [(length == shortest) for length in lengths]
    count = sum((tie.astype(np.uint32) for tie in ties[1:]), ties[0].astype(np.uint32))
    left = bits.mulhi32(word, count)  # the tie to take, counted from the first
    chosen = servers[0]
    taken = jnp.zeros_like(ties[0])
    for server, tie in zip(servers, ties, strict=True):
        here = tie & (left == 0) & ~taken
        chosen = jnp.where(here, server, chosen)
        taken = taken | here
        left = left - (tie & ~taken).astype(np.uint32)
    return shortest, chosen
