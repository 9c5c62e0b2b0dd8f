"""Simulation against exact and published values, all within 5 standard errors of the run itself.

Precision: relative standard error at most 1e-3 for the mean queue length and for levels whose exact value is at least 0.02,
at most 1e-2 for levels in [1e-3, 0.02); rarer levels by the count of replicas that reach them, against its exact binomial
law (tail probability above 1e-6). Stationary runs start after 10 relaxation times. Seeds are fixed.
"""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sparse
from scipy import stats
from scipy.sparse.linalg import expm_multiply, spsolve

import jaxq
from jaxq import bits
from jaxq.engine import Engine


def exact_chain(case):
    """Sorted queue lengths and the generator of the whole chain, from the definition, server by server."""
    n, d, rate, buffer = case["n"], case["d"], case["arrival_rate"], case["buffer"]
    states = list(itertools.combinations_with_replacement(range(buffer + 1), n))
    index = {state: k for k, state in enumerate(states)}
    picks = list(itertools.product(range(n), repeat=d) if case["replacement"] else itertools.combinations(range(n), d))
    rows, columns, rates = [], [], []
    for state in states:
        moves = [(min((state[s], s) for s in pick)[1], 1, n * rate / len(picks)) for pick in picks]
        moves += [(server, -1, 1.0) for server in range(n)]
        for server, step, r in moves:
            if 0 <= state[server] + step <= buffer:
                after = list(state)
                after[server] += step
                rows.append(index[state])
                columns.append(index[tuple(sorted(after))])
                rates.append(r)
    q = sparse.coo_matrix((rates, (rows, columns)), shape=(len(states),) * 2).tocsc()
    return np.array(states), q - sparse.diags(np.asarray(q.sum(axis=1)).ravel())


def stationary_law(case):
    states, q = exact_chain(case)
    a = q.T.tolil()
    a[0] = 1.0
    right = np.zeros(len(states))
    right[0] = 1.0
    return states, spsolve(a.tocsc(), right)


def tails(states, law, levels):
    return np.array([(states >= i).mean(axis=1) @ law for i in range(1, levels + 1)])


def check_rare(counts, probabilities, replicas):
    """Replicas that reach a level, against the exact binomial law."""
    for count, p in zip(counts, probabilities, strict=True):
        assert min(stats.binom.cdf(count, replicas, p), stats.binom.sf(count - 1, replicas, p)) > 1e-6


def time_averages(model, *, replicas, saves, gap, seed):
    """Per-replica averages, (levels, replicas), over `saves` states `gap` time units apart after the warm-up; the last state.

    Uniformised ticks see time averages, so ticks stand for time. The warm-up, from the rounded fixed point, is 10 times the
    slower of the mean field's slow mode, 1/((1 - lambda) ln d), and of n servers pooled, 1/(n (1 - sqrt(lambda))**2).
    """
    rate = model.arrival_rate
    warm = 10 * max(1 / ((1 - rate) * math.log(model.d)), 1 / (model.n * (1 - rate**0.5) ** 2))
    run = Engine(model, np.floor(model.n * model.guess() + 0.5).astype(int), bits.key_words(seed), replicas)
    left = math.ceil(warm * run.clock)
    while left > 0:
        step = min(left, run.longest)
        run.advance(np.full((1, replicas), step))
        left -= step
    total = np.zeros((0, replicas), np.int64)
    for _ in range(saves // 8):
        counts, _ = run.advance(np.full((8, replicas), math.ceil(gap * run.clock)))
        total = np.pad(total, ((0, counts.shape[1] - total.shape[0]), (0, 0)))
        total += counts.sum(axis=0, dtype=np.int64)
    assert run.ticks[:replicas].sum() <= 2e9
    return total / (saves // 8 * 8 * model.n), counts[-1]


def check(estimates, exact, name, bound):
    """Mean over replicas within 5 standard errors, and the standard error itself small enough."""
    mean, error = estimates.mean(), estimates.std(ddof=1) / estimates.size**0.5
    assert error <= bound * exact, f"{name}: relative standard error {error / exact:.2g}"
    assert abs(mean - exact) < 5 * error, f"{name}: {mean} +- {error}, exact {exact}"


SETTINGS = [{"replicas": 16384, "saves": 3200, "gap": 9.4}, {"replicas": 16384, "saves": 1600, "gap": 7.1},
            {"replicas": 16384, "saves": 1600, "gap": 7.1}]  # gaps of one and of two chunks of ticks


@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)])
def test_exact_stationary_laws(reference, index):
    case = reference("supermarket_exact")[index]
    states, law = stationary_law(case)
    exact = tails(states, law, len(case["tail"]))
    np.testing.assert_allclose(exact, case["tail"], rtol=1e-9)
    # the exact chain was cut where nobody is (a server is full with probability below 1e-17): run the unbounded model
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"], case["replacement"])
    estimates, last = time_averages(model, seed=100 + index, **SETTINGS[index])
    check(estimates.sum(axis=0), case["mean_queue_length"], "Q", 1e-3)
    rare = []
    for i, value in enumerate(case["tail"]):
        if value >= 1e-3:
            check(estimates[i], value, f"S_{i + 1}", 1e-3 if value >= 0.02 else 1e-2)
        else:
            rare.append(i)
    reached = [(last[i] > 0).sum() for i in rare]
    check_rare(reached, [law[(states > i).any(axis=1)].sum() for i in rare], last.shape[1])


@pytest.mark.parametrize("index", [0, 1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_published_stationary_means(reference, index):
    """Gast, Bortolussi and Tribastone 2018, Table 2, and an independent run: within 5 joint standard errors."""
    case = reference("published")[index]
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"])
    saves = 96 if case["n"] >= 100 else 240
    estimates, _ = time_averages(model, replicas=8192, saves=saves, gap=1.0 / (1 - case["arrival_rate"]), seed=200 + index)
    queue, busy = estimates.sum(axis=0), estimates[0] - case["arrival_rate"]  # E S_1 = lambda: a control variate
    slope, level = np.polyfit(busy, queue, 1)
    queue = queue - slope * busy
    error = queue.std(ddof=2) / queue.size**0.5
    assert abs(queue.mean() - level) < 1e-9
    assert error < 1e-3 * queue.mean()
    assert abs(queue.mean() - case["ours"]) < 5 * math.hypot(error, case["se"])
    assert abs(queue.mean() - case["published"]) < 5 * math.hypot(error, case["se"]) + 1e-3  # printed to four digits


def transient(case, seeds, replicas):
    """Means and standard errors (time, level), pooled over seeds, and how many replicas reach each level."""
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"], case["replacement"])  # nobody meets the buffer
    runs = [jaxq.simulate(model, case["times"], seed, replicas=replicas, save="paths") for seed in seeds]
    levels = len(case["tails_from_empty"][0])
    mean = np.mean([run.tail_mean[:, :levels] for run in runs], axis=0)
    error = np.sqrt(np.sum([run.tail_stderr[:, :levels] ** 2 for run in runs], axis=0)) / len(runs)
    return mean, error, sum((run.paths[:, :levels] > 0).sum(axis=2) for run in runs)


def check_transient(case, seeds, replicas, precise):
    states, q = exact_chain(case)
    start = np.zeros(len(states))
    start[0] = 1.0
    mean, error, reached = transient(case, seeds, replicas)
    for k, t in enumerate(case["times"]):
        law = expm_multiply(q.T * t, start)
        exact = np.array(case["tails_from_empty"][k])
        np.testing.assert_allclose(tails(states, law, exact.size), exact, rtol=1e-8, atol=1e-14)
        common = exact >= 1e-3
        if precise:
            assert np.all(error[k][exact >= 0.02] <= 1e-3 * exact[exact >= 0.02])
            assert np.all(error[k][common] <= 1e-2 * exact[common])
        assert np.all(np.abs(mean[k] - exact)[common] < 5 * error[k][common])
        rare = np.flatnonzero(~common)
        check_rare(reached[k, rare], [law[(states > i).any(axis=1)].sum() for i in rare], len(seeds) * replicas)


def test_exact_transient(reference):
    check_transient(reference("supermarket_exact")[3], [7], 2**19, precise=False)


@pytest.mark.slow
def test_exact_transient_to_full_precision(reference):
    check_transient(reference("supermarket_exact")[3], range(20, 34), 2**20, precise=True)
