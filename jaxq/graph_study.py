"""Long runs on graphs: mean queue lengths vertex by vertex, and the gap to the clique's mean field against the mean degree.

Both average over time after a warm-up, at fixed tick numbers: uniformised ticks see time averages. Errors come from the
replicas, which are independent.
"""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check, bits, files, graphs, hosts
from .chain import Model
from .checkpoint import EVERY, Checkpoint
from .engine import MAX_TICK, Engine
from .ensemble import Result, describe, describe_start
from .mean_field import fixed_point
from .models.graph import GraphSupermarket
from .models.supermarket import Supermarket
from .pair_approximation import pair_approximation
from .stationary import stationary
from .steady_state import Stationary
from .watch import Watch

KINDS = ("ring", "regular", "erdos-renyi")
_SAMPLES = 64    # looks at the queues of every vertex after the warm-up
_ROW = ("kind", "degree", "mean_degree", "mean_queue_length", "mean_queue_length_stderr", "gap", "gap_stderr",
        "pair_approximation", "drift")


@dataclass(frozen=True)
class VertexMeans(Result):
    """Time averages at each vertex: `mean_queue_length` and its standard error `mean_queue_length_stderr`, (vertex,), customers;
    over all vertices `tail` and `tail_stderr`, (level,), level 1 first. Errors are over the replicas.

    Example::

        >>> model = jaxq.GraphSupermarket(jaxq.graphs.ring(4, 2), 1, 0.5)
        >>> found = jaxq.vertex_means(model, key=0, replicas=64, warmup=20.0, horizon=100.0)
        >>> abs(float(found.tail.sum()) - float(found.mean_queue_length.mean())) < 1e-9
        True
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "mean_queue_length": ("vertex",), "mean_queue_length_stderr": ("vertex",), "tail": ("level",), "tail_stderr": ("level",)}
    json_keys: ClassVar[tuple[str, ...]] = ("mean_queue_length", "mean_queue_length_stderr", "tail", "tail_stderr", "events")

    mean_queue_length: np.ndarray
    mean_queue_length_stderr: np.ndarray
    tail: np.ndarray
    tail_stderr: np.ndarray
    events: int
    replicas: int
    seed: int
    model: dict[str, Any]


def vertex_means(model: GraphSupermarket, key: Any, *, replicas: int, warmup: float, horizon: float, samples: int = _SAMPLES,
                 initial: Any = None, devices: Sequence[Any] | None = None, block: int | None = None) -> VertexMeans:
    """Mean queue length at every vertex of a graph, averaged over `samples` looks in (warmup, warmup + horizon].

    Args:
      key, replicas, initial, devices, block: as in `simulate`; at least 2 replicas, for the errors.
      warmup, horizon: in units of the model's rates; the relaxation time of a lone queue is 1/(1 - sqrt(lambda))**2.
      samples: looks, evenly spaced in ticks.

    Returns VertexMeans. Raises ValueError for bad input.

    Example, where d = 1 leaves four M/M/1 queues with rho/(1 - rho) customers::

        >>> model = jaxq.GraphSupermarket(jaxq.graphs.ring(4, 2), 1, 0.5)
        >>> jaxq.vertex_means(model, key=0, replicas=64, warmup=20.0, horizon=100.0).mean_queue_length.round(1)
        array([1., 1., 1., 1.])
    """
    if not isinstance(model, GraphSupermarket):
        raise ValueError(f"vertex_means needs a jaxq.GraphSupermarket as its model; got {type(model).__name__}")
    words = bits.key_words(key)
    replicas = _check.integer("replicas", replicas, 2, 2**31 - 1, "the error bars come from independent replicas")
    warmup, horizon = _check.real("warmup", warmup, 0.0), _check.real("horizon", horizon, 0.0, open_low=True)
    samples = _check.integer("samples", samples, 1, 10**6)
    engine = Engine(model, initial, words, replicas, devices=devices, block=block, segments=1)
    if (warmup + horizon) * engine.clock >= MAX_TICK:
        raise ValueError(f"warmup and horizon must end before a replica has had 2**52 ticks; got {warmup:g} and {horizon:g}; use "
                         "shorter ones")
    watch = Watch(lambda: engine, lambda ticks: None)
    watch.skip(math.ceil(warmup * engine.clock))
    queues, looks = np.zeros((model.n, replicas), np.int64), []
    for _ in range(samples):
        looks.append(watch.look(np.array([max(1, math.ceil(horizon * engine.clock / samples))])))
        queues += hosts.gather(engine.state[0])[:, :replicas]
    tail = functools.reduce(operator.add, looks).tail[0] / samples
    root = math.sqrt(replicas)
    given = {"warmup": warmup, "horizon": horizon, "samples": samples, "initial": describe_start(initial)}
    return VertexMeans(given, queues.mean(axis=1) / samples, queues.std(axis=1, ddof=1) / (samples * root),
                       tail.mean(axis=1), tail.std(axis=1, ddof=1) / root, int(engine.ticks[:replicas].sum()), replicas,
                       int(words[0]) << 32 | int(words[1]), describe(model))


@dataclass(frozen=True)
class GraphStudy(Result):
    """Stationary mean queue length against mean degree, from `graph_study`; one point for each kind and degree.

    kind, degree, mean_degree (that of the graph drawn), mean_queue_length, per vertex, with its standard error: (point,).
    gap: mean_queue_length minus the mean field's of the complete graph, `mean_field`; gap_stderr: its standard error.
    clique, clique_stderr: the complete graph on n vertices, simulated: what is left of its gap at this n.
    pair_approximation: (point,) of the regular kinds at d = 2, else nan.
    drift: (point,) second half of the horizon minus the first, in standard errors: far from 0 the warm-up was too short.
    warmup, horizon: time left out, and the window, in mean service times.

    Example::

        >>> study = jaxq.graph_study("ring", 2, n=30, d=3, arrival_rate=0.5, replicas=16, key=0, warmup=20.0, horizon=100.0)
        >>> str(study.kind[0]), float(study.mean_degree[0]), round(study.mean_field, 3)
        ('ring', 2.0, 0.563)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {name: ("point",) for name in _ROW}
    texts: ClassVar[tuple[str, ...]] = ("kind",)
    json_keys: ClassVar[tuple[str, ...]] = ("rows", "mean_field", "clique", "clique_stderr", "warmup", "horizon", "events")

    kind: np.ndarray
    degree: np.ndarray
    mean_degree: np.ndarray
    mean_queue_length: np.ndarray
    mean_queue_length_stderr: np.ndarray
    gap: np.ndarray
    gap_stderr: np.ndarray
    pair_approximation: np.ndarray
    drift: np.ndarray
    mean_field: float
    clique: float
    clique_stderr: float
    n: int
    d: int
    arrival_rate: float
    replicas: int
    warmup: float
    horizon: float
    events: int
    seed: int
    graph_seed: int

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per point, as in the JSON object."""
        return [{name: getattr(self, name)[k] for name in _ROW} for k in range(self.kind.size)]

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per point, with n, d, lambda, the mean field and the clique on each."""
        shared = ("n", "d", "arrival_rate", "mean_field", "clique", "clique_stderr", "replicas", "seed", "graph_seed")
        files.write_csv(path, _ROW + shared, (
            [value.item() for value in row.values()] + [getattr(self, name) for name in shared] for row in self.rows))


def graph_study(kinds: Sequence[str], degrees: Sequence[int], n: int, d: int, arrival_rate: float, replicas: int, key: Any, *,
                graph_seed: int = 0, warmup: float | None = None, horizon: float | None = None, replacement: bool = False,
                devices: Sequence[Any] | None = None, checkpoint: Any = None, every: float = EVERY, resume: bool = False,
                progress: bool | None = None) -> GraphStudy:
    """How far graphs are from the mean field of the complete graph, as their mean degree grows.

    Args:
      kinds: of "ring" (nearest neighbours), "regular" (random) and "erdos-renyi". degrees: mean degrees, even for a ring.
      n, d, arrival_rate, replacement: the model; lambda < 1. replicas: independent copies, at least 2. key: as in `simulate`.
      graph_seed: each random point is one graph; its error is that of the replicas on this graph, not over graphs.
      warmup, horizon: time units, from the mean field's fixed point at random vertices. None: 4 and 8 relaxation times
        1/(1 - sqrt(lambda))**2 of a lone queue, which choice only shortens; `drift` of the result checks it.
      checkpoint, every, resume: as in `stationary`.

    Returns GraphStudy. Raises ValueError for bad input. Source: Budhiraja, Mukherjee and Wu, arXiv:1712.07607.

    Example, a ring, whose queues are longer than those of the mean field::

        >>> study = jaxq.graph_study("ring", 2, n=30, d=3, arrival_rate=0.5, replicas=16, key=0, warmup=20.0, horizon=100.0)
        >>> (study.gap > 3 * study.gap_stderr).tolist()
        [True]
    """
    kinds = [_check.choice("kinds", kind, KINDS) for kind in np.atleast_1d(np.asarray(kinds, object))]
    n = _check.integer("n", n, 2, 2**31 - 1, "give the number of vertices")
    degrees = [_check.integer("degrees", degree, 1, n - 1) for degree in np.atleast_1d(np.asarray(degrees, object))]
    if not kinds or not degrees:
        raise ValueError(f"a graph study needs at least one kind and one degree; got kinds={kinds}, degrees={degrees}")
    replicas = _check.integer("replicas", replicas, 2, 2**31 - 1, "the error bars come from independent replicas")
    rate = _check.real("arrival_rate", arrival_rate, 0.0, 1.0, open_low=True, open_high=True,
                       hint="the study is of stationary queues")
    warmup, horizon = study_window(rate, warmup, horizon)
    graph_seed = _check.integer("graph_seed", graph_seed, 0)
    devices, replacement = _check.devices(devices), _check.flag("replacement", replacement)
    progress = None if progress is None else _check.flag("progress", progress)
    points = [(kind, degree, draw_graph(kind, n, degree, graph_seed)) for kind in kinds for degree in degrees]
    words = bits.key_words(key)
    file = Checkpoint.of(checkpoint, every, resume, "graph_study")
    limit = fixed_point(Supermarket(n, d, rate, replacement))

    def measure(model: Model, index: int) -> Stationary:
        high, low = (int(part[0]) for part in bits.fold_in(words, np.array([index], np.uint32)))  # every point its own words
        start = limit.tail[: max(1, int(np.sum(limit.tail >= 0.5 / n)))]
        return stationary(model, high << 32 | low, replicas=replicas, warmup=warmup, horizon=horizon, initial=start,
                          devices=devices, checkpoint=file.part(f"point {index}"), progress=progress)

    clique = measure(Supermarket(n, d, rate, replacement), 0)
    found = [measure(GraphSupermarket(graph, d, rate, replacement), 1 + index) for index, (*_, graph) in enumerate(points)]
    mean, error, drift = (np.array([getattr(result, name) for result in found])
                          for name in ("mean_queue_length", "mean_queue_length_stderr", "drift"))
    regular = {degree for kind, degree, _ in points if d == 2 and kind != "erdos-renyi" and not replacement}
    known = {degree: pair_approximation(degree, rate).mean_queue_length for degree in regular}
    pair = [np.nan if kind == "erdos-renyi" else known.get(degree, np.nan) for kind, degree, _ in points]
    attributes = {"replacement": replacement} | {
        name: sum(getattr(result, name) for result in (clique, *found)) for name in ("seconds", "compile_seconds")}
    return GraphStudy(
        attributes, np.array([kind for kind, *_ in points]), np.array([degree for _, degree, _ in points]),
        np.array([graph.mean_degree for *_, graph in points]), mean, error, mean - limit.mean_queue_length, error,
        np.array(pair), drift, limit.mean_queue_length, clique.mean_queue_length, clique.mean_queue_length_stderr, n, d, rate,
        replicas, warmup, horizon, clique.events + sum(result.events for result in found),
        int(words[0]) << 32 | int(words[1]), graph_seed)


def study_window(rate: float, warmup: float | None, horizon: float | None) -> tuple[float, float]:
    """Warm-up and window of every point, as given or from the relaxation time of a lone queue."""
    relaxation = 1 / (1 - math.sqrt(rate)) ** 2
    return (4 * relaxation if warmup is None else _check.real("warmup", warmup, 0.0),
            8 * relaxation if horizon is None else _check.real("horizon", horizon, 0.0, open_low=True))


def draw_graph(kind: str, n: int, degree: int, seed: int) -> graphs.Graph:
    """The graph of a point of the study."""
    if kind == "ring":
        return graphs.ring(n, degree)
    return graphs.random_regular(n, degree, seed) if kind == "regular" else graphs.erdos_renyi(n, degree, seed)
