"""Time averages of a running ensemble: sums over looks at fixed tick numbers.

Uniformised ticks see time averages, so ticks stand for time and no Poisson path is drawn. At every look the state gives its
tails, their squares, and the controls of `estimate`: images of functions under the generator of the chain, whose mean in the
steady state is exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .algorithms import exact_model
from .chain import Model, PopulationModel
from .leap import Leap, changes

SEGMENTS = 16   # looks a call of the compiled function

_OF_REPLICAS = ("tail", "tail_square", "queue", "queue_square", "queue_most", "flow", "second", "apart")

Balance = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sums:
    """Sums over `looks` looks that span `ticks` ticks, for each replica, densities being fractions of all n servers.

    tail: (pools, levels, replicas). tail_square: (levels, replicas) of the tail of all pools together. queue, queue_square:
    (replicas,) of the mean queue length; queue_most is not its sum but the most at one look. flow: (pools, levels, replicas) of
    the generator's image of `tail`, or (1, 1, replicas) of that of `queue`, or empty. second: (replicas,) of that of the queue's
    square. counters: increments by name.
    path: (looks,) mean queue length over replicas at every look. apart: (levels, replicas) of the tail of a leap's coarse path
    minus `tail`, with no levels where the algorithm is exact.
    """

    looks: int
    ticks: int
    tail: np.ndarray
    tail_square: np.ndarray
    queue: np.ndarray
    queue_square: np.ndarray
    queue_most: np.ndarray
    flow: np.ndarray
    second: np.ndarray
    counters: dict[str, np.ndarray]
    path: np.ndarray
    apart: np.ndarray

    def __add__(self, other: Sums) -> Sums:
        sums = {}
        for name in _OF_REPLICAS:
            pair = getattr(self, name), getattr(other, name)  # one may have met longer queues
            levels = max(part.shape[-2] if part.ndim > 1 else 0 for part in pair)
            join = np.maximum if name == "queue_most" else np.add
            sums[name] = join(at_levels(pair[0], levels), at_levels(pair[1], levels))
        counters = {name: self.counters[name] + other.counters[name] for name in self.counters}
        return Sums(self.looks + other.looks, self.ticks + other.ticks, **sums, counters=counters,
                    path=np.concatenate([self.path, other.path]))


def beside(one: Sums, other: Sums) -> Sums:
    """The same looks at the replicas of both."""
    fields: dict[str, Any] = {name: getattr(one, name) for name in ("looks", "ticks")}
    for name in _OF_REPLICAS:
        pair = getattr(one, name), getattr(other, name)
        levels = max(part.shape[-2] if part.ndim > 1 else 0 for part in pair)
        fields[name] = np.concatenate([at_levels(part, levels) for part in pair], axis=-1)
    counters = {name: np.concatenate([one.counters[name], other.counters[name]]) for name in one.counters}
    share = one.queue.size / (one.queue.size + other.queue.size)
    return Sums(**fields, counters=counters, path=share * one.path + (1 - share) * other.path)


def look_at(model: Model, balance: Balance, counts: np.ndarray, ticks: int, counters: dict[str, np.ndarray]) -> Sums:
    """One look at counts (states, replicas), `ticks` after the one before, in which `counters` were counted."""
    tail = np.asarray(model.pool_tails(counts)) / model.n
    everyone = tail.sum(axis=0)
    queue = everyone.sum(axis=0)
    apart = np.zeros((0, queue.size))
    if isinstance(model, Leap):
        apart = np.asarray(model.coarse(counts)) / model.n - everyone
        counts = counts[: model.states]
    flow, second = balance(counts, tail, queue)
    return Sums(1, ticks, tail, everyone**2, queue, queue**2, queue, flow, second, counters, np.array([queue.mean()]), apart)


def balance(model: Model) -> Balance:
    """The generator's images of the tails (pools, levels, replicas) and of the squared queue (replicas,), from the counts,
    the tails and the queue, as far as the model allows."""
    if isinstance(model, Leap):
        leap, jumps = model, model.model.pool_tails(model.model.jumps.T)
        return lambda counts, tail, queue: changes(leap, jumps, counts)
    model = exact_model(model)
    if isinstance(model, PopulationModel):
        with jax.enable_x64(True):
            leaves = jax.tree.map(np.float64, model)
            steps = np.asarray(model.pool_tails(model.jumps.T), np.float64)
        depth, more = (np.any(m.pool_tails(m.jumps.T), axis=2).sum(axis=1) for m in (model, model.at_levels(2 * steps.shape[1])))
        last = np.flatnonzero(more > depth), depth[more > depth] - 1

        def generator(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if np.any(tail[last]):  # an arrival there leads to a level that only a larger model has
                larger, state = model.grow(model.state_of(counts))
                counts = np.asarray(larger.counts(state))
                return balance(larger)(counts, np.asarray(larger.pool_tails(counts)) / model.n, queue)
            with jax.enable_x64(True):
                flow, second = _generator(leaves, steps, counts.astype(np.float64), queue, 1.0 / model.n)
                return np.asarray(flow), np.asarray(second)

        return generator
    known = model.steady()
    if known.arrivals is None or known.rates is None or not known.lossless:
        return nothing
    arrived, rates, n = known.arrivals / model.n, np.array(known.rates), model.n

    def flows(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        served = np.tensordot(rates, tail[:, 0], 1)
        return (arrived - served)[None, None], 2 * queue * (arrived - served) + (arrived + served) / n

    return flows


def nothing(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A balance of which nothing is known."""
    return np.zeros((1, 0, queue.size)), np.zeros_like(queue)


@jax.jit
def _generator(model: PopulationModel, steps: jax.Array, counts: jax.Array, queue: jax.Array,
               inverse_n: Any) -> tuple[jax.Array, jax.Array]:
    """`steps` (pools, levels, events): what each event adds to the tails."""
    rates = jax.vmap(model.rates, in_axes=(1, None), out_axes=1)(counts * inverse_n, inverse_n)
    customers = jnp.sum(steps, axis=(0, 1))
    second = 2 * queue * (customers @ rates) + inverse_n * (customers**2 @ rates)
    return jnp.tensordot(steps, rates, 1), second


def at_levels(values: np.ndarray, levels: int) -> np.ndarray:
    """Sums (..., levels, replicas) with zeros up to `levels`; sums (replicas,) as they are."""
    if values.ndim == 1:
        return values
    return np.pad(values, ((0, 0),) * (values.ndim - 2) + ((0, max(0, levels - values.shape[-2])), (0, 0)))
