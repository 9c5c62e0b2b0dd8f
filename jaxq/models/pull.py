"""Multi-router PULL: servers that become idle tell a router, which sends its customers to those servers.

n servers in pools, Poisson arrivals of total rate n lambda, each at one of R routers, uniformly. A server that becomes idle
sends a pull message to a uniform router. A customer goes to the server of a uniform message of its router, which is used
up; if there is none, to a server uniform among all n, where it waits if the server is busy and is lost if its buffer is
full. R = 1 is join-idle-queue with one dispatcher.

Servers of one pool, length and message are exchangeable: the state is their numbers and the cost of a tick does not depend
on n. Its layout is in `pull_classes`, the closed theory in `jaxq.pull_theory`. Source: Stolyar 2017, arXiv:1512.07873.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits, pull_theory
from ..chain import Steady
from . import pull_classes, pull_start
from .pools import Pooled, divide, listed, type_bounds, word_size
from .pull_classes import ARRIVAL, ARRIVED, BUSY, COUNTERS, FIELD, FLAGS, FULL, MAX_CLASSES, NONE, SENDS, Classes


@dataclass(frozen=True)
class Pull(Pooled, leaves=("n", "pools", "arrival_rate")):
    """Multi-router PULL on n servers; `arrival_rate` lambda per server and unit time.

    Args:
      n: number of servers, 1 <= n < 2**31; n * fraction must be a whole number for every pool.
      pools: list of `Pool`, fractions summing to 1.
      routers: their number R >= 1.
      arrival_rate: lambda > 0 per server, in the unit of the pools' rates. At lambda >= sum beta_j mu_j with a pool that
        has no buffer the queues grow; the chain runs, the stationary theory refuses.
      messages: "withdraw": the message of a server made busy by another router is deleted; "stale": it stays, its use may
        find the server busy or full, and a server has at most one outstanding message.
      levels: customers a server without a buffer holds in the state, grown when needed; never changes a result.

    Initial states for `simulate`: None (empty); one list of integer tail counts for each pool, such as [[7, 2], [3]]
    (servers of the pool with at least 1, 2, ... customers); idle servers have their messages at uniform routers, drawn by
    each replica for itself. Or a whole vector of `counts`, (states,).

    Counts, (states,): the number of servers of each class (`classes.kept`), all but the idle ones with their message at router 0.
    Counters: arrivals, waited (joined a busy server), lost (buffer full), messages (sent; not the first ones).

    Raises ValueError for parameters outside these ranges. Source: arXiv:1512.07873.

    Example::

        >>> models = [jaxq.Pull(2, [jaxq.Pool(1.0, buffer=1)], routers, arrival_rate=0.8) for routers in (1, 2)]
        >>> [round(float(jaxq.exact.stationary(model).mean_queue_length), 4) for model in models]  # R = 1: Erlang's formula
        [0.5361, 0.4944]
    """

    n: Any
    pools: Any
    routers: int
    arrival_rate: Any
    messages: str = "withdraw"
    levels: int = 0
    buffers: tuple[int | None, ...] = field(init=False, repr=False, default=())
    size: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        n = self.n if _check.is_traced(self.n) else _check.integer("n", self.n, 1, 2**31 - 1, "give the number of servers")
        pools = listed(self.pools)
        routers = _check.integer("routers", self.routers, 1, MAX_CLASSES)
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per server")
        _check.choice("messages", self.messages, ("withdraw", "stale"))
        concrete = not any(map(_check.is_traced, jax.tree.leaves((n, tuple(pools), rate))))
        if concrete:
            pools = [replace(pool, fraction=part / n) for pool, part in zip(pools, divide(n, pools), strict=True)]
        for name, value in (("n", n), ("pools", tuple(pools)), ("routers", routers), ("arrival_rate", rate),
                            ("levels", _check.integer("levels", self.levels, 0, _check.MOST_LEVELS) or 8),
                            ("buffers", tuple(pool.buffer for pool in pools)),
                            ("size", word_size(n, pools, routers, rate) if concrete else "")):
            object.__setattr__(self, name, value)
        pull_classes.check(self.depths, routers, self.stale)

    @property
    def stale(self) -> bool:
        """Messages of busy servers stay."""
        return self.messages == "stale"

    @property
    def classes(self) -> Classes:
        """The classes of servers that the counts count (`pull_classes`)."""
        return pull_classes.classes(self.depths, self.routers, self.stale)

    # the exact chain

    @property
    def words(self) -> int:
        return 2 if self.size == "packed" else 4

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        bounds = type_bounds(self, clock)
        if self.size == "packed":  # the type is read off 32 bits: round to a multiple of 2**32
            bounds = [min((value + 2**31 >> 32) << 32, 2**64 - 1) for value in bounds]
        hi, lo = zip(*map(bits.split64, bounds), strict=True)
        return {"n": np.uint32(self.n), "servers": self.servers.astype(np.uint32), "bound_hi": np.array(hi),
                "bound_lo": np.array(lo)}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        return pull_start.start(self, initial, keys)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        hi, lo, *rest = words
        routers, packed = np.uint32(self.routers), self.size == "packed"
        before = [hi < high if packed else bits.lt64(hi, lo, high, low) for high, low in
                  zip(tables["bound_hi"], tables["bound_lo"], strict=True)]
        within, start, stride, ahead = tables["n"], jnp.uint32(0), jnp.uint32(1), jnp.uint32(0)
        for pool, servers in enumerate(tables["servers"]):  # a service in the last pool whose bound is passed
            within, start, stride = (jnp.where(before[pool + 1], old, new) for old, new in
                                     ((within, servers), (start, ahead), (stride, np.uint32(self.classes.stride(pool)))))
            ahead = ahead + servers
        if packed:  # what is left of a word above the router is still uniform
            router, pick = bits.mulhi32(lo, routers), [lo * routers]
        else:
            router, *pick = bits.next_rank(rest[0], rest[1], routers)
        rank = bits.below(pick, within)
        arrival = before[0]
        server = jnp.where(arrival | ~before[1], start + rank, tables["n"])
        move = jnp.where(arrival, router.astype(np.int32), -((router + np.uint32(1)) * stride).astype(np.int32))
        return server.astype(np.int32), move, tuple(pick) if self._picks else ()

    @property
    def _picks(self) -> bool:
        """Which of a router's messages is used matters: not where they all stand for idle servers of one pool."""
        return self.stale or len(self.buffers) > 1

    def null(self, tables: Any) -> Any:
        picks = (1 if self.size == "packed" else 2) if self._picks else 0
        return tables["n"].astype(np.int32), np.int32(-1), (np.uint32(0),) * picks

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        ends, counters = state
        server, move, pick = mark
        classes, pools = self.classes, range(len(self.buffers))
        router = jax.lax.broadcasted_iota(np.int32, (self.routers, 1), 0)
        chosen = router == move[None]  # nowhere at a service
        starts, held = [], []  # of every pool: where the servers with a message at this router stand, and how many
        for pool in pools:
            first, stride = classes.first(pool), classes.stride(pool)
            edges = ends[first: first + self.routers * stride + 1: stride]
            starts.append(bits.total(jnp.where(chosen, edges[:-1], np.int32(0))))
            held.append(bits.total(jnp.where(chosen, edges[1:] - edges[:-1], np.int32(0))))
        messages = sum(held[1:], held[0])
        rank = jnp.zeros_like(messages)
        if pick:
            rank = bits.below(pick, messages.astype(np.uint32)).astype(np.int32)
            rank = bits.total(jnp.stack([rank, jnp.zeros_like(rank)]))  # else XLA multiplies again for every row below
        before = jnp.zeros_like(messages)
        for pool in pools:  # a message there decides the server, else it is the uniform one of the mark
            here = (rank >= before) & (rank < before + held[pool])
            server = jnp.where(here, starts[pool] + rank - before, server)
            before = before + held[pool]

        first_facts, changes = classes.facts(tuple(buffer is None for buffer in self.buffers))
        facts = np.int32(first_facts) + bits.total(jnp.where(ends <= server[None], changes[:, None], np.int32(0)))
        at, arrived, counted = facts & FIELD, facts >> ARRIVED & FIELD, facts >> FLAGS
        arrival = move >= 0
        if self.stale:  # a server that is found without its message keeps it
            arrived = jnp.where(messages > 0, arrived, at - (counted & FULL == 0).astype(np.int32))
        served = at + jnp.where(counted & BUSY == 0, np.int32(0), jnp.where(counted & SENDS != 0, -move, np.int32(1)))
        low, high = jnp.where(arrival, arrived, at), jnp.where(arrival, at, served)
        row = jax.lax.broadcasted_iota(np.int32, (classes.size, 1), 0)
        step = jnp.where(arrival, np.int32(1), np.int32(-1))
        ends = ends + jnp.where((row >= low[None]) & (row < high[None]), step[None], np.int32(0))
        counted = jnp.where(arrival, counted & BUSY | ARRIVAL, counted & SENDS)
        which = jax.lax.broadcasted_iota(np.int32, (len(COUNTERS), 1), 0)
        return ends, counters + (counted[None] >> which & np.int32(1))

    def counts(self, state: Any) -> jax.Array:
        ends = state[0]
        return jnp.concatenate([ends[:1], ends[1:] - ends[:-1]])[self.classes.kept]

    def occupancy(self, counts: np.ndarray) -> np.ndarray:
        """Servers of every class, (classes, ...), from integer counts (states, ...)."""
        return self.classes.all(counts, self.servers)

    def state_of(self, counts: np.ndarray) -> Any:
        ends = np.cumsum(self.occupancy(counts), axis=0).astype(np.int32)
        return ends, np.zeros((len(COUNTERS), ends.shape[1]), np.int32)

    def tail(self, counts: Any) -> Any:
        length = self.classes.length[self.classes.kept]
        busy = np.flatnonzero(length)
        return (length[busy] >= np.arange(1, max(self.depths) + 1)[:, None]).astype(np.int32) @ counts[busy]

    def busy(self, counts: Any) -> np.ndarray:
        """Busy fraction of each pool, (pools, ...), from integer counts (states, ...)."""
        totals = self.pool_tails(np.asarray(counts))[:, 0]
        return totals / self.servers.reshape(-1, *[1] * (totals.ndim - 1))

    def outstanding(self, counts: Any) -> np.ndarray:
        """Messages of each pool's servers at each router, (pools, routers, ...), from integer counts (states, ...)."""
        classes, servers = self.classes, self.occupancy(counts)
        return np.array([[servers[(classes.pool == pool) & (classes.router == router)].sum(axis=0)
                          for router in range(self.routers)] for pool in range(len(self.buffers))])

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        ends, counters = state
        kept = jnp.arange(len(COUNTERS))[:, None] == COUNTERS.index("overflow")  # sticky
        counted = dict(zip(COUNTERS, counters, strict=True))
        del counted["overflow"]
        return counted, (ends, jnp.where(kept, counters, np.int32(0)))

    def overflow(self, state: Any) -> jax.Array:
        return state[1][COUNTERS.index("overflow")] != 0

    def grow(self, state: Any) -> tuple[Self, Any]:
        model = self.at_levels(2 * self.levels)
        ends, counters = state
        new = model.classes
        old = np.cumsum(new.length <= np.array(self.depths)[new.pool])  # old classes up to each new one
        return model, (jnp.concatenate([jnp.zeros_like(ends[:1]), ends])[old], counters)

    def pool_tails(self, counts: Any) -> Any:
        length, pool = (part[self.classes.kept] for part in (self.classes.length, self.classes.pool))
        levels = np.arange(1, max(self.depths) + 1)
        mine = (pool == np.arange(len(self.buffers))[:, None])[:, None, :] & (length >= levels[:, None])
        return np.tensordot(mine.astype(np.int32), counts, 1)

    def steady(self) -> Steady:
        return pull_start.steady(self)

    # the population process

    @property
    def jumps(self) -> np.ndarray:
        return self.classes.jumps

    @property
    def class_matrix(self) -> np.ndarray:
        return self.classes.matrix

    @property
    def class_offset(self) -> np.ndarray:
        return self.classes.all(np.zeros(self.jumps.shape[1], int), self.servers) / self.n

    def rates(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        classes = self.classes
        start, _, kind = classes.moves
        w, held = self._everyone(x)
        # less than half a message is none: the last class of a pool is a difference and carries its rounding
        none = held <= jnp.maximum(0.5 * inverse_n, 64 * jnp.finfo(x.dtype).eps)
        share = jnp.where(none, 0.0, 1.0 / jnp.where(none, 1.0, held))
        used, joined, served, sent = (start[kind == k] for k in range(4))
        mu = jnp.stack([jnp.asarray(pool.rate, x.dtype) for pool in self.pools])[classes.pool]
        return jnp.concatenate([self.arrival_rate / self.routers * w[used] * share[classes.router[used]],
                                self.arrival_rate * jnp.mean(none.astype(x.dtype)) * w[joined],
                                mu[served] * w[served], mu[sent] * w[sent] / self.routers])

    def held(self, x: jax.Array) -> jax.Array:
        """(routers,) messages at each router, per server of all n, at density x. The mean field is smooth where all are
        positive, and has no meaning beyond: there a router without messages sends customers anywhere."""
        return self._everyone(x)[1]

    def margin(self, x: jax.Array) -> Any:
        return jnp.min(self.held(x))

    def empty(self) -> np.ndarray:
        return pull_start.split_idle(self, np.array([pool.fraction for pool in self.pools]), np.zeros(len(self.pools)))

    def _everyone(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Densities (classes,) of all classes, the ones that are not counted included, and of the messages (routers,)."""
        classes = self.classes
        fractions = jnp.stack([jnp.asarray(pool.fraction, x.dtype) for pool in self.pools])
        home = fractions.at[classes.pool[classes.kept]].add(-x)
        w = jnp.concatenate([x, home])[np.argsort(np.append(classes.kept, classes.home))]
        holders = np.flatnonzero(classes.router != NONE)
        return w, jnp.zeros(self.routers, x.dtype).at[classes.router[holders]].add(w[holders])

    def at_levels(self, levels: int) -> Self:
        return replace(self, levels=levels) if None in self.buffers else self

    def guess(self) -> np.ndarray:
        """Densities (states,) of the equilibrium as n grows: nobody waits, the messages are split equally over the routers.

        Raises ValueError at lambda >= sum beta_j mu_j.
        """
        busy = pull_theory.equilibrium(self.pools, self.arrival_rate).nu
        return pull_start.split_idle(self, np.array([pool.fraction for pool in self.pools]) - busy, busy)
