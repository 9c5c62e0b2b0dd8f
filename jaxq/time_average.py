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
from .engine import Engine
from .leap import Leap, changes

SEGMENTS = 16   # looks a call of the compiled function

Balance = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sums:
    """Sums over `looks` looks that span `ticks` ticks, for each replica, densities being fractions of all n servers.

    tail: (pools, levels, replicas). tail_square: (levels, replicas) of the tail of all pools together. queue, queue_square:
    (replicas,) of the mean queue length. flow: (pools, levels, replicas) of the generator's image of `tail`, or (1, 1,
    replicas) of that of `queue`, or empty. second: (replicas,) of that of the queue's square. counters: increments by name.
    path: (looks,) mean queue length over replicas at every look. apart: (levels, replicas) of the tail of a leap's coarse path
    minus `tail`, with no levels where the algorithm is exact.
    """

    looks: int
    ticks: int
    tail: np.ndarray
    tail_square: np.ndarray
    queue: np.ndarray
    queue_square: np.ndarray
    flow: np.ndarray
    second: np.ndarray
    counters: dict[str, np.ndarray]
    path: np.ndarray
    apart: np.ndarray

    def __add__(self, other: Sums) -> Sums:
        sums = {}
        for name in ("tail", "tail_square", "queue", "queue_square", "flow", "second", "apart"):
            pair = getattr(self, name), getattr(other, name)  # one may have met longer queues
            levels = max(part.shape[-2] if part.ndim > 1 else 0 for part in pair)
            sums[name] = at_levels(pair[0], levels) + at_levels(pair[1], levels)
        counters = {name: self.counters[name] + other.counters[name] for name in self.counters}
        return Sums(self.looks + other.looks, self.ticks + other.ticks, **sums, counters=counters,
                    path=np.concatenate([self.path, other.path]))


class Watch:
    """An engine that is looked at; `passed` hears of the ticks done."""

    def __init__(self, engine: Engine, passed: Callable[[int], None]) -> None:
        self.engine, self._passed = engine, passed
        self._balance = _balance(engine.model)
        self._balanced = engine.model
        self._most = engine.call

    def skip(self, ticks: int) -> None:
        """Let the replicas have so many ticks."""
        while ticks:
            part = min(ticks, self._most)
            self._advance([part])
            ticks -= part

    def look(self, gaps: np.ndarray, *, controls: bool = True) -> Sums:
        """Sums over one look after gaps[0] ticks, one after gaps[1] more, and so on; flow and second are 0 without `controls`."""
        engine, replicas = self.engine, self.engine.replicas
        before = {name: total.copy() for name, total in engine.totals.items()}
        sums: Sums | None = None
        rows: list[int] = []
        for k, gap in enumerate(map(int, gaps)):
            if gap > self._most:
                self.skip(gap - self._most)
                gap = self._most
            rows.append(gap)
            following = int(gaps[k + 1]) if k + 1 < len(gaps) else None
            if following is None or len(rows) == SEGMENTS or sum(rows) + following > self._most:
                saved = self._advance(rows)
                if engine.model is not self._balanced:  # it has grown
                    self._balance, self._balanced = _balance(engine.model), engine.model
                for counts, taken in zip(saved, rows, strict=True):
                    one = self._sums(counts, taken, controls)
                    sums = one if sums is None else sums + one
                rows = []
        assert sums is not None  # at least one gap
        counters = {name: (total - before.get(name, 0))[:replicas] for name, total in engine.totals.items()}
        return Sums(**(vars(sums) | {"counters": counters, "ticks": int(np.sum(gaps))}))

    def _sums(self, counts: np.ndarray, ticks: int, controls: bool) -> Sums:
        model = self.engine.model
        tail = np.asarray(model.pool_tails(counts)) / model.n
        everyone = tail.sum(axis=0)
        queue = everyone.sum(axis=0)
        apart = np.zeros((0, queue.size))
        if isinstance(model, Leap):
            apart = np.asarray(model.coarse(counts)) / model.n - everyone
            counts = counts[: model.states]
        flow, second = (self._balance if controls else _nothing)(counts, tail, queue)
        return Sums(1, ticks, tail, everyone**2, queue, queue**2, flow, second, {}, np.array([queue.mean()]), apart)

    def _advance(self, rows: list[int]) -> np.ndarray:
        counts, _ = self.engine.advance(np.repeat(np.array(rows)[:, None], self.engine.replicas, axis=1))
        self._passed(sum(rows) * self.engine.replicas)
        return counts


def _balance(model: Model) -> Balance:
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

        def generator(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            with jax.enable_x64(True):
                flow, second = _generator(leaves, steps, counts.astype(np.float64), queue, 1.0 / model.n)
                return np.asarray(flow), np.asarray(second)

        return generator
    known = model.steady()
    if known.arrivals is None or known.rates is None or not known.lossless:
        return _nothing
    arrived, rates, n = known.arrivals / model.n, np.array(known.rates), model.n

    def flows(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        served = np.tensordot(rates, tail[:, 0], 1)
        return (arrived - served)[None, None], 2 * queue * (arrived - served) + (arrived + served) / n

    return flows


def _nothing(counts: np.ndarray, tail: np.ndarray, queue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
