"""The two chains of a weak derivative: a model one tick of whose replicas is an arrival, or nothing, whatever its words say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import bits
from .chain import Model, _flatten, _unflatten
from .ticks import PoissonPath

_CERTAIN = 2.0**100  # an arrival rate beside which a service has a chance of at most 2**-32, that of the last word


def one_tick(clock: float, end: float, words: np.ndarray, replicas: int) -> tuple[np.ndarray, np.ndarray]:
    """Each replica's number of ticks up to `end`, and one of them, uniform, from the replica's own stream; -1 of none."""
    if clock * end > 2**29:  # ticks count down in int32
        raise ValueError(f"the weak derivative takes at most 2**29 ticks a replica on average; got {clock * end:.3g}; "
                         "use a shorter horizon")
    keys = bits.fold_in(words, np.arange(replicas, dtype=np.uint32))
    ticks = PoissonPath(clock, keys).count(end)
    chosen = bits.mulhi64(*bits.stream(*keys, np.uint32(0), bits.FORCED), ticks.astype(np.uint32))
    return ticks, np.where(ticks > 0, chosen.astype(np.int64), -1).astype(np.int32)


def forced(model: Model, clock: float, chosen: np.ndarray, arrival: bool) -> Forced:
    """The model on this clock with tick number chosen[r] of replica r made an arrival, or null; its other ticks as they are."""
    numbers, static = _flatten(model)
    busy = _unflatten(type(model), static, tuple(_CERTAIN if name == "arrival_rate" else number for name, number in
                                                 zip(type(model).leaves, numbers, strict=True)))
    tables = {"usual": model.tables(clock), "certain": busy.tables(busy.clock()), "arrival": np.bool_(arrival)}
    return Forced(model.program(), model, chosen, tables)


@dataclass(frozen=True)
class Forced(Model, leaves=("model", "chosen", "numbers")):
    """`model` with one tick forced in each replica.

    chain: the model's program. chosen: (replicas,) that tick's number. numbers: its tables; "certain" are those with arrivals
    only. The state has the ticks left before it beside the model's own.
    """

    chain: Any
    model: Any
    chosen: Any
    numbers: Any

    @property
    def n(self) -> Any:  # type: ignore[override]
        return self.model.n

    @property
    def block(self) -> int:
        return self.model.block  # type: ignore[no-any-return]

    @property
    def words(self) -> int:
        return self.chain.words  # type: ignore[no-any-return]

    def clock(self) -> float:
        return self.model.clock()  # type: ignore[no-any-return]

    def tables(self, clock: float) -> Any:
        return self.numbers

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Forced, Any]:
        model, state = self.model.init(initial, keys)
        left = np.pad(self.chosen, (0, keys[0].size - self.chosen.size), constant_values=-1)
        return replace(self, chain=model.program(), model=model), (state, left)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        null = self.chain.null(tables["usual"])
        forced = jax.tree.map(lambda mark, nothing: jnp.where(tables["arrival"], mark, nothing),
                              self.chain.draw(tables["certain"], words), null)
        return self.chain.draw(tables["usual"], words), forced, jnp.ones(words[0].shape, jnp.bool_)

    def null(self, tables: Any) -> Any:
        null = self.chain.null(tables["usual"])
        return null, null, np.bool_(False)

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        (state, left), (usual, forced, counts) = state, mark
        now = counts & (left == 0)
        mark = jax.tree.map(lambda one, other: jnp.where(now, other, one), usual, forced)
        return self.chain.apply(tables["usual"], state, mark), left - counts.astype(np.int32)

    def counts(self, state: Any) -> jax.Array:
        return self.chain.counts(state[0])  # type: ignore[no-any-return]

    def tail(self, counts: Any) -> Any:
        return self.chain.tail(counts)

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        counters, inner = self.chain.counters(state[0])
        return counters, (inner, state[1])

    def overflow(self, state: Any) -> jax.Array:
        return self.chain.overflow(state[0])  # type: ignore[no-any-return]

    def grow(self, state: Any) -> tuple[Forced, Any]:
        model, inner = self.model.grow(state[0])
        return replace(self, chain=model.program(), model=model), (inner, state[1])
