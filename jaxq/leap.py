"""Leaps: a population model in steps of fixed length, at a cost per unit time that does not depend on n.

In one step every server leaves its class (the servers in the same state) as if the rates per server stood still: those of a
class are split among its events by binomial numbers, so that no class gives more than it has, whatever the step, and nothing
is clipped. Order 1 takes the rates at the start of the step. Order 2 takes them at the density expected in its middle, and
those who arrive during the step leave once more with the chance that is left to them, so that each server's own course is
right to second order, in classes of few servers too. What stands still is the rest of the system: means are wrong by
O(step^2) + O(step / n) at order 2, variances over replicas by a relative O(step). Where rates are fast for the servers
that are there, a replica halves its own step until few of a class leave in it.

A tick of the engine is two steps. The same randomness, a normal for each event that a Brownian bridge splits over halves of
a step, drives a second path with steps of twice the length: the difference of the means tells what the step costs.

Sources: tau-leaping: Gillespie 2001, doi:10.1063/1.1378322; binomial numbers: Tian and Burrage 2004, doi:10.1063/1.1810475;
midpoint: Anderson, Ganguly and Kurtz 2011, doi:10.1214/10-AAP756. The split by servers, the second departures and the bridge
are ours.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from . import _check
from .binomial import RESERVOIR
from .chain import Model, PopulationModel, Steady
from .leap_events import events_of
from .leap_step import mean_changes, tick

_SHARE = 1 / 16      # of a class that leaves it in a step, by default
_MOST_LEVELS = 512
_LONGEST = 100.0     # step: a replica halves it, but not for ever


@dataclass(frozen=True)
class Leap(Model, leaves=("model", "step")):
    """A `PopulationModel` advanced by leaps: a path with steps `step` and one with steps of twice the length.

    Args:
      model: its events take at most one server each, from one class, as those of all shipped models do.
      step: time, > 0; None: the longest power of two in which no class loses more than a sixteenth of itself, when empty
        and near the mean field's fixed point.
      order: 1 (rates at the start of the step) or 2 (at its middle).

    A tick is 2 `step`. Counts: those of the fine path, then of the coarse one. Counters: arrivals, lost (of the fine path),
    and events, all that happened in it.

    Raises ValueError for other models.
    """

    float64: ClassVar[bool] = True
    work: ClassVar[float] = 1000.0

    model: PopulationModel
    step: Any = None
    order: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.model, PopulationModel):
            raise ValueError("algorithm='leap' needs a population model, whose events have rates; got "
                             f"{type(self.model).__name__}; use algorithm='exact'")
        _check.integer("order", self.order, 1, 2)
        levels = self._levels
        if levels > _MOST_LEVELS:
            raise ValueError(f"a leap needs queues of at most {_MOST_LEVELS} customers; got a model of {levels} levels; use "
                             "algorithm='exact'")
        events_of(self.model)
        step = _default_step(self.model) if self.step is None else _check.real("step", self.step, 0.0, _LONGEST, open_low=True)
        object.__setattr__(self, "step", step)

    # what it has from its model

    @property
    def n(self) -> Any:  # type: ignore[override]
        """Number of servers."""
        return self.model.n

    @property
    def eta(self) -> Any:
        """The scale of T, where the model has one."""
        return getattr(self.model, "eta", None)

    def steady(self) -> Steady:
        return self.model.steady()

    def tail(self, counts: Any) -> Any:
        return self.model.tail(counts[: self.states])

    def pool_tails(self, counts: Any) -> Any:
        return self.model.pool_tails(counts[: self.states])

    def coarse(self, counts: Any) -> Any:
        """`tail` of the path with steps of twice the length."""
        return self.model.tail(counts[self.states:])

    @property
    def states(self) -> int:
        """Rows of the counts of one path."""
        return int(self.model.jumps.shape[1])

    @property
    def _levels(self) -> int:
        return int(self.model.tail(np.zeros((self.states, 1), np.int32)).shape[0])

    # ticks

    @property
    def block(self) -> int:
        return 128

    @property
    def words(self) -> int:
        return 2

    def clock(self) -> float:
        return 1 / (2 * float(self.step))

    def tables(self, clock: float) -> dict[str, Any]:
        model = self.model
        loses = "lost" in model.counters(model.state_of(np.zeros((self.states, 1), np.int32)))[0]
        return {"model": jax.tree.map(np.float64, model), "n": np.float64(self.n), "tick": np.float64(1 / clock),
                "truncated": np.bool_(model.at_levels(2 * self._levels) is not model),
                "base": np.append(np.round(float(self.n) * model.class_offset),
                                  np.full(np.sum(events_of(model).reservoirs), RESERVOIR))[:, None],
                # arrivals per server, those who are lost included
                "arrivals": np.float64(getattr(model, "arrival_rate", 0.0) if loses else 0.0)}

    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, Any]:
        model, state = self.model.init(initial, keys)
        counts = np.asarray(model.counts(state), np.int32)
        return self._on(model), (counts, counts, np.zeros((3, counts.shape[1]), np.int64), np.zeros(counts.shape[1], bool))

    def _on(self, model: PopulationModel) -> Self:
        return dataclasses.replace(self, model=model)

    def draw(self, tables: Any, words: tuple[jax.Array, ...]) -> Any:
        return words[0], words[1], jnp.ones(words[0].shape, jnp.bool_)

    def null(self, tables: Any) -> Any:
        return np.uint32(0), np.uint32(0), np.bool_(False)

    def apply(self, tables: Any, state: Any, mark: Any) -> Any:
        fine, coarse, counted, out = state
        lanes = fine.shape[1]
        both = jnp.concatenate([fine, coarse], axis=1)  # side by side: one loop to compile
        hi, lo, active = (jnp.concatenate([part, part]) for part in mark)
        depth = np.repeat(np.array([1, 0], np.int32), lanes)
        both, happened, beyond = tick(self.model, self.order, tables, both, (hi, lo), active, depth)
        return both[:, :lanes], both[:, lanes:], counted + happened[:, :lanes], out | beyond[:lanes] | beyond[lanes:]

    def counts(self, state: Any) -> jax.Array:
        return jnp.concatenate(state[:2])

    def counters(self, state: Any) -> tuple[dict[str, jax.Array], Any]:
        fine, coarse, counted, out = state
        return dict(zip(("arrivals", "lost", "events"), counted, strict=True)), (fine, coarse, jnp.zeros_like(counted), out)

    def overflow(self, state: Any) -> jax.Array:
        return state[3]

    def grow(self, state: Any) -> tuple[Self, Any]:
        fine, coarse, counted, out = map(np.asarray, state)
        grown = []
        for counts in (fine, coarse):
            model, larger = self.model.grow(self.model.state_of(counts))
            grown.append(np.asarray(model.counts(larger), np.int32))
        return self._on(model), (*grown, counted, out)


def changes(leap: Leap, steps: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a step does in the mean, per unit time, to the fractions that an event changes by `steps` / n, (..., events), and to
    the square of their sum, from counts (states, replicas): (..., replicas) and (replicas,).

    In steady state both have mean 0. nan where a replica would halve the step, since then they need not.
    """
    with jax.enable_x64(True):
        span, steps, counts = (np.asarray(part, np.float64) for part in (leap.step, steps, counts))
        flow, square = mean_changes(leap.model.program(), leap.order, leap.tables(leap.clock()), span, steps, counts)
        return np.asarray(flow), np.asarray(square)


def _default_step(model: PopulationModel) -> float:
    """The longest power of two in which no class loses more than `_SHARE` of itself, empty and near the fixed point."""
    events = events_of(model)
    rates = []
    try:
        with np.errstate(over="ignore"):  # beyond the full load
            near = np.clip(model.guess(), 0.0, 1.0)
    except ValueError:  # there is none
        near = model.empty()
    for density in (model.empty(), near):
        with jax.enable_x64(True):
            rate = np.asarray(jax.tree.map(np.float64, model).rates(jnp.asarray(density, jnp.float64), 0.0))
        servers = model.class_matrix @ density + model.class_offset
        leaving = events.source[:-1, : servers.size].T @ rate[events.order]
        rates.append(np.max(leaving[servers > 1e-9] / servers[servers > 1e-9], initial=0.0))
    if not max(rates) > 0:
        raise ValueError(f"a leap finds its step from the classes of servers that events leave; {type(model).__name__} has none "
                         "where it starts; give step, and class_matrix and class_offset where counts are not numbers of a class")
    return float(2.0 ** np.floor(np.log2(_SHARE / max(rates))))
