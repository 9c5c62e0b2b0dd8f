"""Leaps against exact laws, and what they promise: no state that is none, an honest error of the step, the same integers."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from epidemic import Epidemic
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxq
from jaxq import bits, cli, exact
from jaxq.engine import Engine
from jaxq.leap import Leap, changes
from jaxq.leap_events import events_of

BUFFER = 5
SMALL = jaxq.Supermarket(20, 2, 0.9, buffer=BUFFER)
BIG = jaxq.Supermarket(10**9, 2, 0.9, levels=12)
#: Replicas and saves of the runs of SMALL: a leap compiles for many seconds, so that tests share the program where they can.
MANY, SAVES = 8_000, 4


def leap(model, ts, replicas, seed=0, **options):
    return jaxq.simulate(model, ts, seed, replicas=replicas, algorithm="leap", **options)


def z_scores(result, mean, tail):
    """In standard errors, what is left of the distance to the truth after the estimated error of the step."""
    both = np.hypot(result.tail_stderr, result.tail_step_error_stderr)
    levels = tail.shape[1]
    apart = (result.tail_mean - result.tail_step_error)[:, :levels] - tail
    seen = both[:, :levels] > 0
    return apart[seen] / both[:, :levels][seen]


@pytest.fixture(scope="module")
def small():
    return leap(SMALL, [0.5, 2.0, 6.3], MANY, step=1 / 16, save="paths")


def test_agrees_with_the_exact_law_of_a_small_system_once_its_step_error_is_taken_off(small):
    law = exact.transient(SMALL, small.times)
    assert np.abs(z_scores(small, law.mean_queue_length, law.tail)).max() < 4.5
    # and it is small: at this step, most of the difference is noise
    assert np.abs(small.mean_queue_length - law.mean_queue_length).max() < 0.02


def test_the_stated_error_of_the_step_is_the_true_one():
    """Coarse steps of order 1: the true error is many standard errors, and the estimate is within a third of it."""
    ts = [1.0, 3.0]
    law = exact.transient(SMALL, ts)
    result = leap(SMALL, ts, 10_000, step=1 / 4, order=1)
    true = result.mean_queue_length - law.mean_queue_length
    assert np.all(np.abs(true) > 7 * result.mean_queue_length_stderr)
    both = np.hypot(result.mean_queue_length_stderr, result.mean_queue_length_step_error_stderr)
    assert np.all(np.abs(result.mean_queue_length_step_error - true) < 0.35 * np.abs(true) + 2 * both)


@pytest.mark.slow
def test_order_of_convergence():
    """At n = 10**9 noise is below 1e-5 and the mean field is the truth to 1e-8. Of order 1 the test of its error above tells."""
    truth = jaxq.mean_field(BIG, [4.0]).mean_queue_length[0]
    errors = [leap(BIG, np.linspace(0, 4, 6), 256, step=step).mean_queue_length[-1] - truth for step in (1 / 4, 1 / 8, 1 / 16)]
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    assert np.all(ratios > 0.75 * 2**2), (errors, ratios)
    assert np.all(ratios < 1.6 * 2**2), (errors, ratios)


@pytest.fixture(scope="module")
def big():
    """Looks a hair after a tick and a hair before the next, among others."""
    return leap(BIG, [0.25, 0.25 + 1e-7, 0.3, 0.375 - 1e-7, 0.375, 4.0], 256, step=1 / 16, save="paths")


def test_n_of_a_billion_and_the_spread_of_one_system(big):
    theory = jaxq.linear_noise(BIG, [4.0])
    assert big.mean_queue_length[-1] - big.mean_queue_length_step_error[-1] == pytest.approx(
        theory.mean_queue_length[0], abs=5 * big.mean_queue_length_stderr[-1] + 1e-6)
    spread = np.sqrt(big.mean_queue_length_variance[-1]) / theory.mean_queue_length_stdev[0]
    assert spread == pytest.approx(1, abs=5 / np.sqrt(2 * 256) + 0.03)  # the step costs a relative O(step) of it
    assert big.arrivals == pytest.approx(0.9e9 * 4 * 256, rel=1e-4)
    assert big.arrivals - big.departures == pytest.approx(big.mean_queue_length[-1] * 1e9 * 256, rel=1e-9)


@pytest.mark.slow
def test_agrees_with_the_exact_algorithm():
    n, replicas, ts = 10**4, 1000, [1.0, 10.0]
    model = jaxq.Supermarket.heavy_traffic(n, 2, 1.0)
    ticks = jaxq.simulate(model, ts, 1, replicas=replicas)
    steps = leap(model, ts, replicas, 2)
    for name in ("tail", "mean_queue_length"):
        mean, error = f"{name}_mean" if name == "tail" else name, f"{name}_stderr"
        levels = np.s_[:, :5] if name == "tail" else np.s_[:]
        joint = np.hypot(getattr(ticks, error), getattr(steps, error))[levels]
        step = np.abs(getattr(steps, f"{name}_step_error"))[levels]
        apart = (getattr(ticks, mean) - getattr(steps, mean))[levels]
        assert np.all(np.abs(apart) < 4.5 * joint + 2 * step + 1 / n / replicas)


POOLS = [jaxq.Pool(0.5, 1.5, 2), jaxq.Pool(0.5, 0.5, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("model", [
    jaxq.Pull(6, POOLS, 1, 0.9), jaxq.Pull(4, POOLS, 2, 0.8, messages="stale"), jaxq.SupermarketClasses(10, POOLS, 2, 0.9),
    jaxq.Supermarket(10, 3, 1.3, replacement=False, buffer=3), Epidemic(40, 1.5, 0.2)], ids=lambda model: type(model).__name__)
def test_every_population_model(model):
    """Few servers, so that a step is of the same order as n: the estimated step error is taken off, and half of it allowed."""
    ts = [1.0, 2.0]
    small = isinstance(model, Epidemic)
    start = np.round(model.n * model.empty()).astype(int) if isinstance(model, jaxq.Pull) else None
    tail = np.array([[model.moments(t, 0)[0]] for t in ts]) if small else exact.transient(model, ts, initial=start).tail
    result = leap(model, ts, 20_000, step=1 / 32, initial=start)
    both = np.hypot(result.tail_stderr, result.tail_step_error_stderr)[:, : tail.shape[1]]
    apart = (result.tail_mean - result.tail_step_error)[:, : tail.shape[1]] - tail
    assert np.all(np.abs(apart) < 4.5 * both + 0.5 * np.abs(result.tail_step_error)[:, : tail.shape[1]] + 1e-3 / model.n)


@pytest.mark.slow
def test_lost_customers_are_counted():
    """A small buffer at load 1.4, by the exact law: the lost are the arrivals less those present and served."""
    model = jaxq.Supermarket(30, 2, 1.4, buffer=BUFFER)
    ticks, steps = (jaxq.simulate(model, [2.0, 4.0, 8.0], 3, replicas=MANY, algorithm=name) for name in ("exact", "leap"))
    for name in ("arrivals", "lost"):
        one, other = ticks.counters[name], steps.counters[name]
        assert abs(one - other) < 5 * 4 * np.sqrt(one) + 0.01 * one
    assert steps.departures == pytest.approx(ticks.departures, rel=0.01)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(n=st.integers(2, 10**9), rate=st.floats(0.05, 4.0), step=st.floats(1e-3, 1.0), seed=st.integers(0, 2**32),
       fractions=st.lists(st.floats(0, 1), min_size=BUFFER, max_size=BUFFER))
def test_never_leaves_the_state_space(n, rate, step, seed, fractions):
    """4 examples of 104 looks at 256 replicas, two steps each and many of them halved: half a million steps and more."""
    model = Leap(jaxq.Supermarket(n, 2, rate, buffer=BUFFER), step)
    start = np.floor(n * np.sort(fractions)[::-1]).astype(int)
    run = Engine(model, start, bits.key_words(seed), 256)
    for _ in range(26):
        counts, counters = run.advance(np.ones((8, 256), int))
        paths = counts.reshape(8, 2, BUFFER, 256)
        assert paths.min() >= 0
        assert paths.max() <= n
        assert np.all(np.diff(paths, axis=2) <= 0)
    assert all(np.all(total >= 0) for total in counters.values())


@pytest.mark.slow
def test_classes_that_are_empty_halve_the_step_too():
    """All arrivals want the few who become idle: without halving, a third of them were lost and nothing said so."""
    model, start = jaxq.Supermarket(20, 20, 0.95, replacement=False), [20, 10]
    ticks = jaxq.simulate(model, [1.0], 1, replicas=20_000, initial=start)
    steps = leap(model, [1.0], 1000, 2, initial=start, step=1 / 16)
    joint = np.hypot(ticks.mean_queue_length_stderr[0], steps.mean_queue_length_stderr[0])
    assert abs(ticks.mean_queue_length[0] - steps.mean_queue_length[0]) < 4 * joint + 0.01
    assert steps.arrivals / 1000 == pytest.approx(ticks.arrivals / 20_000, rel=0.03)


@pytest.mark.slow
def test_pull_never_leaves_the_state_space():
    model = jaxq.Pull(40, POOLS, 2, 0.9)
    run = Engine(Leap(model, 0.5), None, bits.key_words(1), 512)
    counts, _ = run.advance(np.full((8, 512), 4))
    for path in np.split(counts, 2, axis=1):
        servers = np.stack([model.occupancy(one) for one in path])
        assert servers.min() >= 0
        assert np.all(servers.sum(axis=1) == model.n)


def test_same_integers_whatever_the_save_times_replicas_blocks_and_devices(small):
    more = leap(SMALL, [0.3, 0.5, 1.99, 2.0], MANY, step=1 / 16, save="paths")
    np.testing.assert_array_equal(more.paths[[1, 3]], small.paths[:2])
    np.testing.assert_array_equal(more.counter_paths["arrivals"][[1, 3]], small.counter_paths["arrivals"][:2])
    fewer = leap(SMALL, small.times, 5, step=1 / 16, save="paths", block=3, chunk=4, devices=jax.devices()[:1])
    np.testing.assert_array_equal(fewer.paths, small.paths[:, :, :5])


def test_a_look_between_two_ticks_is_the_beginning_of_the_next(big):
    """Times a hair after a tick and a hair before the next agree with the ticks themselves."""
    found = big.paths.astype(float)
    assert np.abs(found[1] - found[0]).max() < 1e5     # of 10**9: a rate of 10**9 in 1e-7, and its noise
    assert np.abs(found[4] - found[3]).max() < 1e5
    assert np.all(found[2, 0] > found[1, 0])           # filling from empty
    assert np.all(found[4, 0] > found[2, 0])


@pytest.mark.slow
def test_levels_grow_and_leave_the_same_path():
    model = jaxq.Supermarket(200, 1, 0.95)
    few, many = (leap(dataclasses.replace(model, levels=levels), [4.0, 12.0], 24, 3, save="paths").paths for levels in (4, 16))
    np.testing.assert_array_equal(few, many[:, : few.shape[1]])
    assert few[:, 4:].any(), "it had to grow"


@pytest.mark.slow
def test_steady_state_with_exact_controls():
    """The mean one-step changes vanish in the steady state, so that means are sharpened by them without a bias."""
    model = jaxq.Supermarket(1000, 2, 0.9)
    result = jaxq.stationary(model, 1, replicas=256, algorithm="leap", step=1 / 16, rel_error=2e-4, max_events=3e11)
    theory = jaxq.refined(model)
    assert result.control_gain > 50
    assert result.converged
    assert result.algorithm == "leap"
    assert abs(result.mean_queue_length - theory.refined_mean_queue_length) < (
        4 * result.mean_queue_length_stderr + 3 * abs(result.mean_queue_length_step_error) + 3e-4)
    assert result.tail[0] == pytest.approx(0.9, abs=1e-5)
    assert result.p_wait == pytest.approx(theory.refined_tail[1] / 0.9, abs=1e-3)


def test_one_step_changes_against_the_steps_themselves():
    """Conditional mean of the tails' and of the squared queue's change in a step, by 128 000 steps from one state."""
    model, seeds = Leap(jaxq.Supermarket(12, 2, 1.1, buffer=BUFFER), 1 / 8), 16
    start, lanes = np.array([8, 4, 2, 1, 1]), seeds * MANY
    runs = [Engine(model, start, bits.key_words(seed), MANY, segments=SAVES).peek(0.5)[0][0, :BUFFER] for seed in range(seeds)]
    after = np.concatenate(runs, axis=1).astype(float)
    steps = model.model.pool_tails(model.model.jumps.T)
    flow, square = changes(model, steps, np.repeat(start[:, None], 2, axis=1))
    n, span = 12, 1 / 8
    tail = (after - start[:, None]) / n / span
    queue = (after.sum(axis=0) ** 2 - start.sum() ** 2) / n**2 / span
    assert np.abs((tail.mean(axis=1) - flow[0, :, 0]) / (tail.std(axis=1) / lanes**0.5)).max() < 4.5
    assert abs(queue.mean() - square[0]) < 4.5 * queue.std() / lanes**0.5


@pytest.mark.slow
def test_blocking_in_the_steady_state():
    model = jaxq.Supermarket(8, 2, 1.1, buffer=3)
    result = jaxq.stationary(model, 2, replicas=128, algorithm="leap", step=1 / 32, horizon=200.0)
    truth = exact.stationary(model)
    blocked = 1 - truth.tail[0] / 1.1
    assert result.p_block == pytest.approx(blocked, abs=5 * result.p_block_stderr + 0.004)
    assert np.all(np.abs(result.tail - truth.tail) < 5 * result.tail_stderr + 0.005)


@pytest.mark.parametrize(("options", "match"), [
    ({"algorithm": "leaps"}, "algorithm must be one of 'exact', 'bulk', 'leap'"),
    ({"step": 0.1}, "step and order belong to algorithm='leap'"),
    ({"algorithm": "leap", "step": 0.0}, "step must be a finite number above 0"),
    ({"algorithm": "leap", "step": 1e12}, "step must be a finite number above 0 and at most 100"),
    ({"algorithm": "leap", "order": 3}, "order must be an integer at least 1 and at most 2"),
    ({"algorithm": "leap", "model": jaxq.TwoQueues(5, 1.6)}, "needs a population model, whose events have rates; got TwoQueues"),
    ({"algorithm": "leap", "model": jaxq.Supermarket(10, 2, 0.9, buffer=513)}, "at most 512 customers; got a model of 513 levels"),
    ({"algorithm": "leap", "model": Epidemic(40, 1.5, 0.2)}, "a leap finds its step from the classes of servers that events leave"),
])
def test_what_leaps_cannot_do_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        jaxq.simulate(**{"model": SMALL, "ts": [1.0], "key": 0, "replicas": 4} | options)


@dataclasses.dataclass(frozen=True)
class Pairs(Epidemic, leaves=("n", "contact", "imported")):
    """An event that takes two at once."""

    @property
    def jumps(self):
        return np.array([[2], [-2]])


def test_events_that_take_two_are_refused():
    with pytest.raises(ValueError, match="takes 2; use algorithm='exact'"):
        events_of(Pairs(10, 1.0, 0.1))


def test_command_line(tmp_path, capsys):
    out = tmp_path / "run.nc"
    assert cli.main(["simulate", "supermarket", "--n", "2e1", "--d", "2", "--arrival-rate", ".9", "--buffer", str(BUFFER),
                     "--t-end", "1", "--num-times", "3", "--replicas", str(MANY), "--algorithm", "leap", "--step", "0.0625",
                     "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["algorithm"] == "leap"
    assert found["step"] == 0.0625
    assert len(found["mean_queue_length_step_error"]) == 3
    data = jaxq.load(out)
    assert data["tail_step_error"].dims == ("time", "level")
    assert data.attrs["algorithm"] == "leap"
    assert cli.main(["simulate", "graph", "--graph", "ring", "--n", "10", "--d", "2", "--arrival-rate", ".5", "--t-end", "1",
                     "--replicas", "4", "--algorithm", "leap"]) == 2
    assert "use algorithm='exact'" in capsys.readouterr().err


@pytest.mark.slow
def test_study_by_leaps():
    study = jaxq.scaling_study(2, 1.0, n=[2 * 10**6, 2 * 10**7], t_end=1.0, num_times=3, replicas=64, key=1, algorithm="leap", step=1 / 16)
    assert study.slopes["fluctuation"]["slope"] == pytest.approx(-0.25, abs=0.12)


def test_a_class_that_all_leave_gives_whole_numbers():
    """A chance of 1 is used up by the first event; the next ones get 0, not 0/0."""
    events = events_of(jaxq.Supermarket(10, 2, 0.9, buffer=3))
    up = events.counted[0] > 0
    split = jax.jit(lambda each: events.split(np.where(events.reservoirs, 0.0, 5.0), np.ones((5, 1)), each, np.zeros((7, 1))))
    with jax.enable_x64(True):
        numbers, others = (np.asarray(split(np.where(rows, 1.0, 0.0)[:, None]))[:, 0] for rows in (~up, up))
    np.testing.assert_array_equal(numbers, np.where(~up, 5, 0))  # nobody goes up: all the chance is with the services
    np.testing.assert_array_equal(others[:-1], np.where(up, 5, 0)[:-1])
    assert others[-1] == 0, "the lost come from nowhere"
