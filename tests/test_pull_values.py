"""PULL: exact stationary values, by the rates and by simulation, and values that were measured elsewhere."""

import math

import jax
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from pull_protocol import counted

import jaxq
from jaxq import bits, engine, pull_theory
from jaxq.models.pools import Pool
from jaxq.models.pull import Pull


def case_model(case):
    n = sum(case["pools"])
    pools = [Pool(size / n, rate, buffer) for size, rate, buffer in
             zip(case["pools"], case["service_rates"], case["buffers"], strict=True)]
    return Pull(n, pools, case["routers"], case["arrival_rate"], case["messages"])


def stationary(model, start):
    """(counts of every state, their stationary probabilities), from jumps and rates by enumeration."""
    jumps, index, todo, entries = model.jumps, {tuple(start): 0}, [tuple(start)], []
    rates_at = jax.jit(model.rates)
    while todo:
        state = todo.pop()
        rates = np.asarray(rates_at(np.array(state) / model.n, 1 / model.n)) * model.n
        for jump, rate in zip(jumps, rates, strict=True):
            if rate > 0 and jump.any():
                after = tuple((np.array(state) + jump).tolist())
                if after not in index:
                    index[after] = len(index)
                    todo.append(after)
                entries.append((index[state], index[after], rate))
    row, column, rate = map(np.array, zip(*entries, strict=True))
    size = len(index)
    flow = scipy.sparse.coo_matrix((rate, (column, row)), (size, size)).tocsr()
    balance = (flow - scipy.sparse.diags(np.asarray(flow.sum(axis=0)).ravel())).tolil()
    balance[0] = 1.0
    return np.array(list(index)), scipy.sparse.linalg.spsolve(balance.tocsc(), np.eye(size)[0])


@pytest.mark.parametrize("which", range(3))
def test_rates_meet_the_exact_stationary_values(reference, which):
    case = reference("pull")[which]
    model = case_model(case)
    with jax.enable_x64(True):
        counts, pi = stationary(model, counted(model, [(pool, 0, 0) for pool, size in enumerate(case["pools"])
                                                       for _ in range(size)]))
    mu = np.array(case["service_rates"])
    busy = model.busy(counts.T) @ pi
    np.testing.assert_allclose(busy, case["busy"], rtol=1e-9)
    arrivals = model.n * case["arrival_rate"]
    p_block = 1 - busy @ (mu * case["pools"]) / arrivals  # what is let in leaves
    classes = model.classes
    last = (model.occupancy(counts.T) @ pi) @ (mu[classes.pool] * (classes.length == 1))  # rate of becoming idle, and busy
    assert p_block == pytest.approx(case["p_block"], rel=1e-9, abs=1e-14)
    assert 1 - p_block - last / arrivals == pytest.approx(case["p_wait"], rel=1e-9)
    assert model.tail(counts.T).sum(axis=0) @ pi / model.n == pytest.approx(case["mean_queue_length"], rel=1e-9)


def z_score(values, exact):
    """(standard scores of the mean over replicas against an exact value, its relative standard error)."""
    error = values.std(ddof=1) / values.size**0.5
    return (values.mean() - exact) / error, error / values.mean()


@pytest.mark.parametrize(("which", "step", "count"), [(0, 3.0, 100), (1, 3.0, 100), (2, 8.0, 400)])
def test_simulation_meets_the_exact_stationary_values(reference, which, step, count):
    """Within 5 standard errors of this run, replicas as batches; the slowest relaxation takes about 3 time units."""
    case, replicas = reference("pull")[which], 4096
    model = case_model(case)
    result = jaxq.simulate(model, 30 + step * np.arange(count), 11, replicas=replicas, save="paths")
    window = {name: path[-1] - path[0] for name, path in result.counter_paths.items()}
    arrivals = window["arrivals"].mean()
    for name, counter in (("p_wait", "waited"), ("p_block", "lost")):
        exact = case[name]
        if exact < 1e-3:  # the count test: Poisson at least, so 5 sd of the count
            mean = exact * arrivals * replicas
            assert abs(window[counter].sum() - mean) < 5 * (2 * mean) ** 0.5 + 5
            continue
        z, relative = z_score(window[counter] / arrivals, exact)
        assert abs(z) < 5
        assert relative < 1e-2
    z, relative = z_score(result.paths.sum(axis=1).mean(axis=0) / model.n, case["mean_queue_length"])
    assert abs(z) < 5
    assert relative < 1e-3

    run = engine.Engine(model, None, bits.key_words(12), replicas)
    rows = np.full((8, replicas), int(3 * model.clock()))
    run.advance(np.full((1, replicas), int(30 * model.clock())))
    busy = np.concatenate([model.busy(counts)[None] for _ in range(4) for counts in run.advance(rows)[0]]).mean(axis=0)
    for pool, exact in enumerate(case["busy"]):
        assert abs(z_score(busy[pool], exact)[0]) < 5
    gained = run.totals["messages"].sum() / run.totals["arrivals"].sum()
    if case["messages"] == "withdraw":
        assert gained == pytest.approx(1 - case["p_wait"] - case["p_block"], rel=5e-3)


# measured elsewhere, by an independent program

PUBLISHED = {
    "n=100, R=1": (Pull(100, [Pool(1.0)], 1, 0.9), [[90]], "waited", 0.0623, 0.0008),
    "n=100, R=2": (Pull(100, [Pool(1.0)], 2, 0.9), [[90]], "waited", 0.144, 0.001),
    "n=1000, R=2": (Pull(1000, [Pool(1.0)], 2, 0.9), [[900]], "waited", 0.0098, 0.0002),
    "two pools, waiting": (Pull(1000, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 2, 0.8), [[382], [453]], "waited", 0.0025, 0.0001),
    "two pools, blocked": (Pull(1000, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 2, 0.8), [[382], [453]], "lost", 0.0022, 0.0001),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_simulation_meets_what_was_measured_elsewhere(name):
    """Within 5 joint standard errors."""
    model, initial, counter, value, error = PUBLISHED[name]
    found = jaxq.simulate(model, [60.0, 160.0], 1, replicas=200_000 // model.n + 300, initial=initial,
                          save="paths")
    share = np.diff(found.counter_paths[counter], axis=0)[0] / np.diff(found.counter_paths["arrivals"], axis=0).mean()
    own = share.std(ddof=1) / share.size**0.5
    assert own < max(error, 1e-4)
    assert abs(share.mean() - value) < 5 * math.hypot(own, error)


@pytest.mark.slow
def test_many_routers_meet_what_was_measured_elsewhere_and_come_near_the_formula():
    """T = Q/lambda by Little; n = 1000, R = 100: 1.7714 (0.0013) measured, 1.7654 as n grows."""
    model = Pull(1000, [Pool(1.0)], 100, 0.9)
    found = jaxq.simulate(model, np.linspace(60, 150, 31), 1, replicas=256, initial=[[960, 300, 100, 30, 10]], save="paths")
    times = found.paths.sum(axis=1).mean(axis=0) / 900
    own = times.std(ddof=1) / times.size**0.5
    assert abs(times.mean() - 1.7714) < 5 * math.hypot(own, 0.0013)
    assert abs(times.mean() - pull_theory.many_routers_response_time(10, 0.9)) < 0.02
