"""The scaling study: starts, limits, errors, slopes and files."""

import csv
import importlib

import numpy as np
import pytest

import jaxq
from jaxq import heavy_traffic
from jaxq.engine import Engine

module = importlib.import_module("jaxq.study")


@pytest.fixture(scope="module")
def small():
    return jaxq.scaling_study(2, 1.0, n=[1000, 4000, 16000], t_end=10.0, replicas=60, key=3, num_times=21)


def test_bias_follows_the_finite_eta_system(small):
    """Within 5 standard errors plus eta/(2n), the finite-n correction; its slope within 4 of the finite-eta slope."""
    assert np.all(np.abs(small.bias - small.bias_finite) < 5 * small.bias_stderr + small.eta / (2 * small.n))
    bias = small.slopes["bias"]
    assert abs(bias["slope"] - bias["finite_eta"]) < 4 * bias["stderr"]
    assert bias["asymptotic"] == -0.5
    fluctuation = small.slopes["fluctuation"]
    assert abs(fluctuation["slope"] + 0.25) < 4 * fluctuation["stderr"]
    assert fluctuation["predicted"] == -0.25


@pytest.mark.slow
def test_the_study_of_the_paper():
    """The study of the README at its sizes, through n = 1e5."""
    study = jaxq.scaling_study(2, 1.0, 0.5, n=[1000, 10_000, 100_000], t_end=10.0, replicas=200, key=0)
    np.testing.assert_allclose(study.bias_finite, [0.18854, 0.06482, 0.02108], rtol=5e-3)  # from rounded starts here
    assert np.all(np.abs(study.bias - study.bias_finite) < 5 * study.bias_stderr + study.eta / (2 * study.n))
    assert abs(study.slopes["bias"]["slope"] - study.slopes["bias"]["finite_eta"]) < 4 * study.slopes["bias"]["stderr"]
    assert study.slopes["bias"]["finite_eta"] == pytest.approx(-0.476, abs=1e-3)
    assert abs(study.slopes["fluctuation"]["slope"] + 0.25) < 4 * study.slopes["fluctuation"]["stderr"]


def test_rows_start_and_end_where_the_theory_says(small):
    for k, n in enumerate(small.n):
        eta = n**0.5
        start = heavy_traffic.start_profile(8, 2, 1.0, eta)
        np.testing.assert_allclose(small.T_mean[k, 0], start, atol=0.51 * eta / n)  # one rounding of n S_i
        np.testing.assert_array_equal(small.T_finite[k, 0], small.T_mean[k, 0])
        assert not small.T_std[k, 0].any()
        np.testing.assert_allclose(small.T_limit[k, 0], heavy_traffic.pi(8, 2, 1.0) + [2, 2, 2, 0, 0, 0, 0, 0])
    assert small.T_mean.shape == (3, 21, 8)
    assert small.eta.tolist() == [n**0.5 for n in (1000, 4000, 16000)]


def test_sups_and_errors_are_those_of_the_replicas(small):
    weights = 2.0 ** -np.arange(1, 5)
    assert small.bias[1] == pytest.approx(np.max(np.abs(small.T_mean[1] - small.T_limit[1])[:, :4] * weights), rel=1e-12)
    assert small.fluctuation[1] == pytest.approx(np.max(small.T_std[1][:, :4] * weights), rel=1e-12)
    np.testing.assert_allclose(small.T_stderr, small.T_std / 60**0.5, rtol=1e-12)


@pytest.mark.slow
def test_bootstrap_errors_are_the_spread_of_independent_studies():
    """Twenty studies with other seeds: the mean bootstrap error within a factor 1.6 of their standard deviation."""
    runs = [jaxq.scaling_study(2, 1.0, n=[1000], t_end=4.0, replicas=40, key=key, num_times=5) for key in range(20)]
    for name in ("bias", "fluctuation"):
        spread = np.std([getattr(run, name)[0] for run in runs], ddof=1)
        claimed = np.mean([getattr(run, f"{name}_stderr")[0] for run in runs])
        assert 1 / 1.6 < claimed / spread < 1.6


def test_each_n_can_be_run_again_by_its_seed(small):
    model = jaxq.Supermarket.heavy_traffic(4000, 2, 1.0)
    counts = heavy_traffic.tail_counts(heavy_traffic.start_profile(64, 2, 1.0, model.eta), 4000, model.eta)
    again = jaxq.simulate(model, small.times, int(small.seed[1]), replicas=60, initial=counts)
    np.testing.assert_array_equal(again.T_mean[:, :8], small.T_mean[1])


def test_one_size_has_no_slope():
    study = jaxq.scaling_study(2, 1.0, n=[500], t_end=1.0, replicas=5, key=0, num_times=2)
    assert study.slopes is None
    assert study.to_json()["rows"][0]["n"] == 500


@pytest.mark.parametrize(("start", "first"), [
    ("empty", lambda eta: np.full(4, eta)), ("fixed-point", lambda eta: heavy_traffic.fixed_point_T(4, 2, 1.0, eta)),
    ([2.0, 4.0], lambda eta: np.array([2.0, 4.0, 8.0, 16.0]))])
def test_other_starts(start, first):
    study = jaxq.scaling_study(2, 1.0, n=[900], t_end=1.0, replicas=5, key=0, num_times=2, start=start)
    np.testing.assert_allclose(study.T_mean[0, 0, :4], np.minimum(first(30.0), 30.0), atol=0.51 * 30 / 900)
    if start == [2.0, 4.0]:
        assert study.T_limit[0, 0].tolist() == [2, 4, 8, 16, 32, 64, 128, 256]


def test_files_hold_every_row_as_soon_as_it_is_done(tmp_path, monkeypatch):
    advance, started = Engine.advance, []

    def interrupted(self, takes):
        started.append(self.model.n)
        if self.model.n == 2000:
            raise KeyboardInterrupt
        return advance(self, takes)

    monkeypatch.setattr(Engine, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jaxq.scaling_study(2, 1.0, n=[1000, 2000], t_end=1.0, replicas=5, key=0, num_times=3, out_dir=tmp_path)
    data = jaxq.load(tmp_path / "study.nc")
    assert data.n.values.tolist() == [1000]
    assert data.T_mean.dims == ("n", "time", "level")
    rows = list(csv.DictReader((tmp_path / "study.csv").read_text().splitlines()))
    assert float(rows[0]["bias"]) == float(data.bias[0])
    assert set(rows[0]) >= {"n", "eta", "arrival_rate", "bias", "bias_stderr", "bias_finite", "fluctuation", "replicas", "seed"}


def test_alpha_above_one_half_warns_of_condition_5():
    with pytest.warns(UserWarning, match=r"alpha = 0.75 is outside \(0, 1/2\]: condition \(5\)"):
        jaxq.scaling_study(2, 1.0, 0.75, n=[500], t_end=0.5, replicas=3, key=0, num_times=2)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"n": []}, "n must be an increasing list"), ({"n": [10, 10]}, "n must be an increasing list"),
    ({"n": [100, 50]}, "increasing"), ({"n": [20]}, "the least n is [0-9]+; give another start"),
    ({"d": 1}, "no eta is large enough; give another start"), ({"d": 1.5}, "d must be an integer"),
    ({"beta": 100.0}, "beta must be below eta"), ({"t_end": 0.0}, "t_end must be a finite number above 0"),
    ({"alpha": 0.0}, "alpha must be a finite number above 0"), ({"num_times": 1}, "num_times must be an integer at least 2"),
    ({"start": "full"}, "start must be one of 'empty', 'fixed-point'"), ({"start": [3.0, 2.0]}, "T_1 <= T_2"),
    ({"start": [1.0, 500.0]}, "T_1 <= T_2 <= ... <= eta = 31.6"), ({"replicas": 0}, "replicas must be an integer")])
def test_bad_input_is_refused_before_any_run(arguments, message):
    settings = {"d": 2, "beta": 1.0, "n": [1000], "t_end": 1.0, "replicas": 2, "key": 0, "num_times": 2} | arguments
    with pytest.raises(ValueError, match=message) as caught:
        jaxq.scaling_study(settings.pop("d"), settings.pop("beta"), **settings)
    assert "\n" not in str(caught.value)
