"""The events of a population model as moves of servers between classes, and the split of a class among its events."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .binomial import binomial
from .chain import PopulationModel


@dataclass(frozen=True)
class Events:
    """E events of a model and one more, customers who are lost.

    An event that takes no server of the model takes one from a reservoir of its own: the last classes, of `RESERVOIR` servers.
    Events stand class by class: where the model counts them from 0, they are its events `order` (E,), and the lost.

    names (E + 1,): a number below 2**31 for each that does not change with the levels of the model.
    jumps (E + 1, states): what each adds to the counts. source, goal (E + 1, classes): servers each takes from a class, one
    in all, and brings there. counted (3, E + 1): what each adds to the counters. matrix (classes, states): the model's
    `class_matrix`, 0 for reservoirs. reservoirs (classes, 1): the class is one.
    """

    names: np.ndarray
    jumps: np.ndarray
    source: np.ndarray
    goal: np.ndarray
    counted: np.ndarray
    matrix: np.ndarray
    reservoirs: np.ndarray
    order: np.ndarray

    @property
    def count(self) -> int:
        """E + 1."""
        return int(self.jumps.shape[0])

    def mean(self, servers: Any, chance: Any, each: Any) -> Any:
        """Mean numbers of every event (E + 1, lanes) when each of `servers` (classes, lanes) leaves with `chance`, to an event in
        proportion to its rate `each` (E + 1, lanes) per server."""
        total = self.source.T @ each
        return self.source @ (servers * chance / jnp.where(total > 0, total, 1.0)) * each

    def split(self, servers: Any, chance: Any, each: Any, g: Any) -> jax.Array:
        """Such numbers themselves, from a normal `g` (E + 1, lanes) each: one event after the other, of the servers then left."""
        def event(carry: Any, ahead: Any) -> Any:
            first, servers, p, g = ahead
            left, spent = (jnp.where(first, fresh, old) for fresh, old in zip((servers, 0.0), carry, strict=True))
            stays = 1 - spent  # 0: all have left
            number = binomial(left, jnp.where(stays > 0, jnp.clip(p / jnp.where(stays > 0, stays, 1.0), 0.0, 1.0), 0.0), g)
            return (left - number, spent + p), number

        first = np.diff(self.source.argmax(axis=1), prepend=-1) > 0  # of its class
        nobody = jnp.zeros_like(each[0])
        ahead = (first, self.source @ servers, self.mean(1.0, chance, each), g)
        return lax.scan(event, (nobody, nobody), ahead)[1]


@functools.lru_cache(maxsize=64)
def events_of(model: PopulationModel) -> Events:
    """The events of a model. Raises ValueError where one takes several servers, or one from several classes."""
    jumps, matrix = np.asarray(model.jumps), model.class_matrix
    moved = np.vstack([jumps @ matrix.T, np.zeros((1, matrix.shape[0]), int)])
    source, goal = (moved < 0) * -moved, (moved > 0) * moved
    taken = source.sum(axis=1)
    if np.any(taken > 1):
        raise ValueError(f"a leap needs events that take at most one server, from one class; event {int(taken.argmax())} of "
                         f"{type(model).__name__} takes {int(taken.max())}; use algorithm='exact'")
    customers = np.append(np.sum(model.pool_tails(jumps.T), axis=(0, 1)), 0)
    lost = np.arange(customers.size) == jumps.shape[0]
    counted = np.stack([(customers > 0) | lost, lost, ~lost]).astype(float)
    outside = np.sum(taken == 0)
    source = np.hstack([source, np.eye(taken.size, dtype=int)[:, taken == 0]])
    goal = np.hstack([goal, np.zeros((taken.size, outside), int)])
    order = np.argsort(source.argmax(axis=1), kind="stable")  # the lost stay last
    states = np.vstack([jumps, np.zeros((1, jumps.shape[1]), int)]).astype(float)
    return Events(_names(model)[order], states[order], source[order].astype(float), goal[order].astype(float), counted[:, order],
                  np.vstack([matrix, np.zeros((outside, matrix.shape[1]))]),
                  np.arange(source.shape[1])[:, None] >= matrix.shape[0], order[:-1])


def _names(model: PopulationModel) -> np.ndarray:
    """Pool, level and sign of the first tail that an event changes, and its place among those that agree in them."""
    changes = np.asarray(model.pool_tails(np.asarray(model.jumps).T))       # (pools, levels, events)
    flat = np.moveaxis(changes, 2, 0).reshape(changes.shape[2], -1)
    first = np.where(flat.any(axis=1), np.argmax(flat != 0, axis=1), -1)
    pool, level = np.divmod(np.maximum(first, 0), changes.shape[1])
    level = np.where(first < 0, 0, level + 1)
    sign = (np.take_along_axis(flat, np.maximum(first, 0)[:, None], 1)[:, 0] < 0).astype(int)
    group = ((level * changes.shape[0] + pool) * 2 + sign).tolist()
    place = [group[:k].count(one) for k, one in enumerate(group)]
    if max(group) >= 2**18 or max(place) >= 2**12:
        raise ValueError(f"a leap needs fewer events; {type(model).__name__} has {len(group)}; use algorithm='exact'")
    return np.append(np.array(group) * 2**12 + place, 2**31 - 1).astype(np.uint32)
