"""A population model from its rates alone: the exact chain at once, in float64."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from .chain import Mark, PopulationModel, State, Tables


class RatesModel(PopulationModel):
    """A population model that gives `n`, `jumps`, `rates`, `clock` and `tail` only: exact, in float64, and slower.

    The mark is the raw 64-bit word; `apply` inverts the cumulative rates at the current counts. Rates that sum to more than
    the clock, or that take a count below zero, raise ValueError instead of being clipped. Same integers on one backend only.

    `jumps` are (events, states), `rates` (events,) per unit time and server, `clock` at least their sum times n; initial
    states are None (no customers) or integer counts (states,).

    Example::

        >>> import dataclasses
        >>> import jax.numpy as jnp
        >>> from jaxq.rates_model import RatesModel
        >>> @dataclasses.dataclass(frozen=True)
        ... class Machines(RatesModel, leaves=("n",)):
        ...     # n machines, each fails at rate 1 and is mended at rate 2; counted are those that work
        ...     n: int
        ...     jumps = np.array([[1], [-1]])
        ...     def clock(self): return 2.0 * self.n
        ...     def rates(self, x, inverse_n=0.0): return jnp.concatenate([2.0 * (1.0 - x), x])
        ...     def tail(self, counts): return counts
        >>> jaxq.exact.stationary(Machines(2)).probability.round(4).tolist()  # binomial with 2/3
        [0.1111, 0.4444, 0.4444]
    """

    float64: ClassVar[bool] = True

    @property
    def words(self) -> int:
        return 2

    def tables(self, clock: float) -> Tables:
        if clock < self.clock():
            raise ValueError(f"clock must be at least {self.clock():g} ticks per unit time; got {clock:g}")
        return {"model": jax.tree.map(np.float64, self), "n": np.float64(self.n), "per_server": np.float64(clock / self.n)}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, State]:
        states = self.jumps.shape[1]
        start = np.zeros(states, np.int32) if initial is None else np.asarray(initial)
        if start.shape != (states,) or start.dtype.kind not in "iu" or start.min() < 0:
            raise ValueError(f"initial must be {states} counts >= 0; got {initial!r}")
        return self, self.state_of(np.repeat(start.astype(np.int32)[:, None], keys[0].size, axis=1))

    def draw(self, tables: Tables, words: tuple[jax.Array, ...]) -> Mark:
        return (words[0], words[1], jnp.ones(words[0].shape, jnp.bool_))

    def null(self, tables: Tables) -> Mark:
        return (np.uint32(0), np.uint32(0), np.bool_(False))

    def apply(self, tables: Tables, state: State, mark: Mark) -> State:
        x, bad = state
        hi, lo, active = mark
        density = x.astype(jnp.float64) / tables["n"]
        rates = jax.vmap(tables["model"].rates, in_axes=(1, None), out_axes=1)(density, 1 / tables["n"]) / tables["per_server"]
        events = rates.shape[0]
        upper = jnp.tri(events, dtype=jnp.float64) @ rates
        word = (hi.astype(jnp.float64) * 2.0**32 + lo.astype(jnp.float64)) * 2.0**-64
        event = jnp.sum((word[None] >= upper).astype(jnp.int32), axis=0, dtype=jnp.int32)
        chosen = (jnp.arange(events, dtype=jnp.int32)[:, None] == event[None]) & active[None]
        moved = x + jnp.sum(jnp.where(chosen[:, None, :], jnp.asarray(self.jumps, jnp.int32)[:, :, None], 0), axis=0,
                            dtype=jnp.int32)
        impossible = (upper[-1] > 1 + 1e-12) | jnp.any(rates < -1e-12, axis=0) | jnp.any(moved < 0, axis=0)
        return moved, bad | impossible

    def counts(self, state: State) -> jax.Array:
        return state[0]

    def state_of(self, counts: np.ndarray) -> State:
        return (np.asarray(counts, np.int32), np.zeros(counts.shape[1], np.bool_))

    def counters(self, state: State) -> tuple[dict[str, jax.Array], State]:
        return {}, state

    def overflow(self, state: State) -> jax.Array:
        return state[1]

    def grow(self, state: State) -> tuple[Self, State]:
        raise ValueError(f"{type(self).__name__}.rates must be >= 0, sum to at most clock/n and vanish where an event is "
                         "impossible; a replica met a state where they do not; raise clock or mend rates")

    def at_levels(self, levels: int) -> Self:
        return self

    def guess(self) -> np.ndarray:
        return np.zeros(self.jumps.shape[1])
