"""The supermarket model, join the shortest of d queues, in occupancy form.

n servers of rate 1, Poisson arrivals of total rate n lambda; each customer samples d servers uniformly, with or without
replacement, and joins the shortest, ties uniform. The state is x[i], the number of servers with more than i customers.
With servers ranked by decreasing length, the server of rank m has #{i : m < x[i]} customers and the shortest of d sampled
servers is the one of largest rank: the chain lumps exactly and a tick costs the same at every n.

Sources: Vvedenskaya, Dobrushin and Karpelevich 1996; Mitzenmacher 2001, doi:10.1109/71.963420; heavy traffic
lambda_n = 1 - beta/eta_n: Eschenfeldt and Gamarnik, arXiv:1610.03522.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import _check, bits
from ..chain import PopulationModel, Steady, ceil_clock
from . import pools, ranks, supermarket_start
from .levels import LEVELS, choose_levels, exponents

MAX_D = 64            # sampled rank by rank up to here
MAX_FULL = 2**16      # d = n, join the shortest queue, up to here


@dataclass(frozen=True)
class Supermarket(PopulationModel, leaves=("n", "arrival_rate", "eta")):
    """Join the shortest of d sampled queues: n servers of rate 1, `arrival_rate` lambda per server and unit time.

    Args:
      n: number of servers, 1 <= n < 2**31.
      d: servers sampled by each customer: 1 <= d <= 64, or d = n <= 65536 (join the shortest queue of all).
      arrival_rate: lambda > 0 per server; the unit of time is the mean service time.
      replacement: d independent servers (True, as in the papers of the mean field) or d distinct ones.
      buffer: customers a server holds, the one in service included; arrivals to a full server are lost. None: unbounded.
      levels: rows of the state, grown when needed; a choice of speed that never changes a result. None: from the load.
      eta: the scale of T = eta (1 - S), set by `heavy_traffic`; not used by the chain.

    Initial states for `simulate`, (levels,): None (empty); integer tail counts x_1 >= x_2 >= ... (servers with at least i
    customers); or float fractions S_1 >= S_2 >= ..., rounded to n S_i half up (`heavy_traffic.tail_counts` makes counts from
    T). Counts, (states,): the tail counts of `levels` levels. Counters: arrivals, with a buffer also lost.

    Raises ValueError for parameters outside these ranges. Source: arXiv:1610.03522, section 2.

    Example::

        >>> model = jaxq.Supermarket(n=100, d=2, arrival_rate=0.9)
        >>> jaxq.fixed_point(model).tail[:3].round(4).tolist()  # 0.9**(2**i - 1)
        [0.9, 0.729, 0.4783]
    """

    n: Any
    d: int
    arrival_rate: Any
    replacement: bool = True
    buffer: int | None = None
    levels: int = 0
    eta: Any = None
    size: str = field(init=False, repr=False, default="")
    lane: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        n = self.n if _check.is_traced(self.n) else _check.integer("n", self.n, 1, 2**31 - 1, "give the number of servers")
        d = _check.integer("d", self.d, 1, hint="give the number of servers a customer samples")
        known = isinstance(n, int)
        if known and d > MAX_D and (d != n or n > MAX_FULL):
            raise ValueError(f"d must be at most {MAX_D}, or equal to n and at most {MAX_FULL}; got d={_check.shown(d)} with "
                             f"n={n}; use a smaller d")
        if known and d > n and not self.replacement:
            raise ValueError(f"d must be at most n without replacement; got d={d} with n={n}; "
                             "sample with replacement or use a smaller d")
        rate = _check.real("arrival_rate", self.arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per server")
        if self.buffer is not None:
            _check.integer("buffer", self.buffer, 1, 10**6, "it counts the customer in service; None is unbounded")
        concrete = known and isinstance(rate, float)
        eta = None if self.eta is None else _check.real("eta", self.eta, 0.0, open_low=True)
        levels = self.buffer or _check.integer("levels", self.levels, 0, _check.MOST_LEVELS) or (
            choose_levels(n, d, rate) if concrete else LEVELS[-1])
        for name, value in (("n", n), ("d", d), ("arrival_rate", rate), ("levels", levels), ("eta", eta),
                            ("replacement", _check.flag("replacement", self.replacement)),
                            ("size", ranks.size_class(n, d, rate) if concrete else ""),
                            ("lane", "int16" if known and n < 2**15 and self.buffer is None else "int32")):
            object.__setattr__(self, name, value)

    @classmethod
    def heavy_traffic(cls, n: int, d: int, beta: float, alpha: float | None = None, *, eta: float | None = None,
                      replacement: bool = True, buffer: int | None = None) -> Self:
        """The model at lambda_n = 1 - beta/eta_n with eta_n = n**alpha (alpha = 1/2 unless given), or with `eta` itself.

        lambda_n is per server, in units of the service rate; beta, alpha and eta are pure numbers.
        Raises ValueError unless 0 < beta < eta, eta >= 1 and only one of alpha and eta is given. Source: arXiv:1610.03522.

        Example::

            >>> model = jaxq.Supermarket.heavy_traffic(n=10_000, d=2, beta=1.0, alpha=0.5)
            >>> model.eta, model.arrival_rate
            (100.0, 0.99)
        """
        _check.integer("n", n, 1, 2**31 - 1)
        if alpha is not None and eta is not None:
            raise ValueError(f"give one of alpha and eta; got alpha={_check.shown(alpha)} and eta={_check.shown(eta)}")
        if eta is None:
            eta = float(n) ** _check.real("alpha", 0.5 if alpha is None else alpha, 0.0, 2.0, open_low=True)
        eta = _check.real("eta", eta, 1.0)
        beta = _check.real("beta", beta, 0.0, open_low=True)
        if not beta < eta:
            raise ValueError(f"beta must be below eta, since lambda = 1 - beta/eta > 0; got beta={beta:g} with eta={eta:g}; "
                             "use a larger n or a smaller beta")
        return cls(n, d, 1.0 - beta / eta, replacement, buffer, eta=eta)

    # the exact chain

    @property
    def full(self) -> bool:
        """d = n beyond the rank-by-rank range: the shortest queue of all, by one word."""
        return self.d > MAX_D

    @property
    def words(self) -> int:
        if self.size == "packed":
            return 2
        if self.size == "wide":
            return 4 if self.full else 2 * self.d
        return 2 + (3 if self.full else self.d)

    def clock(self) -> float:
        return ceil_clock(self.n * (1 + Fraction(self.arrival_rate)))

    def tables(self, clock: float) -> dict[str, Any]:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        arrival = bits.threshold64(self.n * Fraction(self.arrival_rate), clock)
        service = 2**64 - bits.threshold64(self.n, clock)
        if self.size == "packed":  # the type is read off 32 bits: round to a multiple of 2**32
            arrival, service = ((value + 2**31 >> 32) << 32 for value in (arrival, service))
        tables = {"n": np.uint32(self.n), "arrival": bits.split64(arrival), "service": bits.split64(max(service, arrival))}
        if self.full:
            bounds = [bits.split64(value) for value in ranks.full_thresholds(self.n, self.replacement)]
            tables["shortest"] = tuple(np.array(part, np.uint32) for part in zip(*bounds, strict=True))
        return tables

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        tail = self.initial_tail(initial)
        model = self
        while model.buffer is None and model.levels < tail.size:
            model = replace(model, levels=2 * model.levels)
        if tail.size > model.levels:
            raise ValueError(f"initial must have no customers above the buffer of {self.buffer}; got {tail.size} levels")
        counts = np.zeros((model.levels, keys[0].size), model.lane)
        counts[: tail.size] = tail[:, None]
        return model, model.state_of(counts)

    def initial_tail(self, initial: Any) -> np.ndarray:
        """Integer tail counts (levels,) of what the user gave: None, counts, or fractions rounded to n S_i half up."""
        return supermarket_start.tail_counts(self.n, initial)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> jax.Array:
        n = tables["n"]
        picks, (hi, lo) = self._ranks(n, words, 1 if self.full else self.d)
        if self.full:
            below = [bits.lt64(*words[-2:], *bound).astype(np.uint32) for bound in zip(*tables["shortest"], strict=True)]
            shortest = n - 1 - jnp.sum(jnp.stack(below), axis=0, dtype=np.uint32)
        else:
            shortest = ranks.largest(picks, n, distinct=not self.replacement)
        if self.size == "packed":
            arrival, service = hi < tables["arrival"][0], hi >= tables["service"][0]
        else:
            arrival, service = bits.lt64(hi, lo, *tables["arrival"]), ~bits.lt64(hi, lo, *tables["service"])
        mark = jnp.where(arrival, shortest, ~jnp.where(service, picks[0], n))
        return mark.astype(np.int32).astype(self.lane)

    def _ranks(self, n: Any, words: Any, count: int) -> tuple[list[Any], tuple[Any, Any]]:
        """`count` ranks, the first below n, and the 64 bits for the type; distinct: rank k is below n - k."""
        bounds = [n - np.uint32(0 if self.replacement else k) for k in range(count)]
        picks = []
        if self.size == "packed":
            hi, lo = words
            for bound in bounds:
                rank, hi, lo = bits.next_rank(hi, lo, bound)
                picks.append(rank)
            return picks, (hi, lo)
        if self.size == "wide":  # what two ranks leave makes the type's word; one rank leaves both halves
            left = []
            for k, bound in enumerate(bounds):
                rank, high = bits.rank64(words[2 * k], words[2 * k + 1], bound)
                picks.append(rank)
                left.append(high)
            return picks, (left[0], left[1] if count > 1 else words[1] * bounds[0])
        return [bits.mulhi32(words[2 + k], bound) for k, bound in enumerate(bounds)], words[:2]

    def null(self, tables: Any) -> jax.Array:
        return (~tables["n"]).astype(np.int32).astype(self.lane)

    def apply(self, tables: Any, state: Any, mark: jax.Array) -> Any:
        x, arrivals = state
        zero, one, less = (jnp.full((), step, x.dtype) for step in (0, 1, -1))
        arrival = mark >= 0
        rank = jnp.where(arrival, mark, ~mark)
        level = jax.lax.broadcasted_iota(x.dtype, (x.shape[0], 1), 0)
        # a mask, for a kernel cannot slice; rows of zeros may follow
        length = jnp.sum(((rank[None] < x) & (level < self.levels)).astype(x.dtype), axis=0, dtype=x.dtype)
        target = jnp.where(arrival, length, length - one)
        return x + jnp.where(level == target[None], jnp.where(arrival, one, less)[None], zero), arrivals + arrival.astype(np.int32)

    def kernel(self) -> Self | None:
        if self.full:
            return None
        program = copy.copy(self)
        object.__setattr__(program, "lane", "int32")
        return program

    def counts(self, state: Any) -> jax.Array:
        return state[0][:-1]

    def state_of(self, counts: np.ndarray) -> Any:
        x = np.zeros((counts.shape[0] + 1, counts.shape[1]), self.lane)
        x[:-1] = counts
        return x, np.zeros(counts.shape[1], np.int32)

    def tail(self, counts: Any) -> Any:
        return counts

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        x, arrivals = state
        counters = {"arrivals": arrivals}
        if self.buffer is not None:  # the last row counts arrivals to full servers
            counters["lost"] = x[-1]
            x = jnp.concatenate([x[:-1], jnp.zeros_like(x[-1:])])
        return counters, (x, jnp.zeros_like(arrivals))

    def overflow(self, state: Any) -> jax.Array:
        last = state[0][-1] != 0
        return last if self.buffer is None else jnp.zeros_like(last)

    def grow(self, state: Any) -> tuple[Self, Any]:
        model = self.at_levels(2 * self.levels)
        x, arrivals = state
        more = jnp.zeros((model.levels - self.levels, x.shape[1]), x.dtype)
        return model, (jnp.concatenate([x, more]), arrivals)

    def steady(self) -> Steady:
        return supermarket_start.steady(self)

    # the population process

    @property
    def jumps(self) -> np.ndarray:
        up = np.eye(self.levels, dtype=np.int32)
        return np.concatenate([up, -up])

    @property
    def class_matrix(self) -> np.ndarray:
        return pools.tail_classes((self.levels,))

    @property
    def class_offset(self) -> np.ndarray:
        return np.eye(1, self.levels + 1)[0]

    def rates(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        w = self.joins(jnp.concatenate([jnp.ones(1, x.dtype), x]), inverse_n)
        above = jnp.concatenate([x[1:], jnp.zeros(1, x.dtype)])
        return jnp.concatenate([self.arrival_rate * (w[:-1] - w[1:]), x - above])

    def joins(self, y: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        """w(y): the chance that all d sampled servers lie in a fraction y; y**d, or C(ny, d)/C(n, d) when distinct, with
        `inverse_n` = 1/n, or its limit 0. y: a float array of any shape, that of the result.

        Example::

            >>> half = np.float32(0.5)  # 5 of 10 servers
            >>> models = [jaxq.Supermarket(10, 2, 0.9, replacement) for replacement in (True, False)]
            >>> [round(float(model.joins(half, inverse_n=0.1)), 4) for model in models]
            [0.25, 0.2222]
        """
        if self.replacement:
            return y**self.d
        taken = jnp.expand_dims(jnp.arange(self.d, dtype=y.dtype) * inverse_n, tuple(range(y.ndim)))
        return jnp.prod((y[..., None] - taken) / (1 - taken), axis=-1)

    def at_levels(self, levels: int) -> Self:
        return self if self.buffer is not None else replace(self, levels=levels)

    def guess(self) -> np.ndarray:
        """Densities near the fixed point, (levels,): lambda**((d**i - 1)/(d - 1)), exact without a buffer."""
        return self.arrival_rate ** exponents(self.d, self.levels)
