"""The levels of a population model in the mean field: densities on them, twice as many, and what the cut holds back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _check
from .chain import PopulationModel

MOST_LEVELS = 1024


def level_count(model: PopulationModel) -> int:
    """The levels that a model's tail has."""
    return int(np.shape(model.tail(np.zeros(model.jumps.shape[1])))[0])


def truncated(model: PopulationModel) -> bool:
    """Whether more levels would give the model more states."""
    return bool(model.at_levels(2 * level_count(model)).jumps.shape[1] > model.jumps.shape[1])


def _embedding(model: PopulationModel) -> tuple[PopulationModel, np.ndarray]:
    """The model with twice the levels and where each state goes there, (more states, states): `grow` of unit counts says."""
    larger, state = model.grow(model.state_of(np.eye(model.jumps.shape[1], dtype=np.int32)))
    return larger, np.asarray(larger.counts(state), np.float64)


def doubled(model: PopulationModel, density: np.ndarray) -> tuple[PopulationModel, np.ndarray]:
    """The model with twice the levels and the same density."""
    larger, places = _embedding(model)
    return larger, places @ density


def leak(model: PopulationModel, density: np.ndarray) -> float:
    """The fastest flow into a state that twice the levels would add: what the truncation holds back. The last tail fraction
    does not tell where some servers hold more than `levels`, as those of a pool with a large buffer do."""
    larger, places = _embedding(model)
    with jax.enable_x64(True):
        drift = np.asarray(larger.drift(jnp.asarray(places @ density)))
    return float(np.max(np.abs(drift[~places.any(axis=1)]), initial=0.0))


def initial_density(model: PopulationModel, initial: Any, levels: int | None) -> tuple[PopulationModel, np.ndarray]:
    """The model with levels for `initial`, and its density (states,)."""
    if levels is not None:
        model = model.at_levels(_check.integer("levels", _check.integer("levels", levels, 1), 1, MOST_LEVELS))
    if initial is None:
        return model, np.asarray(model.empty(), np.float64)
    given = _check.vector("initial", initial)
    density = given / model.n if given.dtype.kind in "iu" else given.astype(np.float64)
    while levels is None and density.size > model.jumps.shape[1] and truncated(model):
        model = model.at_levels(2 * level_count(model))
    states = model.jumps.shape[1]
    if density.size < states == level_count(model):
        density = np.concatenate([density, np.zeros(states - density.size)])
    problem = bad_tail(model, density[:, None], 1e-12) if density.size == states else f"it has {given.size}"
    if problem:
        raise ValueError(f"initial must be {states} densities (floats) or counts (integers) with 1 >= S_1 >= ... >= 0; "
                         f"{problem}; got {_check.shown(initial)}")
    return model, density


def bad_tail(model: PopulationModel, density: np.ndarray, slack: float) -> str | None:
    """What is wrong with the tails of densities (states, points), or None."""
    tail = np.asarray(model.tail(density), np.float64)
    bounded = np.concatenate([np.ones_like(tail[:1]), tail, np.zeros_like(tail[:1])])
    rise = np.diff(bounded, axis=0)
    level = int(np.argmax(np.max(rise, axis=1)))
    return f"the tail rises by {rise[level].max():.3g} at level {level + 1}" if rise.max() > slack else None


def bad_path(model: PopulationModel, states: np.ndarray, slack: float) -> str | None:
    """What is wrong with a solved path (times, states), or None."""
    with jax.enable_x64(True):
        margin = min(float(model.margin(jnp.asarray(x))) for x in states)
    if margin <= 0:
        return "the path leaves the region where the drift is smooth (for PULL: a router runs out of messages)"
    return bad_tail(model, states.T, slack)
