"""Exact in bulk: the supermarket model about sqrt(n) ticks at a time, for many servers. `jaxq.batch` says how."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _check, bits
from .batch import batch
from .chain import Model, Steady
from .models.supermarket import Supermarket

MAX_D = 16


@dataclass(frozen=True)
class Bulk(Model, leaves=("model",)):
    """A `Supermarket` advanced a batch at a time, from the same state to the same law; `advance` takes the place of the scan.

    Args:
      model: d at most 16; without replacement, d (d - 1) <= n.

    The words of a batch are those of the tick at which it starts, under a key of their own. Batches are cut where a call of the
    engine ends or saves, so the integers of a seed depend on the save times, but on no number of replicas, blocks or devices as
    long as calls end at multiples of `call` ticks. They are the same on one backend, up to rounding.

    Raises ValueError for other models.
    """

    float64: ClassVar[bool] = True

    model: Supermarket

    def __post_init__(self) -> None:
        model = self.model
        if not isinstance(model, Supermarket) or model.d > MAX_D or (not model.replacement and model.d * (model.d - 1) > model.n):
            raise ValueError(f"algorithm='bulk' needs the supermarket model with d at most {MAX_D} and, without replacement, "
                             f"d (d - 1) <= n; got {_check.shown(model)}; use algorithm='exact'")

    @property
    def n(self) -> Any:  # type: ignore[override]
        """Number of servers."""
        return self.model.n

    @property
    def eta(self) -> Any:
        """The scale of T, where the model has one."""
        return self.model.eta

    @property
    def call(self) -> int:
        """Ticks a call of the engine should give: some hundred batches, decided by n alone because batches end there."""
        return 2**15 - 1 if self.model.lane == "int16" else 2 ** (9 + int(self.n).bit_length() // 2)

    @property
    def block(self) -> int:
        return 1024

    @property
    def words(self) -> int:
        return self.model.words

    def clock(self) -> float:
        return self.model.clock()

    def tables(self, clock: float) -> dict[str, Any]:
        """The model's, and of a batch: `distinct` P(K >= k), k = 1, 2, ..., until it is below the last bit of a uniform; `renewal`
        u(s) after d zeros; `arrival` p. Raises ValueError for a clock with null ticks."""
        n, d = self.n, self.model.d
        if clock != self.clock():
            raise ValueError(f"clock must be the model's own {self.clock():g} in bulk; got {clock:g}; leave it out")
        log = np.cumsum(np.log1p(-np.arange(min(n, int(10 * math.sqrt(n)) + 10), dtype=np.longdouble) / n))
        distinct = np.exp(log[log > -38.0]).astype(np.float64)
        size = max(64, 1 << (distinct.size - 1).bit_length())  # one program for similar n
        distinct = np.pad(distinct, (0, size - distinct.size))
        rate = float(self.model.arrival_rate)
        if not self.model.replacement:
            rate /= math.prod(1 - k / n for k in range(d))
        p = rate / (1 + rate)
        renewal = np.zeros(d + distinct.size + 1)
        renewal[d] = 1.0
        for s in range(1, distinct.size + 1):
            renewal[d + s] = (1 - p) * renewal[d + s - 1] + p * renewal[s]
        return {"ticks": self.model.tables(clock), "n": np.float64(n), "arrival": np.float64(p), "distinct": distinct,
                "renewal": renewal}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        model, state = self.model.init(initial, keys)
        return replace(self, model=model), state

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        return self.model.draw(tables["ticks"], words)

    def null(self, tables: Any) -> Any:
        return self.model.null(tables["ticks"])

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        return self.model.apply(tables["ticks"], state, mark)

    def advance(self, tables: Any, keys: Any, state: Any, low: Any, high: Any, take: Any) -> Any:
        """The state after `take` more ticks from tick high * 2**32 + low on, for replicas with these key words."""
        x, arrivals = state
        k0, k1 = bits.stream(keys[0], keys[1], np.uint32(0), bits.BULK)

        def one(carry: Any) -> Any:
            x, arrivals, at, over, left, again = carry
            b0, b1 = bits.threefry(k0, k1, at, (over << np.uint32(8)) | again)
            x, came, used = batch(self.model, tables, x, left,
                                  lambda number: _uniform(*bits.threefry(b0, b1, jnp.asarray(number, jnp.uint32), np.uint32(0))))
            after = at + used.astype(np.uint32)
            # a batch of no tick, an arrival that sampled a server twice, is drawn again from other words
            return (x, arrivals + came.astype(np.int32), after, over + (after < at).astype(np.uint32), left - used,
                    jnp.where(used == 0, again + np.uint32(1), np.uint32(0)))

        carry = (x.astype(jnp.float64), arrivals, low, high, take.astype(jnp.float64), jnp.zeros_like(low))
        done = lax.while_loop(lambda carry: jnp.any(carry[4] > 0), one, carry)
        return done[0].astype(x.dtype), done[1]

    def counts(self, state: Any) -> jax.Array:
        return self.model.counts(state)

    def tail(self, counts: Any) -> Any:
        return self.model.tail(counts)

    def steady(self) -> Steady:
        return self.model.steady()

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        return self.model.counters(state)

    def overflow(self, state: Any) -> jax.Array:
        return self.model.overflow(state)

    def grow(self, state: Any) -> tuple[Self, Any]:
        model, state = self.model.grow(state)
        return replace(self, model=model), state


def _uniform(hi: jax.Array, lo: jax.Array) -> jax.Array:
    """52 random bits as the midpoints of 2**52 equal parts of (0, 1), all exact in float64."""
    return ((hi >> np.uint32(6)).astype(jnp.float64) * 2.0**26 + (lo >> np.uint32(6)).astype(jnp.float64) + 0.5) * 2.0**-52
