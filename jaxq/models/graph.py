"""The supermarket model server by server, as queue-length vectors: each vertex asks its neighbours.

A task that arrives at vertex v (rate lambda each) joins the shortest among v and d - 1 randomly chosen neighbours, ties
uniform; exponential service, rate 1 unless `service_rates` are given. Default: d - 1 distinct neighbours, all of them where
there are fewer; `replacement=True`: d - 1 independent draws from the closed neighbourhood, v included. On the complete
graph these are `Supermarket` without and with replacement, exactly.

Source: Budhiraja, Mukherjee and Wu 2019, arXiv:1712.07607. A graph has no closed occupancy process, hence no mean field of
its own; `jaxq.pair_approximation` is the next best thing on regular graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits
from ..chain import Model, Steady, ceil_clock
from ..graphs import Graph
from . import graph_draw, graph_start
from .levels import exponents
from .supermarket import MAX_D

#: Vertices above which one replica is advanced at a time. Ticks of many replicas side by side are vector operations, but
#: touch memory all over; the lengths of one replica, a byte each, stay in the cache, and XLA compiles its ticks, scalar reads
#: and one scalar write, to a plain loop. At d = 2 the two are equally fast near 2e4.
LARGE = 20_000
_SERVICE, _NOTHING = np.int32(-3), np.int32(-4)  # instead of a place to look up, in the marks of d <= 2


class Size(NamedTuple):
    """What a compiled tick depends on, all of it following from the parameters.

    words: how numbers are drawn (`graph_draw`). complete: the complete graph. regular: one degree for all. absent: a vertex
    may have fewer than d - 1 neighbours. unequal: service rates differ. large: more than `LARGE` vertices.
    """

    words: str
    complete: bool
    regular: bool
    absent: bool
    unequal: bool
    large: bool


@dataclass(frozen=True)
class GraphSupermarket(Model, leaves=("graph", "arrival_rate", "service_rates")):
    """Join the shortest of d on a graph: queue lengths, (n, replicas), at the vertices of `graph`.

    Args:
      graph: from `jaxq.graphs`.
      d: servers compared by a customer, its own vertex included, 1 <= d <= 64.
      arrival_rate: lambda > 0 at each vertex; the unit of time is the mean service time (that of a rate of 1).
      replacement: d - 1 independent draws from the closed neighbourhood instead of d - 1 distinct neighbours.
      buffer: customers a server holds, the one in service included; arrivals to a full chosen server are lost. None: unbounded.
      levels: levels observed, grown when needed; never changes a result.
      service_rates: (n,) rates >= 0 of the vertices, or None: 1 each. The served vertex is drawn by the alias method in
        integers: each rate is met to within 2**-31 of (arrival_rate + their mean), their sum to rounding.

    Initial states for `simulate`: None (empty); n integer queue lengths; or float fractions S_1 >= S_2 >= ..., rounded to
    n S_i half up and given to the vertices in an order that each replica draws for itself (on the complete graph, which is
    exchangeable, in the order 0, 1, ...).

    Observed are tails, the number of vertices with at least i customers; the queue lengths themselves are the first leaf
    of the engine's state, (n, replicas), and `jaxq.vertex_means` averages them.

    Raises ValueError for parameters outside these ranges. Source: arXiv:1712.07607.

    Example::

        >>> model = jaxq.GraphSupermarket(jaxq.graphs.ring(100), d=2, arrival_rate=0.9)
        >>> jaxq.simulate(model, [0.0, 5.0], key=0, replicas=50).mean_queue_length.round(3).tolist()
        [0.0, 1.417]
    """

    graph: Graph
    d: int
    arrival_rate: Any
    replacement: bool = False
    buffer: int | None = None
    levels: int = 16
    service_rates: Any = None
    size: Size = field(init=False, repr=False, default=Size("narrow", True, True, False, False, False))
    lane: str = field(init=False, repr=False, default="int8")

    def __post_init__(self) -> None:
        graph = self.graph
        if not isinstance(graph, Graph):
            raise ValueError(f"graph must come from jaxq.graphs, such as graphs.complete(100); got {_check.shown(graph)}")
        d = _check.integer("d", self.d, 1, MAX_D, "it counts the customer's own vertex")
        if graph.is_complete and not self.replacement and d > graph.n:
            raise ValueError(f"d must be at most n on the complete graph without replacement; got d={d} with n={graph.n}")
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per vertex")
        levels = _check.integer("levels", self.levels, 1, 2**14)
        if self.buffer is not None:
            levels = _check.integer("buffer", self.buffer, 1, 2**14, "it counts the customer in service; None is unbounded")
        rates = None if self.service_rates is None else _rates(self.service_rates, graph.n)
        least, most = graph.least_degree, graph.largest_degree
        size = Size(graph_draw.word_size(graph.n, most, d, rate), graph.is_complete, least == most,
                    least < d - 1 and not self.replacement, rates is not None, graph.n > LARGE)
        lane = "int8" if levels < 2**7 - 1 else "int16" if levels < 2**15 - 1 else "int32"
        for name, value in (("d", d), ("arrival_rate", rate), ("replacement", _check.flag("replacement", self.replacement)),
                            ("levels", levels),
                            ("service_rates", rates), ("size", size), ("lane", lane)):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:  # type: ignore[override]
        """Number of vertices."""
        return self.graph.n

    @property
    def block(self) -> int:
        return 1 if self.size.large else 512

    @property
    def words(self) -> int:
        return graph_draw.words(self.size.words, self.d)

    def _services(self) -> Fraction:
        return Fraction(self.n) if self.service_rates is None else Fraction(math.fsum(self.service_rates))

    def clock(self) -> float:
        return ceil_clock(self.n * Fraction(self.arrival_rate) + self._services())

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        arrival = bits.threshold64(self.n * Fraction(self.arrival_rate), clock)
        service = 2**64 - bits.threshold64(self._services(), clock)
        if self.size.words in graph_draw.PACKED:  # the type is read off 32 bits: round to a multiple of 2**32
            arrival, service = ((value + 2**31 >> 32) << 32 for value in (arrival, service))
        service = max(service, arrival)
        tables = {"n": np.uint32(self.n), "arrival": bits.split64(arrival), "service": bits.split64(service)}
        graph = self.graph
        if graph.degree is not None and graph.start is not None and graph.neighbours is not None:
            # a vertex without neighbours reads some entry that is never used, so there must be one
            tables["neighbours"] = graph.neighbours if graph.neighbours.size else np.zeros(1, np.int32)
            tables["degree"] = np.uint32(graph.degree[0]) if self.size.regular else graph.degree.astype(np.uint32)
            if not self.size.regular:
                tables["start"] = graph.start.astype(np.uint32)
        if self.size.unequal:
            tables["own"], tables["alias"] = graph_draw.alias(self.service_rates, service >> 32)
        return tables

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        lengths = graph_start.lengths(self.graph, initial, keys)
        model, top = self, int(lengths.max())
        if self.buffer is not None and top > self.buffer:
            raise ValueError(f"initial must have at most buffer = {self.buffer} customers at a server; got {top}")
        while top > model.levels:
            model = replace(model, levels=2 * model.levels)
        zeros = np.zeros(keys[0].size, np.int32)
        state = np.array(np.broadcast_to(lengths, (self.n, keys[0].size)), model.lane)
        return model, (state, lengths.max(axis=0).astype(np.int32) + zeros, zeros, zeros)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        numbers = graph_draw.Numbers(self.size.words, self.d, words)
        vertex, places = graph_draw.candidates(numbers, tables, self.d, self.replacement, self.size)
        tie = numbers.tie()
        hi, lo = numbers.kind()
        arrival, service = bits.lt64(hi, lo, *tables["arrival"]), ~bits.lt64(hi, lo, *tables["service"])
        if self.size.unequal:  # the upper part of a vertex's share of the words goes to its alias
            vertex = jnp.where(service & (hi >= tables["own"][vertex]), tables["alias"][vertex], vertex)
        if self.d > 2:
            kind = jnp.where(arrival, np.int32(1), jnp.where(service, np.int32(-1), np.int32(0)))
            return kind, (vertex, *places), tie
        swap = arrival & (tie >= np.uint32(2**31))
        place = places[0] if places else graph_draw.OWN
        return jnp.where(swap, ~vertex, vertex), jnp.where(arrival, place, jnp.where(service, _SERVICE, _NOTHING))

    def null(self, tables: Any) -> Any:
        if self.d > 2:
            return np.int32(0), (np.int32(0),) * self.d, np.uint32(0)
        return np.int32(0), _NOTHING

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        q, highest, arrivals, lost = state
        replicas = q.shape[1]
        if q.size >= 2**31:
            raise ValueError(f"n times the block of replicas must be below 2**31; got {q.shape[0]} times {replicas}; "
                             f"use block={(2**31 - 1) // q.shape[0]} or less")
        lane = jnp.arange(replicas, dtype=np.int32)
        flat = q.reshape(-1)

        def lengths_of(servers: list[Any]) -> list[Any]:
            return graph_draw.take_each(flat, [server * np.int32(replicas) + lane for server in servers])

        if self.d > 2:
            kind, (own, *places), word = mark
            arrival, service = kind > 0, kind < 0
            servers = [own, *(graph_draw.look_up(tables, self.size, place, own) for place in places)]
            here = [None, *(place != graph_draw.ABSENT if self.size.absent else None for place in places)]
            lengths = lengths_of(servers)
            shortest, at_shortest = _choose(servers, lengths, here, word)
            chosen, length = jnp.where(arrival, at_shortest, own), jnp.where(arrival, shortest, lengths[0])
        else:
            first, place = mark
            arrival, service = place > _SERVICE, place == _SERVICE
            own = first ^ (first >> np.int32(31))
            # at d = 1 its own length, twice
            other = jnp.where(place >= 0, graph_draw.look_up(tables, self.size, place, own), own) if self.d == 2 else own
            chosen, (length, asked) = own, lengths_of([own, other])
            if self.d == 2:
                swap = (asked < length) | ((asked == length) & (first < 0))  # at equal lengths by the sign
                chosen, length = jnp.where(swap, other, own), jnp.minimum(asked, length)
        up, down, stay = (np.array(step, q.dtype) for step in (1, -1, 0))
        full = arrival & (length >= self.buffer) if self.buffer is not None else jnp.zeros_like(arrival)
        after = length + jnp.where(arrival & ~full, up, jnp.where(service & (length > stay), down, stay))
        flat = graph_draw.put(flat, chosen * np.int32(replicas) + lane, after)
        if self.buffer is not None:
            lost = lost + full.astype(np.int32)
        return flat.reshape(q.shape), jnp.maximum(highest, after.astype(np.int32)), arrivals + arrival.astype(np.int32), lost

    def counts(self, state: Any) -> jax.Array:
        levels = jnp.arange(1, self.levels + 1, dtype=state[0].dtype)
        return jax.lax.map(lambda level: jnp.sum((state[0] >= level).astype(np.int32), axis=0, dtype=np.int32), levels)

    def tail(self, counts: Any) -> Any:
        return counts

    def steady(self) -> Steady:
        n, load = self.n, self.n * self.arrival_rate / float(self._services())
        if self.buffer is None and load >= 1:
            raise ValueError("a steady state needs fewer arrivals than services, or a buffer; got "
                             f"{n * self.arrival_rate:g} arrivals and {float(self._services()):g} services per unit time; "
                             "lower arrival_rate or give a buffer")
        if self.buffer is None and self.size.unequal:
            lone = np.ones(n, bool) if self.d == 1 else np.zeros(n, bool) if self.graph.degree is None else self.graph.degree == 0
            lost = np.flatnonzero(self.service_rates <= np.where(lone, self.arrival_rate, 0.0))
            if lost.size:
                raise ValueError("a steady state needs service_rates above 0, and above arrival_rate at a vertex that asks no "
                                 f"other; got {self.service_rates[lost[0]]:g} at vertex {lost[0]}; raise it or give a buffer")
        crowd = math.inf
        if load < 1:  # twice the complete graph's mean queue
            crowd = 1 + math.ceil(2 * (load / (1 - load) if self.d == 1 else np.sum(load ** exponents(self.d, 64))))
        rates = None if self.size.unequal else (1.0,)
        return Steady(n * self.arrival_rate, rates, lossless=self.buffer is None,
                      starts=(None, np.full(n, int(min(crowd, self.buffer or crowd)))))

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        q, highest, arrivals, lost = state
        return {"arrivals": arrivals, "lost": lost}, (q, highest, jnp.zeros_like(arrivals), jnp.zeros_like(lost))

    def overflow(self, state: Any) -> jax.Array:
        return state[1] > self.levels  # seen before a lane can wrap: levels are below its range

    def grow(self, state: Any) -> tuple[Self, Any]:
        model = replace(self, levels=2 * self.levels)
        return model, (state[0].astype(model.lane), *state[1:])


def _choose(servers: list[Any], lengths: list[Any], here: list[Any], word: Any) -> tuple[Any, Any]:
    """The least length and a server that has it, uniform among the tied ones by one word; `here` is False for candidates
    that a vertex of low degree lacks, None where there is always one (the first, its own vertex, always is)."""
    shortest = lengths[0]
    for length, there in zip(lengths[1:], here[1:], strict=True):
        shortest = jnp.minimum(shortest, length if there is None else jnp.where(there, length, shortest))
    ties = [length == shortest if there is None else there & (length == shortest)
            for length, there in zip(lengths, here, strict=True)]
    count = sum((tie.astype(np.uint32) for tie in ties[1:]), ties[0].astype(np.uint32))
    left = bits.mulhi32(word, count)  # the tie to take, counted from the first
    chosen = servers[0]
    taken = jnp.zeros_like(ties[0])
    for server, tie in zip(servers, ties, strict=True):
        found = tie & (left == 0) & ~taken
        chosen = jnp.where(found, server, chosen)
        taken = taken | found
        left = left - (tie & ~taken).astype(np.uint32)
    return shortest, chosen


def _rates(given: Any, n: int) -> np.ndarray:
    rates = _check.reals(given)
    if rates is None or rates.shape != (n,) or not np.all(np.isfinite(rates)) or rates.min() < 0 or rates.max() == 0:
        shape = "" if rates is None else f"shape {rates.shape}, "
        raise ValueError(f"service_rates must be n = {n} finite rates >= 0, not all 0; got {shape}{_check.shown(given)}")
    return rates.astype(np.float64)
