"""Graphs in steady state: exact values of small graphs, and those of an independent program, in standard errors of the run."""

import numpy as np
import pytest

import jaxq
from jaxq import bits, engine, graphs
from jaxq.estimate import Regression
from jaxq.graph_study import vertex_means


def small_graph(case):
    n = len(case["neighbours"])
    adjacency = np.zeros((n, n), int)
    for vertex, others in enumerate(case["neighbours"]):
        adjacency[vertex, others] = 1
    return jaxq.GraphSupermarket(graphs.from_adjacency(adjacency), case["d"], case["arrival_rate"], buffer=case["buffer"])


@pytest.mark.parametrize("case", [0, 1])
def test_exact_stationary_values(case, reference):
    """Tail and per-vertex means of small graphs within 5 standard errors (p about 6e-7 each)."""
    exact = reference("graph")[case]
    found = vertex_means(small_graph(exact), 5, replicas=8192, warmup=80.0, horizon=600.0, samples=60)
    tail = np.array(exact["tail"])
    mean, error = found.tail[: tail.size], found.tail_stderr[: tail.size]
    assert np.all(np.abs(mean - tail) < 5 * error)
    assert np.all(np.abs(found.mean_queue_length - exact["per_vertex_mean"]) < 5 * found.mean_queue_length_stderr)
    assert np.all(error[:3] < 5e-3 * tail[:3])
    assert np.all(found.mean_queue_length_stderr < 2e-3 * found.mean_queue_length)


def balances(q, case):
    """The generator's images of N, N^2 and N^3, (3, replicas), N the customers of q (vertex, replica), at d = 2. They have mean
    0 whichever server a customer takes, so that as controls they cannot hide a wrong choice."""
    pairs = [(own, other, 1 / len(others)) for own, others in enumerate(case["neighbours"]) for other in others]
    full = q == case["buffer"]
    blocked = sum(weight * (full[own] & full[other]) for own, other, weight in pairs)
    joined, busy, N = case["arrival_rate"] * (len(q) - blocked), (q > 0).sum(axis=0), q.sum(axis=0, dtype=float)
    return np.array([joined * ((N + 1) ** p - N**p) + busy * ((N - 1) ** p - N**p) for p in (1, 2, 3)])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "looks", "gap"), [(0, 750, 96), (1, 1700, 32)])  # gaps of whole chunks of ticks
def test_exact_stationary_values_to_three_digits(case, looks, gap, reference):
    """As above, sharpened by controls; S_1 is one of them (E S_1 = accepted arrivals) and stands without."""
    exact = reference("graph")[case]
    run = engine.Engine(small_graph(exact), None, bits.key_words(5), 8192, segments=1)
    tail, vertices = np.array(exact["tail"]), np.array(exact["per_vertex_mean"])
    run.advance(np.full((1, 8192), round(80 * run.clock)))
    queues, controls, longer = 0, 0, np.zeros((tail.size, 8192))
    for _ in range(looks):
        run.advance(np.full((1, 8192), gap))
        q = np.asarray(run.state[0])[:, :8192].astype(np.int32)
        queues, controls = queues + q, controls + balances(q, exact)
        for level in range(tail.size):
            longer[level] += (q > level).sum(axis=0)
    values, wanted = np.concatenate([longer / vertices.size, queues]).T / looks, np.concatenate([tail, vertices])
    plain, plain_error = Regression(np.zeros((8192, 0))).means(values)
    assert np.all(np.abs(plain - wanted) < 5 * plain_error)
    zero, zero_error = Regression(np.zeros((8192, 0))).means(controls.T / looks)
    assert np.all(np.abs(zero) < 5 * zero_error)
    mean, error = Regression(controls.T / looks).means(values)
    mean[0], error[0] = plain[0], plain_error[0]
    assert np.all(np.abs(mean - wanted) < 5 * error)
    assert np.all(error < wanted * np.where(wanted >= 0.02, 1e-3, 1e-2))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "rate", "value", "value_error", "warmup", "horizon"), [
    (lambda: graphs.ring(100), 0.7, 1.25545, 1.1e-4, 100.0, 1500.0),
    (lambda: graphs.torus(10), 0.9, 2.58505, 3.0e-4, 500.0, 2500.0)])
def test_values_measured_by_an_independent_program(make, rate, value, value_error, warmup, horizon):
    found = vertex_means(jaxq.GraphSupermarket(make(), 2, rate), 7, replicas=2048, warmup=warmup, horizon=horizon, samples=150)
    means, errors = found.tail, found.tail_stderr
    error = np.hypot(value_error, np.sum(errors))  # levels rise and fall together: their errors add at most
    assert abs(means.sum() - value) < 5 * error
    assert np.sum(errors) < 2e-3
    assert abs(means[0] - rate) < 5 * errors[0]  # every customer is served once
