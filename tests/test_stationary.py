"""Steady-state estimates against exact chains and published values, the coverage of their intervals, and their schedule."""


import numpy as np
import pytest
from scipy import stats

import jaxq
from jaxq.estimate import Regression
from jaxq.exact import stationary as exact_stationary
from jaxq.warmup import extended, mser5

POOLS = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]


def errors_apart(result, name, exact):
    return abs(getattr(result, name) - exact) / getattr(result, f"{name}_stderr")


@pytest.fixture(scope="module")
def small():
    """n = 3, d = 2, lambda = .8, buffer 12: the run and the exact law."""
    model = jaxq.Supermarket(3, 2, 0.8, buffer=12)
    return jaxq.stationary(model, 1, replicas=256, rel_error=0.002), exact_stationary(model)


def test_the_exact_law_of_a_small_supermarket_is_met(small):
    run, exact = small
    assert run.converged
    assert run.rel_error <= 0.002
    assert errors_apart(run, "mean_queue_length", exact.mean_queue_length) < 5
    levels = slice(0, 6)
    assert np.all(np.abs(run.tail - exact.tail[: run.tail.size])[levels] < 5 * run.tail_stderr[levels])
    # what customers meet, by PASTA: the least of two sampled servers is busy, or full
    tails = (exact.states / 3) ** 2 @ np.eye(12)
    blocked, busy = exact.probability @ tails[:, 11], exact.probability @ tails[:, 0]
    assert errors_apart(run, "p_block", blocked) < 5
    assert errors_apart(run, "p_wait", busy - blocked) < 5
    response = exact.mean_queue_length / (0.8 * (1 - blocked))
    assert errors_apart(run, "mean_response_time", response) < 5


def test_the_variance_of_a_state_is_that_of_the_exact_law(small):
    run, exact = small
    tail = np.array(exact.states) / 3
    queue = tail.sum(axis=1)
    variance = exact.probability @ queue**2 - exact.mean_queue_length**2
    assert errors_apart(run, "mean_queue_length_variance", variance) < 5
    assert abs(run.tail_variance[0] - (exact.probability @ tail[:, 0] ** 2 - exact.tail[0] ** 2)) < 5 * run.tail_variance_stderr[0]


def test_response_times_are_a_mixture_of_erlang_laws(small):
    run, exact = small
    tail = np.hstack([np.ones((len(exact.states), 1)), np.array(exact.states) / 3])
    joined = exact.probability @ (tail[:, :-1] ** 2 - tail[:, 1:] ** 2)     # P(join at length k), k = 0..11
    ts = np.array([0.0, 0.5, 2.0, 6.0])
    law = np.array([joined / joined.sum() @ stats.gamma.sf(t, np.arange(1, 13)) for t in ts])
    longer, error = run.response_tail(ts)
    assert longer[0] == pytest.approx(1.0)
    assert np.all(np.abs(longer - law)[1:] < 5 * error[1:])
    assert np.all(error[1:] < 0.01)


def test_pull_reports_what_its_customers_meet():
    model = jaxq.Pull(4, POOLS, 1, 0.8)
    run = jaxq.stationary(model, 3, replicas=256, rel_error=0.002)
    # an independent solution of the whole protocol, stored with the project
    assert errors_apart(run, "mean_queue_length", 0.991683287179) < 5
    assert errors_apart(run, "p_wait", 0.123778305883) < 5
    assert errors_apart(run, "p_block", 0.193161798899) < 5
    assert np.all(np.abs(run.busy - [0.575019575267, 0.856823517722]) < 5 * run.busy_stderr)
    assert errors_apart(run, "messages_per_customer", 1 - 0.123778305883 - 0.193161798899) < 5
    assert set(run.to_json()) >= {"busy", "messages_per_customer", "p_wait", "tail", "converged"}


def test_two_starts_meet_where_no_theory_gives_the_warm_up():
    model = jaxq.TwoQueues(5, 1.6)
    exact = jaxq.exact.two_queues(5, 1.6)
    run = jaxq.stationary(model, 4, replicas=128, rel_error=0.01)
    assert errors_apart(run, "mean_queue_length", exact.mean_customers / 2) < 5
    assert errors_apart(run, "p_block", exact.blocking) < 5
    assert run.starts_apart != 0
    assert abs(run.starts_apart) < 5
    assert np.all(np.abs(run.busy - run.busy.mean()) < 5 * run.busy_stderr)   # the queues are alike


def test_unequal_servers_have_response_times_by_pool():
    model = jaxq.SupermarketClasses(4, [jaxq.Pool(0.5, 1.5, 4), jaxq.Pool(0.5, 0.5, 4)], 2, 0.7)
    exact = exact_stationary(model)
    run = jaxq.stationary(model, 5, replicas=128, rel_error=0.01)
    assert errors_apart(run, "mean_queue_length", exact.mean_queue_length) < 5
    # the area under P(T > t) is the mean response time
    ts = np.linspace(0, 60, 1201)
    assert np.trapezoid(run.response_tail(ts)[0], ts) == pytest.approx(run.mean_response_time, rel=1e-3)


def test_few_replicas_are_cut_in_batches():
    run = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 6, replicas=2, rel_error=0.01)
    exact = exact_stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12))
    assert run.replica_tail.shape[0] == 64
    assert run.replicas == 2
    assert errors_apart(run, "mean_queue_length", exact.mean_queue_length) < 5
    one = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 6, replicas=1, rel_error=0.02)
    assert errors_apart(one, "mean_queue_length", exact.mean_queue_length) < 5


def test_devices_and_blocks_do_not_matter(small):
    import jax
    run = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 1, replicas=256, rel_error=0.002, block=48,
                          devices=jax.devices()[:1])
    assert run.mean_queue_length == small[0].mean_queue_length
    assert run.events == small[0].events


def test_control_variates_are_worth_their_while():
    run = jaxq.stationary(jaxq.Supermarket(50, 2, 0.95), 7, replicas=256)
    assert run.control_gain > 20
    assert run.tail[0] == pytest.approx(0.95, abs=1e-6)     # E S_1 = lambda is one of the controls
    assert run.effective_samples > 1000


def test_a_run_that_meets_its_limit_says_so():
    with pytest.warns(UserWarning, match="above the 1e-06 asked for; raise max_events or"):
        run = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 1, replicas=256, rel_error=1e-6, max_events=1e6)
    assert not run.converged
    assert run.events <= 1e6
    with pytest.warns(UserWarning, match="before the start was forgotten"):
        jaxq.stationary(jaxq.Supermarket(1000, 2, 0.99), 1, replicas=64, max_events=1e6)


def test_a_start_that_still_shows_is_reported():
    with pytest.warns(UserWarning, match="the start still shows"):
        jaxq.stationary(jaxq.Supermarket(1000, 2, 0.9), 1, replicas=64, warmup=0.1, horizon=10, initial=[0])


def test_warm_up_and_horizon_are_ticks_of_the_times_given():
    run = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 1, replicas=256, warmup=20, horizon=50, rel_error=0.05)
    assert run.events == 256 * (round(20 * 5.4) + round(50 * 5.4))
    assert run.warmup == pytest.approx(20)
    assert run.horizon == pytest.approx(50)


@pytest.mark.parametrize("call", [2, 4])
def test_an_interrupt_keeps_the_last_estimate(monkeypatch, call):
    """The window's first look are two cells, the second doubles them with one more."""
    from jaxq.simulate import Interrupted
    from jaxq.watch import Watch

    look, seen = Watch.look, []

    def interrupted(self, *args, **options):
        seen.append(1)
        if len(seen) == call:
            raise KeyboardInterrupt
        return look(self, *args, **options)

    monkeypatch.setattr(Watch, "look", interrupted)
    with pytest.raises(Interrupted) as caught:
        jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 1, replicas=256, rel_error=1e-4)
    if call == 2:
        assert caught.value.partial is None
    else:
        assert 1 < caught.value.partial.mean_queue_length < 4
        assert not caught.value.partial.converged


def test_few_replicas_raise_no_false_alarm():
    for seed in range(8):
        jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), seed, replicas=2, rel_error=0.05)   # warnings are errors


def test_an_exact_control_leaves_an_error_of_rounding_size():
    run = jaxq.stationary(jaxq.Supermarket(5, 1, 1.5, buffer=1), 1, replicas=64)   # M/M/1/1: busy 1.5 / 2.5 of the time
    assert run.mean_queue_length == pytest.approx(0.6, abs=1e-12)
    assert 0 < run.mean_queue_length_stderr < 1e-12


def test_slow_servers_have_slow_warm_ups():
    """Servers of rate .01, no pools: the same chain as at rate 1, a hundred times slower."""
    run = jaxq.stationary(jaxq.Pull(4, [jaxq.Pool(1.0, 0.01, 3)], 1, 0.008), 1, replicas=64, rel_error=0.02)
    exact = exact_stationary(jaxq.Pull(4, [jaxq.Pool(1.0, 1.0, 3)], 1, 0.8))
    assert errors_apart(run, "mean_queue_length", exact.mean_queue_length) < 5
    assert run.warmup > 1000


def test_distinct_samples_are_stable_where_independent_ones_are_not():
    """Of 4 servers 2 are slow: both of two distinct samples with probability 1/6, of two independent ones 1/4."""
    pools = [jaxq.Pool(0.5, 0.1), jaxq.Pool(0.5, 1.9)]
    assert jaxq.SupermarketClasses(4, pools, 2, 0.25, replacement=False).steady().lossless
    with pytest.raises(ValueError, match="every set of pools"):
        jaxq.SupermarketClasses(4, pools, 2, 0.25).steady()


@pytest.mark.parametrize(("change", "message"), [
    ({"model": 3}, "model must be a jaxq model"),
    ({"model": jaxq.Supermarket(10, 2, 1.0)}, "below 1 per server, or a buffer; got 1"),
    ({"model": jaxq.TwoQueues(None, 2.5)}, "below mu_1 \\+ mu_2 = 2, or a finite capacity; got 2.5"),
    ({"model": jaxq.Pull(10, [jaxq.Pool(1.0)], 2, 1.2)}, "servers' capacity 1, or buffers; got 1.2"),
    ({"model": jaxq.GraphSupermarket(jaxq.graphs.ring(10), 2, 1.5)}, "fewer arrivals than services, or a buffer; got 15"),
    ({"model": jaxq.SupermarketClasses(10, [jaxq.Pool(0.5, 0.1), jaxq.Pool(0.5, 1.9)], 1, 0.9)}, "every set of pools without buffers"),
    ({"model": jaxq.GraphSupermarket(jaxq.graphs.ring(5), 2, 0.5, service_rates=[0, 2, 2, 2, 2])}, "got 0 at vertex 0"),
    ({"model": jaxq.GraphSupermarket(jaxq.graphs.ring(5), 1, 0.5, service_rates=[2, 2, 0.4, 2, 2])}, "got 0.4 at vertex 2"),
    ({"replicas": 0}, "replicas must be an integer at least 1"),
    ({"rel_error": 0}, "rel_error must be a finite number above 0"),
    ({"warmup": -1}, "warmup must be a finite number at least 0"),
    ({"horizon": 0}, "horizon must be a finite number above 0"),
    ({"replicas": 1, "warmup": 10, "horizon": 1e-3}, "a window of 2 ticks and 2 independent samples at least"),
])
def test_bad_input_is_one_sentence(change, message):
    given = {"model": jaxq.Supermarket(3, 2, 0.8, buffer=12), "key": 0, "replicas": 4} | change
    with pytest.raises(ValueError, match=message):
        jaxq.stationary(given.pop("model"), given.pop("key"), **given)


def test_mser_leaves_out_a_transient():
    noise = np.random.default_rng(1).normal(size=1000)
    path = noise + 40 * np.exp(-np.arange(1000) / 30)
    assert 60 <= mser5(path) <= 250
    assert mser5(noise) < 200


def test_the_path_of_a_doubling_warm_up_is_evenly_spaced():
    """Looks at times 1, 2, ..., 8; 9, ..., 16; then every second, every fourth. Averaged like them, their times stay even, up to
    half a spacing where averages meet single looks."""
    path, ahead = np.arange(1.0, 9.0), 8
    while path[-1] < 1000:
        path = extended(path, path[-1] + (ahead / 8) * np.arange(1.0, 9.0))
        ahead = int(path[-1])
        assert path.size == 16
        assert np.diff(path).max() <= 1.5 * np.diff(path).min()


def test_regression_meets_its_normal_theory():
    generator = np.random.default_rng(2)
    controls = generator.normal(size=(4000, 64, 3))
    values = 1.0 + controls @ [1.0, -2.0, 0.5] + 0.3 * generator.normal(size=(4000, 64))
    hits = 0
    for c, y in zip(controls, values, strict=True):
        regression = Regression(c)
        mean, error = regression.means(y)
        hits += abs(mean - 1.0) < stats.t.ppf(0.975, regression.dof) * error
        assert regression.dof >= 60
    assert abs(hits - 3800) < 5 * (4000 * 0.05 * 0.95) ** 0.5


def test_what_the_others_leave_of_a_control_must_be_spread_over_many_samples():
    """The total flow less the first levels is a rare one: kept, it once put the mean 4 errors off and took 100 off the gain."""
    result = jaxq.stationary(jaxq.Supermarket(1000, 2, 0.9), 11, replicas=512, horizon=300.0)
    theory = jaxq.refined(jaxq.Supermarket(1000, 2, 0.9)).refined_mean_queue_length
    assert result.control_gain > 5000
    assert abs(result.mean_queue_length - theory) < 4 * result.mean_queue_length_stderr + 5e-6


def test_controls_that_say_nothing_are_left_out():
    generator = np.random.default_rng(3)
    useful = generator.normal(size=(64, 1))
    controls = np.hstack([np.zeros((64, 1)), useful, 2 * useful, np.full((64, 1), 7.0)])
    regression = Regression(controls, exact=1)
    mean, error = regression.means(3.0 + useful[:, 0])
    assert regression.dof == 62
    assert mean == pytest.approx(3.0)
    assert error < 1e-12


def test_few_events_have_the_error_of_two_more():
    """Agresti and Coull's interval: k events in N have the error sqrt(k + 2)/N, where k is small beside N."""
    for events in (1, 3, 10):
        values = np.zeros(10_000)
        values[:events] = 1.0
        mean, error = Regression(np.zeros((10_000, 0))).means(values)
        assert mean == pytest.approx(events / 10_000)
        assert error == pytest.approx((events + 2) ** 0.5 / 10_000, rel=1e-3)


def test_what_controls_leave_to_few_samples_is_not_believed():
    """y = 1 + c - r, where r is rare: without r in the samples y - c is 1 in all of them, and with it in two of them nearly so."""
    generator = np.random.default_rng(4)
    control, rare = generator.normal(size=256), np.zeros(256)
    for seen in (0, 2):
        rare[:seen] = 1.0
        plain = np.mean(1 + control - rare), np.std(control - rare, ddof=1) / 16
        sharp = 1 - seen / 256, 2 * seen**0.5 / 256                     # two with two more
        for unseen, exact, (mean, error) in (
                (0.0, None, plain), (np.nan, 0, plain),
                (0.0, 0, plain if seen else sharp),                     # known to follow from c
                (0.02, 0, (sharp[0], np.hypot(sharp[1], 0.02))),
                (0.25, 0, plain if seen else (1.0, 0.25))):             # the plain mean is better
            found = Regression(control[:, None], unseen, exact).means(1.0 + control - rare)
            np.testing.assert_allclose(found, (mean, error), rtol=0.05, atol=1e-3)


def test_a_control_that_is_constant_but_for_rounding_says_nothing():
    constant = 0.005 + 1e-18 * np.arange(64.0)[:, None]
    constant[::2] += 1e-18
    mean, error = Regression(constant, exact=0).means(np.arange(64.0))
    assert (mean, error) == (31.5, pytest.approx(np.linalg.norm(np.arange(64.0) - 31.5) / 63))
