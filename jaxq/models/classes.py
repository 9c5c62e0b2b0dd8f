"""Join the shortest of d sampled queues where servers are not alike: pools with their own service rates and buffers.

n servers in pools, Poisson arrivals of total rate n lambda; each customer samples a list of d servers, uniform among all n
(independent, or distinct), and joins a shortest queue of the list, ties uniform over the places of the list: a server
sampled twice holds two places. It is lost if that server's buffer is full, even if another server has room.

The state is x[j, i], the servers of pool j with more than i customers. With the servers of a pool ranked by decreasing
length the one of rank m has #{i : m < x[j, i]} customers, so the chain lumps exactly and a tick costs the same at every n.

The law of a customer: relabelling servers of one length leaves the law of the list and the rule for ties as they are, so
given the least sampled length i the customer joins a server uniform among all n that have exactly i customers. With
w(y) = P(all d sampled servers lie in a given fraction y), and S_{j,i} the servers of pool j with at least i customers as a
fraction of all n, it joins pool j at length i with probability

    (w(S_i) - w(S_{i+1})) (S_{j,i} - S_{j,i+1}) / (S_i - S_{i+1}),    S_i = sum_j S_{j,i},

a polynomial, for the quotient of w is one: a sum of products, which the rates use and which has no 0/0.

Sources: Vvedenskaya, Dobrushin and Karpelevich 1996 for like servers; Mukhopadhyay and Mazumdar 2016,
doi:10.1109/TCNS.2015.2428331, for pools; when the queues are stable: Bramson 2011, arXiv:1010.1749.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits
from ..chain import Steady
from . import classes_start, ranks
from .pools import Pooled, divide, listed, tail_classes, type_bounds

MAX_D = 8
_NARROW = 10**6  # n up to which 32 bits give a server, within 1e6/2**32 = 2e-4 of its probability


@dataclass(frozen=True)
class SupermarketClasses(Pooled, leaves=("n", "pools", "arrival_rate")):
    """Join the shortest of d sampled queues on n servers in pools; `arrival_rate` lambda per server and unit time.

    Args:
      n: number of servers, 1 <= n < 2**31; n * fraction must be a whole number for every pool.
      pools: list of `Pool`, fractions summing to 1.
      d: servers sampled by each customer among all n, 1 <= d <= 8.
      arrival_rate: lambda > 0 per server, in the unit of the pools' rates. Queues grow where lambda b**d >= sum beta_j mu_j
        over some pools without buffers that are b of the servers together, even if lambda is below the sum over all pools;
        the chain runs, `fixed_point` refuses.
      replacement: d independent servers, or d distinct ones.
      levels: customers a server without a buffer holds in the state, at least those of the largest buffer, grown when needed;
        never changes a result.

    Initial states for `simulate`: None (empty); one list of integer tail counts for each pool, such as [[7, 2], [3]]
    (servers of the pool with at least 1, 2, ... customers); or a whole vector of `counts`.

    Counts, (states,): tail counts of the first pool, then of the second, ... (`split` takes them apart).
    Counters: arrivals, lost (the buffer of the server joined was full).

    Raises ValueError for parameters outside these ranges. Source: doi:10.1109/TCNS.2015.2428331.

    Example::

        >>> pools = [jaxq.Pool(0.5, rate=1.5, buffer=3), jaxq.Pool(0.5, rate=0.5, buffer=3)]
        >>> model = jaxq.SupermarketClasses(2, pools, d=2, arrival_rate=0.8, replacement=False)
        >>> same = jaxq.TwoQueues(capacity=3, arrival_rate=1.6, service_rates=(1.5, 0.5))
        >>> [round(float(jaxq.exact.stationary(either).mean_queue_length), 4) for either in (model, same)]
        [1.4549, 1.4549]
    """

    n: Any
    pools: Any
    d: int
    arrival_rate: Any
    replacement: bool = True
    levels: int = 0
    buffers: tuple[int | None, ...] = field(init=False, repr=False, default=())
    wide: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        n = self.n if _check.is_traced(self.n) else _check.integer("n", self.n, 1, 2**31 - 1, "give the number of servers")
        pools = listed(self.pools)
        d = _check.integer("d", self.d, 1, MAX_D, "jaxq.Supermarket takes a larger d for like servers")
        if isinstance(n, int) and d > n and not self.replacement:
            raise ValueError(f"d must be at most n without replacement; got d={d} with n={n}; "
                             "sample with replacement or use a smaller d")
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per server")
        if not any(map(_check.is_traced, jax.tree.leaves((n, tuple(pools), rate)))):
            pools = [replace(pool, fraction=part / n) for pool, part in zip(pools, divide(n, pools), strict=True)]
        buffers = tuple(pool.buffer for pool in pools)
        wanted = 8 if type(self.levels) is int and self.levels == 0 else self.levels
        levels = max(_check.integer("levels", wanted, 1, _check.MOST_LEVELS), *(buffer or 1 for buffer in buffers))
        for name, value in (("n", n), ("pools", tuple(pools)), ("d", d), ("arrival_rate", rate),
                            ("replacement", _check.flag("replacement", self.replacement)), ("levels", levels), ("buffers", buffers),
                            ("wide", isinstance(n, int) and n > _NARROW)):
            object.__setattr__(self, name, value)

    def split(self, counts: Any) -> list[Any]:
        """The tails (levels, ...) of every pool from counts or densities (states, ...), with as many levels for the pools without
        buffers as they have (`fixed_point` may have taken more than `levels`). Raises ValueError where none fits.

        Example::

            >>> pools = [jaxq.Pool(0.5, rate=2.0, buffer=2), jaxq.Pool(0.5, rate=1.0, buffer=1)]
            >>> jaxq.SupermarketClasses(10, pools, d=2, arrival_rate=0.7).split([5, 2, 3])
            [[5, 2], [3]]
        """
        limited = sum(buffer or 0 for buffer in self.buffers)
        levels = max(1, (len(counts) - limited) // max(1, self.buffers.count(None)))
        ends = np.cumsum((0, *(buffer or levels for buffer in self.buffers))).tolist()
        if ends[-1] != len(counts):
            raise ValueError("counts must be the tails of one pool after the other, with one number of levels for all without a "
                             f"buffer, such as {ends[-1]} rows; got {len(counts)}")
        return [counts[first:last] for first, last in itertools.pairwise(ends)]

    # the exact chain

    @property
    def words(self) -> int:
        return 2 + self.d * (2 if self.wide else 1) + (self.d > 1)

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        hi, lo = zip(*map(bits.split64, type_bounds(self, clock)), strict=True)
        servers = self.servers
        return {"n": np.uint32(self.n), "servers": servers.astype(np.uint32),
                "start": (np.cumsum(servers) - servers).astype(np.uint32), "bound_hi": np.array(hi), "bound_lo": np.array(lo)}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        return classes_start.start(self, initial, keys[0].size)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        n, (hi, lo, *rest) = tables["n"], words
        arrival, *before = (bits.lt64(hi, lo, *bound) for bound in zip(tables["bound_hi"], tables["bound_lo"], strict=True))
        start, within = jnp.uint32(0), n
        for pool, ahead in enumerate(before):  # a service in the last pool whose bound is passed
            start, within = (jnp.where(ahead, old, new) for old, new in
                             ((start, tables["start"][pool]), (within, tables["servers"][pool])))
        bounds = [within] + [n - np.uint32(0 if self.replacement else k) for k in range(1, self.d)]
        if self.wide:
            picks = [bits.mulhi64(rest[2 * k], rest[2 * k + 1], bound) for k, bound in enumerate(bounds)]
        else:
            picks = [bits.mulhi32(rest[k], bound) for k, bound in enumerate(bounds)]
        served = jnp.where(before[0], n, start + picks[0])
        sampled = picks if self.replacement else ranks.floyd(picks, n)
        first, *others = (jnp.where(arrival, server, served).astype(np.int32) for server in sampled)
        return jnp.where(arrival, first, ~first), *others, *rest[len(rest) - (self.d > 1):]

    def null(self, tables: Any) -> tuple[Any, ...]:
        nobody = tables["n"].astype(np.int32)
        return ~nobody, *(nobody,) * (self.d - 1), *(np.uint32(0),) * (self.d > 1)

    def apply(self, tables: Any, state: Any, mark: tuple[jax.Array, ...]) -> Any:
        x, arrivals = state
        pool, level = self._rows
        start, servers = (tables[name][pool][:, None] for name in ("start", "servers"))
        more = x[: sum(self.depths)].astype(np.uint32)
        arrival = mark[0] >= 0
        # the list; at a service its places all hold the one server, at a null tick n, which is none
        listed = [place.astype(np.uint32) for place in (jnp.where(arrival, mark[0], ~mark[0]), *mark[1: self.d])]
        # below a pool's start the difference wraps around, above its end it is no smaller than its servers
        lengths = [bits.total(server[None] - start[: len(more)] < more) for server in listed]
        length, server = functools.reduce(jnp.minimum, lengths), listed[0]
        if self.d > 1:
            tied = [(other == length).astype(np.uint32) for other in lengths]
            place, seen = bits.mulhi32(mark[-1], functools.reduce(jnp.add, tied)), jnp.zeros_like(tied[0])
            for other, shortest in zip(listed, tied, strict=True):
                server = jnp.where((shortest > 0) & (seen == place), other, server)
                seen = seen + shortest
            server = jnp.max(jnp.stack([server, jnp.zeros_like(server)]), axis=0)  # else XLA chooses again for every row
        target = jnp.where(arrival, length, length - np.int32(1))
        moved = (server[None] - start < servers) & (level[:, None] == target[None])
        step = jnp.where(arrival, np.int32(1), np.int32(-1))
        return x + jnp.where(moved, step[None], np.int32(0)), arrivals + arrival.astype(np.int32)

    @property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Pool and level of every row of the state: the counts, then for each pool the arrivals at servers of all its levels."""
        pools = np.arange(len(self.depths))
        return (np.append(np.repeat(pools, self.depths), pools),
                np.concatenate([*map(np.arange, self.depths), self.depths]).astype(np.int32))

    def counts(self, state: Any) -> jax.Array:
        return state[0][: sum(self.depths)]

    def state_of(self, counts: np.ndarray) -> Any:
        replicas = counts.shape[1]
        beyond = np.zeros((len(self.buffers), replicas), np.int32)
        return np.concatenate([counts.astype(np.int32), beyond]), np.zeros(replicas, np.int32)

    def tail(self, counts: Any) -> Any:
        pool, level = self._rows
        levels = np.arange(max(self.depths), dtype=np.int32)
        return (level[: len(pool) - len(self.buffers)] == levels[:, None]).astype(np.int32) @ counts

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        x, arrivals = state
        lost = np.append(np.zeros(sum(self.depths), bool), [buffer is not None for buffer in self.buffers])[:, None]
        zero = np.int32(0)
        counters = {"arrivals": arrivals, "lost": jnp.sum(jnp.where(lost, x, zero), axis=0, dtype=np.int32)}
        return counters, (jnp.where(lost, zero, x), jnp.zeros_like(arrivals))

    def overflow(self, state: Any) -> jax.Array:
        unbounded = np.array([buffer is None for buffer in self.buffers])[:, None]
        return jnp.any((state[0][sum(self.depths):] != 0) & unbounded, axis=0)

    def grow(self, state: Any) -> tuple[Self, Any]:
        model = self.at_levels(2 * self.levels)
        x, arrivals = state
        tails = [jnp.pad(jnp.asarray(tail), ((0, depth - len(tail)), (0, 0)))
                 for tail, depth in zip(self.split(self.counts(state)), model.depths, strict=True)]
        return model, (jnp.concatenate([*tails, x[sum(self.depths):]]), arrivals)

    def pool_tails(self, counts: Any) -> Any:
        return np.stack([np.pad(tail, ((0, max(self.depths) - len(tail)), *((0, 0),) * (np.ndim(tail) - 1)))
                         for tail in self.split(np.asarray(counts))])

    def steady(self) -> Steady:
        return classes_start.steady(self)

    # the population process

    @property
    def jumps(self) -> np.ndarray:
        up = np.eye(sum(self.depths), dtype=np.int32)
        return np.concatenate([up, -up])

    @property
    def class_matrix(self) -> np.ndarray:
        return tail_classes(self.depths)

    @property
    def class_offset(self) -> np.ndarray:
        return np.concatenate([np.eye(1, depth + 1)[0] * servers / self.n
                               for depth, servers in zip(self.depths, self.servers, strict=True)])

    def rates(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        tails = [jnp.concatenate([jnp.asarray(pool.fraction, x.dtype)[None], tail])
                 for pool, tail in zip(self.pools, self.split(x), strict=True)]
        longest = max(self.depths) + 1
        everyone = functools.reduce(jnp.add, [jnp.pad(tail, (0, longest - len(tail))) for tail in tails])
        chance = self.arrival_rate * self._chance(everyone[:-1], everyone[1:], inverse_n)
        joined = [chance[: len(tail) - 1] * (tail[:-1] - tail[1:]) for tail in tails]
        served = [pool.rate * (tail[1:] - jnp.append(tail[2:], jnp.zeros(1, x.dtype)))
                  for pool, tail in zip(self.pools, tails, strict=True)]
        return jnp.concatenate(joined + served)

    def _chance(self, a: jax.Array, b: jax.Array, inverse_n: Any) -> jax.Array:
        """(w(a) - w(b)) / (a - b), w(y) the chance that all d sampled servers lie in a fraction y, without a division by
        a - b: the quotients q_k of w_k(y) = prod_{m<k} (y - m e)/(1 - m e) follow from q_{k-1} and w_{k-1}(b)."""
        quotient, below = jnp.zeros_like(a), jnp.ones_like(b)
        for k in range(self.d):
            taken = 0.0 if self.replacement else k * inverse_n
            quotient = (quotient * (a - taken) + below) / (1 - taken)
            below = below * (b - taken) / (1 - taken)
        return quotient

    def at_levels(self, levels: int) -> Self:
        return replace(self, levels=levels) if None in self.buffers else self

    def guess(self) -> np.ndarray:
        """Densities (states,) as if the pools were alike, at the load of the whole system: exact for one pool without a
        buffer. All servers full where the queues grow."""
        fractions, rates = (np.array([float(getattr(pool, name)) for pool in self.pools]) for name in ("fraction", "rate"))
        if classes_start.overloaded(self):
            return np.repeat(fractions, self.depths)
        load = float(self.arrival_rate / (fractions @ rates))
        profile = [load if load < 1 else 0.5]
        while len(profile) < max(self.depths):
            profile.append(profile[0] * profile[-1] ** self.d)
        return np.concatenate([fraction * np.array(profile[:depth])
                               for fraction, depth in zip(fractions, self.depths, strict=True)])
