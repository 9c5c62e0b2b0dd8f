"""`sensitivity` against exact chains, the mean field, the score function and itself; 5 standard errors of the run everywhere."""

import dataclasses
import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import bits, exact, graphs, weak
from jaxq.rates_model import RatesModel
from jaxq.sensitivity import sensitivity

TIMES = [0.5, 2.0, 5.0]
REPLICAS = 1000  # one shape for the quick tests
POOLS = [jaxq.Pool(0.5, 1.5, 2), jaxq.Pool(0.5, 0.7, 3)]
MARKED = {"supermarket": jaxq.Supermarket(3, 2, 1.1, False, 3), "two queues": jaxq.TwoQueues(3, 1.7, (1.0, 0.6)),
          "classes": jaxq.SupermarketClasses(4, POOLS, 2, 1.2), "pull": jaxq.Pull(4, POOLS, 2, 1.2),
          "graph": jaxq.GraphSupermarket(graphs.complete(3), 2, 1.1, buffer=3)}
MODEL = jaxq.Supermarket(20, 2, 0.9, levels=16)
STARTS = {"supermarket": [2, 1], "two queues": [2, 0], "graph": [2, 1, 0]}


@dataclasses.dataclass(frozen=True)
class Line(RatesModel, leaves=("n", "arrival_rate", "service_rate")):
    """n servers with one waiting place each and joint arrivals, by its rates only: customers wait anywhere."""

    n: int
    arrival_rate: float
    service_rate: float

    @property
    def jumps(self):
        return np.array([[1], [-1]])

    def rates(self, x, inverse_n=0.0):
        return jnp.stack([self.arrival_rate * (2 - x[0]), self.service_rate * x[0]])

    def clock(self):
        return self.n * (2 * self.arrival_rate + 2 * self.service_rate)

    def tail(self, counts):
        return counts


def start(name, model):
    """An initial state the exact chain takes too: PULL's first messages are drawn once, here."""
    if name == "pull":
        grown, state = model.init([[1], [2, 1]], bits.fold_in(bits.key_words(1), np.arange(1, dtype=np.uint32)))
        return np.asarray(grown.counts(state))[:, 0]
    return STARTS.get(name)


@functools.cache
def expectation(model, initial):
    """Exact mean queue length and tail, (time, 1 + level)."""
    law = exact.transient(model, TIMES, None if initial is None else np.array(initial))
    return np.concatenate([law.mean_queue_length[:, None], law.tail], axis=1)


def difference(build, theta, h, initial):
    """Their exact central difference in theta."""
    initial = None if initial is None else tuple(initial)
    return (expectation(build(theta + h), initial) - expectation(build(theta - h), initial)) / (2 * h)


def found(result, what, levels):
    both = [getattr(result, f"mean_queue_length_derivative{what}")[:, None], getattr(result, f"tail_derivative{what}")]
    return np.concatenate(both, axis=1)[:, : 1 + levels]


def check(result, build, theta, initial):
    """Derivative, its bias and their difference against the exact chain at theta, theta +- h and theta +- h/2."""
    h = result.step
    whole, half = difference(build, theta, h, initial), difference(build, theta, h / 2, initial)
    slope = difference(build, theta, 1e-3, initial)
    levels = whole.shape[1] - 1
    error, bias_error = found(result, "_stderr", levels), found(result, "_bias_stderr", levels)
    assert np.all(np.abs(found(result, "", levels) - whole) <= 5 * error)
    assert np.all(np.abs(found(result, "_bias", levels) - 4 / 3 * (whole - half)) <= 5 * bias_error)
    corrected = found(result, "", levels) - found(result, "_bias", levels)
    assert np.all(np.abs(corrected - slope) <= 5 * (error + bias_error) + 1e-3 * np.abs(slope))
    assert np.all(error[1:, 0] < 0.05 * np.abs(whole[1:, 0]))  # sharp enough to see a wrong derivative


@pytest.mark.parametrize("name", [
    "supermarket", *(pytest.param(name, marks=pytest.mark.slow) for name in MARKED if name != "supermarket")])
def test_common_marks_meet_the_exact_derivative_of_small_chains(name):
    model = MARKED[name]
    chain = MARKED["supermarket"] if name == "graph" else model  # on the complete graph they are one chain
    initial = start(name, model)
    result = sensitivity(model, TIMES, 5, replicas=8000, initial=initial, step=0.12)
    check(result, lambda rate: dataclasses.replace(chain, arrival_rate=rate), model.arrival_rate,
          [2, 1] if name == "graph" else initial)


def test_the_bias_of_a_long_step_is_known():
    """A step that takes lambda = 1.1 to 0.2 and 2: errors of the order of the derivative, found with their signs and sizes."""
    model = MARKED["supermarket"]
    result = sensitivity(model, TIMES, 5, replicas=8000, initial=[2, 1], step=0.9)
    whole, half = (difference(lambda rate: dataclasses.replace(model, arrival_rate=rate), 1.1, h, [2, 1]) for h in (0.9, 0.45))
    bias, error = 4 / 3 * (whole - half), found(result, "_bias_stderr", 3)
    assert np.all(np.abs(found(result, "", 3) - whole) <= 5 * found(result, "_stderr", 3))
    assert np.all(np.abs(found(result, "_bias", 3) - bias) <= 5 * error)
    assert np.max(np.abs(bias) / error) > 25  # a wrong factor would show


def test_the_weak_derivative_is_the_exact_one():
    model = MARKED["supermarket"]
    result = sensitivity(model, TIMES, 6, replicas=20000, initial=[2, 1], method="weak")
    slope = difference(lambda rate: dataclasses.replace(model, arrival_rate=rate), 1.1, 1e-3, [2, 1])
    error = found(result, "_stderr", 3)
    assert np.all(np.abs(found(result, "", 3) - slope) <= 5 * error)
    assert np.all(error[:, 0] < 0.07 * slope[:, 0])
    assert result.step is None
    assert result.tail_derivative_bias is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two queues", "pull", "classes", "graph"])
def test_the_weak_derivative_is_the_exact_one_in_every_model(name):
    model = MARKED[name]
    chain = MARKED["supermarket"] if name == "graph" else model
    initial = start(name, model)
    result = sensitivity(model, TIMES, 6, replicas=40000, initial=initial, method="weak")
    slope = difference(lambda rate: dataclasses.replace(chain, arrival_rate=rate), model.arrival_rate, 1e-3,
                       [2, 1] if name == "graph" else initial)
    levels = slope.shape[1] - 1
    assert np.all(np.abs(found(result, "", levels) - slope) <= 5 * found(result, "_stderr", levels))


def test_a_service_rate_by_a_function():
    def model(rate):
        return jaxq.TwoQueues(3, 1.7, (1.0, rate))

    result = sensitivity(MARKED["two queues"], TIMES, 7, replicas=8000, initial=[2, 0], wrt=model, at=0.6, step=0.1)
    check(result, model, 0.6, [2, 0])
    assert (result.wrt, result.at) == ("model", 0.6)
    assert np.all(result.mean_queue_length_derivative < 0)


@pytest.mark.slow
def test_the_rate_of_a_pool_by_a_function():
    def model(rate):
        return jaxq.Pull(4, [jaxq.Pool(0.5, rate, 2), POOLS[1]], 2, 1.2)

    initial = start("pull", MARKED["pull"])
    check(sensitivity(model(1.5), TIMES, 8, replicas=8000, initial=initial, wrt=model, at=1.5, step=0.25), model, 1.5, initial)


@pytest.mark.slow
def test_a_model_that_gives_its_rates_only():
    """E X' = 2 n a - (a + m) E X, so E X = n m(t) with m = 2 a (1 - exp(-(a + m) t))/(a + m)."""
    model, (a, m), t = Line(5, 0.4, 0.7), (0.4, 0.7), np.array(TIMES)
    result = sensitivity(model, TIMES, 3, replicas=4000, wrt="service_rate")
    decay = np.exp(-(a + m) * t)
    slope = 2 * a * (t * decay / (a + m) - (1 - decay) / (a + m) ** 2)
    corrected = result.mean_queue_length_derivative - result.mean_queue_length_derivative_bias
    error = result.mean_queue_length_derivative_stderr + result.mean_queue_length_derivative_bias_stderr
    assert result.step == pytest.approx(0.05 * m)
    assert np.all(np.abs(corrected - slope) < 5 * error)
    assert np.all(error < 0.3 * np.abs(slope))


def test_two_hundred_servers_against_the_mean_field_and_the_score_function():
    """Q(10) from empty: 4.4170 in the mean field, less noise a replica than any score function of the same chain."""
    model, replicas = jaxq.Supermarket(200, 2, 0.9, levels=16), REPLICAS
    result = sensitivity(model, [10.0], 1, replicas=replicas)
    (slope,), (error,) = result.mean_queue_length_derivative, result.mean_queue_length_derivative_stderr
    assert result.step == pytest.approx(0.05)
    assert abs(slope - 4.4170254) < 5 * error
    assert abs(result.mean_queue_length_derivative_bias[0] - 0.0033) < 5 * result.mean_queue_length_derivative_bias_stderr[0]
    paths = jaxq.simulate(model, [10.0], 2, replicas=replicas, save="paths")
    queue, arrivals = paths.paths[-1].sum(axis=0) / 200, paths.counter_paths["arrivals"][-1]
    # of the ticks on a clock of 2 n, arrivals and null ticks are independent Poisson numbers and the service ticks know nothing
    nulls = np.random.default_rng(0).poisson(200 * 0.1 * 10, replicas)
    ticks = arrivals / 0.9 - nulls / 0.1
    spread = error * math.sqrt(replicas)
    assert 0.4 < spread < 0.7
    for score, baseline, least in ((ticks, 0, 200), (ticks, queue.mean(), 20), (arrivals / 0.9 - 2000, 0, 100),
                                   (arrivals / 0.9 - 2000, queue.mean(), 10)):
        values = (queue - baseline) * score
        assert abs(values.mean() - slope) < 5 * values.std() / math.sqrt(replicas)
        assert values.std() > least * spread


def test_the_default_step_keeps_clear_of_another_way_to_draw():
    """At lambda = 0.95 and t = 20/3 the step would end at 1, where ticks are drawn with more bits."""
    model = jaxq.Supermarket(20, 2, 0.95, levels=16)
    assert sensitivity(model, [20 / 3], 2, replicas=REPLICAS).step == pytest.approx(0.9 * 0.05)
    assert sensitivity(model, [5.0], 2, replicas=REPLICAS, step=0.06).step == 0.06


def test_beta_is_the_arrival_rate_in_other_units():
    model = dataclasses.replace(jaxq.Supermarket.heavy_traffic(100, 2, 1.5), levels=16)
    by_rate, by_beta = (sensitivity(model, [3.0], 2, replicas=REPLICAS, wrt=wrt) for wrt in ("arrival_rate", "beta"))
    assert by_beta.at == pytest.approx(1.5)
    assert by_beta.step == pytest.approx(10 * by_rate.step)
    np.testing.assert_allclose(by_beta.tail_derivative, by_rate.tail_derivative / -10, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_beta.tail_derivative_stderr, by_rate.tail_derivative_stderr / 10, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_levels_blocks_and_save_times_change_nothing():
    model = MODEL
    for method in ("common-marks", "weak"):
        whole = sensitivity(model, [2.0, 6.0], 3, replicas=30, method=method)
        parts = sensitivity(dataclasses.replace(model, levels=2), [1.0, 2.0, 6.0], 3, replicas=30, block=7, method=method)
        levels = whole.tail_derivative.shape[1]
        np.testing.assert_array_equal(whole.tail_derivative, parts.tail_derivative[1:, :levels])
        np.testing.assert_array_equal(whole.mean_queue_length_derivative, parts.mean_queue_length_derivative[1:])
        assert not parts.tail_derivative[:, levels:].any()
        assert whole.events == parts.events


def test_the_chosen_tick_is_uniform():
    ticks, chosen = weak.one_tick(7.0, 1.0, bits.key_words(1), 20000)
    some = ticks > 0
    assert np.all(chosen[~some] == -1)
    assert 0 < (~some).sum() < 100
    place = (chosen[some] + 0.5) / ticks[some]
    assert abs(place.mean() - 0.5) < 5 * place.std() / some.sum() ** 0.5
    assert set(chosen[ticks == 5].tolist()) == {0, 1, 2, 3, 4}


def test_results_are_labelled_and_survive_a_file(tmp_path):
    assert not sensitivity(MODEL, [0.0], 3, replicas=REPLICAS).tail_derivative.any()
    result = sensitivity(MODEL, [2.0], 3, replicas=REPLICAS)
    data = result.to_xarray()
    assert data.tail_derivative_bias.dims == ("time", "level")
    result.save(tmp_path / "run.nc")
    loaded = jaxq.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(loaded.mean_queue_length_derivative, result.mean_queue_length_derivative)
    assert (loaded.attrs["wrt"], loaded.attrs["step"]) == ("arrival_rate", result.step)
    one = sensitivity(MODEL, [2.0], 3, replicas=1, method="weak").to_json()
    assert one["mean_queue_length_derivative_stderr"] == [None]
    assert one["tail_derivative_bias"] is None


@pytest.mark.parametrize(("changed", "message"), [
    ({"model": 3}, "model must be a jaxq model"), ({"ts": [1.0, 1.0]}, "strictly increasing"),
    ({"method": "score"}, "method must be one of 'common-marks', 'weak'"), ({"wrt": "n"}, "wrt must be one of 'arrival_rate' for"),
    ({"wrt": "beta"}, "wrt must be one of 'arrival_rate' for this Supermarket"), ({"at": 0.9}, "at goes with a function wrt"),
    ({"wrt": lambda rate: jaxq.Supermarket(20, 2, rate)}, "at must be a finite number"),
    ({"wrt": lambda rate: jaxq.Supermarket(20, 2, rate), "at": 0.8}, r"wrt\(at\) must be the model given; got Supermarket\(n=20"),
    ({"wrt": lambda theta: MODEL, "at": 1.0}, "must be a parameter that the chain depends on; '<lambda>' is none between 0.95 and"),
    ({"wrt": lambda n: jaxq.Supermarket(round(n), 2, 0.9), "at": 20.0, "step": 2.0}, "must have the same n"),
    ({"step": 0.0}, "step must be a finite number"), ({"step": 1.0}, "arrival_rate must be a finite number above 0"),
    ({"step": 0.09995}, "those of step 0.09995 do not; use another step"),
    ({"method": "weak", "step": 0.1}, 'method="weak" needs wrt="arrival_rate", no step'),
    ({"method": "weak", "model": Line(5, 0.4, 0.7)}, "a model that draws the types of its ticks"),
    ({"method": "weak", "replicas": 0}, "replicas must be an integer"), ({"replicas": 0}, "replicas must be an integer"),
    ({"key": -1}, "integer seed"), ({"method": "weak", "ts": [1e8]}, r"at most 2\*\*29 ticks a replica on average; got 3.8e\+09")])
def test_bad_input_is_refused_with_one_sentence(changed, message):
    given = {"model": MODEL, "ts": [1.0], "key": 0, "replicas": 2} | changed
    model, ts, key = given.pop("model"), given.pop("ts"), given.pop("key")
    with pytest.raises(ValueError, match=message) as caught:
        sensitivity(model, ts, key, **given)
    assert "\n" not in str(caught.value)
