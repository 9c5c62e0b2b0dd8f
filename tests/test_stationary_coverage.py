"""Steady-state estimates: published means are met, and 95 % intervals cover the exact value 95 % of the time."""

import warnings

import numpy as np
import pytest
from scipy import stats

import jaxq
from jaxq.estimate import Regression
from jaxq.exact import stationary as exact_stationary

POOLS = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("case", range(5))
def test_published_means_are_met(reference, case):
    """An independent program's means, within 4 joint standard errors at a relative error of 1e-3."""
    row = reference("published")[case]
    run = jaxq.stationary(jaxq.Supermarket(row["n"], row["d"], row["arrival_rate"]), 1, replicas=256, rel_error=0.001)
    assert run.converged
    assert abs(run.mean_queue_length - row["ours"]) < 4 * np.hypot(run.mean_queue_length_stderr, row["se"])


SYSTEMS = {
    "supermarket": (jaxq.Supermarket(3, 2, 0.8, buffer=12), 120, 30),
    "pull": (jaxq.Pull(4, POOLS, 2, 0.8, "stale"), 120, 30),
    "ring": (jaxq.GraphSupermarket(jaxq.graphs.ring(4), 2, 0.7, buffer=9), 100, 30),
}
EXACT = {"supermarket": None, "pull": 1.08179712543, "ring": 1.27619999652}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_intervals_cover_the_exact_value(name):
    """1000 independent estimates from 64 replicas each: the 95 % interval holds the exact value 92.5 % to 97.5 % of the time."""
    model, warmup, horizon = SYSTEMS[name]
    exact = EXACT[name] or exact_stationary(model).mean_queue_length
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)   # at half a million error bars' precision any start shows
        run = jaxq.stationary(model, 11, replicas=64_000, warmup=warmup, horizon=horizon, rel_error=0.5)
    # replicas of one start come together: take every 1000th, so that each estimate has as many of either
    queue, covered = run.replica_tail.sum(axis=1), 0
    for k in range(1000):
        regression = Regression(run.controls[k::1000])
        mean, error = regression.means(queue[k::1000])
        covered += abs(mean - exact) < stats.t.ppf(0.975, regression.dof) * error
    assert 925 <= covered <= 975


@pytest.mark.slow
def test_runs_stopped_by_their_error_cover_the_exact_value():
    model = jaxq.Supermarket(3, 2, 0.8, buffer=12)
    exact = exact_stationary(model).mean_queue_length
    covered, horizons = 0, set()
    for seed in range(300):
        run = jaxq.stationary(model, seed, replicas=64, rel_error=0.02)
        assert run.converged
        horizons.add(run.horizon)
        covered += abs(run.mean_queue_length - exact) < 1.96 * run.mean_queue_length_stderr
    assert covered >= 270
    assert len(horizons) > 1                           # the rule decided


def test_intervals_cover_the_exact_value_where_losses_are_rare():
    """One customer in 1400 is lost: few runs of 256 replicas see many, many see a few and some none. Balances of customers that knew
    only the losses seen held S_1 in 76 % of such runs."""
    model = jaxq.Supermarket(6, 3, 0.7, replacement=False, buffer=4)
    exact = exact_stationary(model)
    wanted = np.array([exact.mean_queue_length, 1 - exact.tail[0] / 0.7, *exact.tail[:3]])
    covered, busy = np.zeros(5), []
    for seed in range(200):
        run = jaxq.stationary(model, seed, replicas=256)
        means = np.array([run.mean_queue_length, run.p_block, *run.tail[:3]])
        errors = np.array([run.mean_queue_length_stderr, run.p_block_stderr, *run.tail_stderr[:3]])
        busy.append(errors[2])
        covered += np.abs(means - wanted) < stats.t.ppf(0.975, run.degrees_of_freedom) * errors
    assert (covered >= 176).all(), covered  # 95 % less 4.5 standard errors
    assert np.mean(busy) < 0.002            # the balance is used once it is known: .005 without it


def test_nothing_is_taken_for_known_because_it_was_not_seen():
    """At light load no look may see a third customer: then S_2 and Q follow from the balances, wrongly."""
    model = jaxq.Supermarket(4, 2, 0.1)
    exact = exact_stationary(jaxq.Supermarket(4, 2, 0.1, buffer=8))
    for seed in range(25):
        run = jaxq.stationary(model, seed, replicas=64)
        assert abs(run.mean_queue_length - exact.mean_queue_length) < 4 * run.mean_queue_length_stderr
        assert abs(run.tail[1] - exact.tail[1]) < 5 * run.tail_stderr[1]
        assert run.tail[0] == pytest.approx(0.1, abs=1e-15)   # which does follow, from the balance of all customers
        assert run.tail_variance.min() >= 0


@pytest.mark.parametrize(("model", "options"), [
    (jaxq.SupermarketClasses(4, [jaxq.Pool(0.5, 1.5, 2), jaxq.Pool(0.5, 0.5)], 2, 0.6), {"replicas": 16, "warmup": 150.0, "horizon": 40.0}),
    (jaxq.TwoQueues(None, 0.02), {"replicas": 64, "warmup": 5.0, "horizon": 30.0}),
    (jaxq.Supermarket(8, 2, 0.5), {"replicas": 1, "warmup": 5.0, "horizon": 3.0}),
    (jaxq.GraphSupermarket(jaxq.graphs.ring(4), 2, 0.01), {"replicas": 64, "warmup": 2.0, "horizon": 5.0}),
    (jaxq.Supermarket(10, 2, 1.5, buffer=3), {"replicas": 16, "warmup": 20.0, "horizon": 50.0})],
    ids=["levels of the flow", "constant controls", "two batches", "one sample alone", "overload"])
@pytest.mark.filterwarnings("ignore:the start still shows", "ignore:the warm-up could not")
def test_short_runs_have_finite_errors(model, options):
    for seed in (0, 1, 2, 1010):
        run = jaxq.stationary(model, seed, **options)
        assert abs(run.starts_apart) < 100
        for name in ("mean_queue_length", "mean_response_time", "p_wait", "p_block"):
            error = getattr(run, f"{name}_stderr")
            assert np.isfinite(error) or np.isnan(getattr(run, name)), name
            assert not error < 0


def test_what_no_run_saw_has_an_error():
    """At buffer 8 one customer in 10**8 is lost, and at load .01 one in 10**6 waits."""
    full = jaxq.Supermarket(6, 3, 0.7, replacement=False, buffer=8)
    run, exact = jaxq.stationary(full, 0, replicas=64), exact_stationary(full)
    assert run.p_block == 0
    assert 0 < run.p_block_stderr < 1e-3
    assert abs(run.tail[0] - exact.tail[0]) < run.tail_stderr[0] < 1e-3
    both = np.hypot(run.mean_queue_length_stderr / 0.7, run.mean_response_time * run.p_block_stderr)
    assert run.mean_response_time_stderr == pytest.approx(both, rel=1e-6)
    nobody = jaxq.stationary(jaxq.Supermarket(8, 2, 1e-4), 0, replicas=64, warmup=0.0, horizon=2.0)
    assert nobody.tail.tolist() == [0.0]
    assert 1e-4 < nobody.tail_stderr[0] < 0.01
    light = jaxq.stationary(jaxq.Supermarket(50, 3, 0.01), 0, replicas=64, rel_error=0.05)
    assert light.p_wait == 0
    assert 1e-6 < light.p_wait_stderr < 0.01
    assert light.tail_stderr[0] < 1e-15              # busy as often as customers come: exact
    assert 1e-8 < light.mean_queue_length_stderr < 1e-3


def test_what_every_look_saw_is_not_certain():
    """Two queues at load 1.5 with room for 40 are idle one time in 10**7."""
    run = jaxq.stationary(jaxq.Supermarket(2, 2, 1.5, buffer=40), 0, replicas=64, warmup=200.0, horizon=50.0)
    assert (run.tail[0], run.p_wait) == (1.0, pytest.approx(1 / 1.5))
    assert 1e-6 < run.tail_stderr[0] < 1e-2
    assert 1e-6 < run.p_wait_stderr < 1e-2
    alone = jaxq.stationary(jaxq.Supermarket(2, 2, 1.5, buffer=1), 0, replicas=64, warmup=20.0, horizon=50.0)
    assert (alone.p_wait, alone.p_wait_stderr) == (0.0, 0.0)
    pools = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 1)]
    pull = jaxq.stationary(jaxq.Pull(20, pools, 1, 50.0), 0, replicas=64, warmup=20.0, horizon=0.2)
    assert (pull.p_wait, pull.p_wait_stderr) == (0.0, 0.0)
    full = pull.busy == 1.0
    assert full.any()
    assert (pull.busy_stderr[full] > 1e-4).all()


def test_known_losses_are_counted_once():
    """A third of the customers is lost. The error of the time of those served is that of the ratio; with that of P(block) once more,
    z had a standard deviation of .82."""
    model, z = jaxq.Supermarket(10, 2, 1.5, buffer=3), []
    exact = exact_stationary(model)
    for seed in range(200):
        run = jaxq.stationary(model, seed, replicas=64)
        z.append((run.mean_response_time - exact.mean_queue_length / exact.tail[0]) / run.mean_response_time_stderr)
    assert 0.88 < np.std(z) < 1.15               # of 200: 1 +- .05
    assert abs(np.mean(z)) < 0.25
