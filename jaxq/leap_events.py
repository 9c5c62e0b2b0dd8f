"""The events of a population model as moves of servers between classes, and the split of a class among its events."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .chain import PopulationModel

Draw = Callable[[jax.Array, jax.Array, np.ndarray], jax.Array]  # (trials, chance, events) -> numbers, all (some, lanes)
Outside = Callable[[jax.Array, np.ndarray], jax.Array]          # (rates, events) -> numbers


@dataclass(frozen=True)
class Events:
    """E events of a model and one more, customers who are lost.

    names (E + 1,): a number below 2**31 for each that does not change with the levels of the model.
    jumps (E + 1, states): what each adds to the counts. source, goal (E + 1, classes): servers each takes from a class and
    brings there. counted (3, E + 1): what each adds to the counters. outside: the events that take no server.
    rounds: for each k, the k-th events of the classes that have so many, and where these classes stand among those of
    the round before (of all classes, for the first). order: where each event of a class stands in that sequence.
    """

    names: np.ndarray
    jumps: np.ndarray
    source: np.ndarray
    goal: np.ndarray
    counted: np.ndarray
    outside: np.ndarray
    rounds: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    order: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """(E + 1, 1): the event takes a server from a class."""
        return np.asarray(self.source.any(axis=1))[:, None]

    @property
    def count(self) -> int:
        """E + 1."""
        return int(self.jumps.shape[0])

    def split(self, servers: Any, chance: Any, each: Any, draw: Draw, outside: Outside | None) -> jax.Array:
        """Numbers of every event (E + 1, lanes) when each of `servers` (classes, lanes) leaves with `chance`, to an event in
        proportion to its rate `each` (E + 1, lanes) per server; `outside` gives those of the others, None for none."""
        total = self.source.T @ each
        share = chance / jnp.where(total > 0, total, 1.0)  # times each: the chance to leave for an event
        numbers, left, spent = [], servers, jnp.zeros_like(servers)
        for events, among, classes in self.rounds:
            p = share[classes] * each[events]
            left, spent = left[among], spent[among]
            stays = 1 - spent  # 0: all have left
            numbers.append(draw(left, jnp.where(stays > 0, jnp.clip(p / jnp.where(stays > 0, stays, 1.0), 0.0, 1.0), 0.0), events))
            left, spent = left - numbers[-1], spent + p
        if self.outside.size:
            rates = each[self.outside]
            numbers.append(jnp.zeros_like(rates) if outside is None else outside(rates, self.outside))
        return jnp.concatenate(numbers)[self.order]


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
    rounds, sequence = [], []
    classes, k = np.arange(matrix.shape[0]), 0
    while True:
        lists = [np.flatnonzero(source[:, one]) for one in classes]
        among = np.array([i for i, mine in enumerate(lists) if mine.size > k], int)
        if not among.size:
            break
        chosen = np.array([lists[i][k] for i in among])
        classes, k = classes[among], k + 1
        rounds.append((chosen, among, classes))
        sequence.append(chosen)
    outside = np.flatnonzero(source.sum(axis=1) == 0)
    order = np.argsort(np.concatenate([*sequence, outside]))
    states = np.vstack([jumps, np.zeros((1, jumps.shape[1]), int)]).astype(float)
    return Events(_names(model), states, source.astype(float), goal.astype(float), counted, outside, tuple(rounds), order)


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
