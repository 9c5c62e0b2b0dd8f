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
from jaxq.estimate import Regression


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
    """Per-replica averages, (levels, replicas), over `saves` states `gap` time units apart after the warm-up; of the controls
    below, (3, replicas); the last state.

    Uniformised ticks see time averages, so ticks stand for time. The warm-up, from the rounded fixed point, is 10 times the
    slower of the mean field's slow mode, 1/((1 - lambda) ln d), and of n servers pooled, 1/(n (1 - sqrt(lambda))**2).

    Controls: the generator's images of N, N^2, N^3, N all customers. They have mean 0 whichever servers customers choose, so
    that they cannot hide a wrong choice; the first is n (lambda - S_1).
    """
    rate = model.arrival_rate
    warm = 10 * max(1 / ((1 - rate) * math.log(model.d)), 1 / (model.n * (1 - rate**0.5) ** 2))
    run = Engine(model, np.floor(model.n * model.guess() + 0.5).astype(int), bits.key_words(seed), replicas)
    left = math.ceil(warm * run.clock)
    while left > 0:
        step = min(left, run.longest)
        run.advance(np.full((1, replicas), step))
        left -= step
    total, controls = np.zeros((0, replicas), np.int64), np.zeros((3, replicas))
    for _ in range(saves // 8):
        counts, _ = run.advance(np.full((8, replicas), math.ceil(gap * run.clock)))
        total = np.pad(total, ((0, counts.shape[1] - total.shape[0]), (0, 0)))
        total += counts.sum(axis=0, dtype=np.int64)
        everyone, busy = counts.sum(axis=1, dtype=float), counts[:, 0]
        for p in (1, 2, 3):
            joins, leaves = (everyone + 1) ** p - everyone**p, (everyone - 1) ** p - everyone**p
            controls[p - 1] += (model.n * rate * joins + busy * leaves).sum(axis=0)
    assert run.ticks[:replicas].sum() <= 2e9
    return total / (saves // 8 * 8 * model.n), controls / (saves // 8 * 8), counts[-1]


def plain(values):
    """Means and standard errors over replicas, the last axis."""
    return values.mean(axis=-1), values.std(axis=-1, ddof=1) / values.shape[-1] ** 0.5


def check(found, exact, name, bound=None):
    """(mean, standard error) within 5 standard errors of the exact value, and the standard error itself small enough."""
    mean, error = found
    assert bound is None or error <= bound * exact, f"{name}: relative standard error {error / exact:.2g}"
    assert abs(mean - exact) < 5 * error, f"{name}: {mean} +- {error}, exact {exact}"


SETTINGS = [{"replicas": 16384, "saves": 960, "gap": 9.4}, {"replicas": 16384, "saves": 640, "gap": 7.1},
            {"replicas": 16384, "saves": 640, "gap": 7.1}]  # gaps of one chunk of ticks


@pytest.mark.parametrize("index", [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)])
def test_exact_stationary_laws(reference, index):
    case = reference("supermarket_exact")[index]
    states, law = stationary_law(case)
    exact = tails(states, law, len(case["tail"]))
    np.testing.assert_allclose(exact, case["tail"], rtol=1e-9)
    # the exact chain was cut where nobody is (a server is full with probability below 1e-17): run the unbounded model
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"], case["replacement"])
    estimates, controls, last = time_averages(model, seed=100 + index, **SETTINGS[index])
    sharper = Regression(controls.T)
    for k, control in enumerate(controls):
        check(plain(control), 0.0, f"control {k}")
    check(plain(estimates.sum(axis=0)), case["mean_queue_length"], "Q without controls")
    check(sharper.means(estimates.sum(axis=0)), case["mean_queue_length"], "Q", 1e-3)
    rare = []
    for i, value in enumerate(case["tail"]):
        if value >= 1e-3:
            check(plain(estimates[i]), value, f"S_{i + 1} without controls", 1e-3 if i == 0 else None)
            if i > 0:  # S_1 is a control itself
                check(sharper.means(estimates[i]), value, f"S_{i + 1}", 1e-3 if value >= 0.02 else 1e-2)
        else:
            rare.append(i)
    reached = [(last[i] > 0).sum() for i in rare]
    check_rare(reached, [law[(states > i).any(axis=1)].sum() for i in rare], last.shape[1])


@pytest.mark.parametrize("index", [0, 1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_published_stationary_means(reference, index):
    """Gast, Bortolussi and Tribastone 2018, Table 2, and an independent run: within 5 joint standard errors."""
    case = reference("published")[index]
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"])
    saves = 48 if case["n"] >= 100 else 96
    estimates, controls, _ = time_averages(model, replicas=8192, saves=saves, gap=1.0 / (1 - case["arrival_rate"]), seed=200 + index)
    for k, control in enumerate(controls):
        check(plain(control), 0.0, f"control {k}")
    queue, error = Regression(controls.T).means(estimates.sum(axis=0))
    assert error < 1e-3 * queue
    assert abs(queue - case["ours"]) < 5 * math.hypot(error, case["se"])
    assert abs(queue - case["published"]) < 5 * math.hypot(error, case["se"]) + 1e-3  # printed to four digits


REPLICAS = 2**19    # a run, so that its paths take less than a GiB


def transient(case, runs):
    """At each time means and standard errors (level,), pooled over runs, and how many of how many replicas reach each level;
    `runs`: how many runs see each time, the first times the most."""
    model = jaxq.Supermarket(case["n"], case["d"], case["arrival_rate"], case["replacement"])  # nobody meets the buffer
    levels = len(case["tails_from_empty"][0])
    seen = [[] for _ in runs]
    for k in range(runs[0]):
        times = [t for t, number in zip(case["times"], runs, strict=True) if k < number]
        run = jaxq.simulate(model, times, 20 + k, replicas=REPLICAS, save="paths", chunk=16)  # few ticks between the times
        reached = (run.paths[:, :levels] > 0).sum(axis=2)
        for part in zip(seen, run.tail_mean[:, :levels], run.tail_stderr[:, :levels], reached, strict=False):
            part[0].append(part[1:])
    for at_time in seen:
        mean, error, reached = map(np.array, zip(*at_time, strict=True))
        yield mean.mean(axis=0), np.sqrt(np.sum(error**2, axis=0)) / len(at_time), reached.sum(axis=0), len(at_time) * REPLICAS


def check_transient(case, runs, precise):
    states, q = exact_chain(case)
    start = np.zeros(len(states))
    start[0] = 1.0
    for t, value, (mean, error, reached, replicas) in zip(case["times"], case["tails_from_empty"], transient(case, runs), strict=True):
        law = expm_multiply(q.T * t, start)
        exact = np.array(value)
        np.testing.assert_allclose(tails(states, law, exact.size), exact, rtol=1e-8, atol=1e-14)
        common = exact >= 1e-3
        if precise:
            assert np.all(error[exact >= 0.02] <= 1e-3 * exact[exact >= 0.02])
            assert np.all(error[common] <= 1e-2 * exact[common])
        assert np.all(np.abs(mean - exact)[common] < 5 * error[common])
        rare = np.flatnonzero(~common)
        check_rare(reached[rare], [law[(states > i).any(axis=1)].sum() for i in rare], replicas)


def test_exact_transient(reference):
    check_transient(reference("supermarket_exact")[3], [1, 1, 1, 1], precise=False)


@pytest.mark.slow
def test_exact_transient_to_full_precision(reference):
    """Customers beyond the first are rare at time 0.5: it needs the most runs, and they are short."""
    check_transient(reference("supermarket_exact")[3], [27, 20, 20, 20], precise=True)
