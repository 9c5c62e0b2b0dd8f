"""The mean field and its fixed point against closed forms, published values, and hand algebra."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from epidemic import Epidemic

from jaxq import Pool, Pull, Supermarket, pull_theory
from jaxq.chain import Model
from jaxq.mean_field import fixed_point, mean_field, mean_field_path, newton_step

REFERENCE = json.loads((Path(__file__).parent / "reference" / "meanfield.json").read_text())["cases"]
SLOPE = 4.417025  # d/dlambda of Q(10) from empty, lambda = .9, d = 2: required to 1e-5


def closed_form(rate, d, levels):
    i = np.arange(1, levels + 1)
    return rate ** (i if d == 1 else (float(d) ** i - 1) / (d - 1))


@pytest.mark.parametrize(("d", "rate", "end"), [(1, 0.5, 300.0), (2, 0.9, 400.0), (3, 0.8, 200.0), (5, 0.9, 200.0)])
def test_the_ode_ends_in_the_closed_form(d, rate, end):
    result = mean_field(Supermarket(100, d, rate), [end])
    np.testing.assert_allclose(result.tail[-1], closed_form(rate, d, result.tail.shape[1]), rtol=0, atol=1e-8)
    assert result.truncation_error <= 1e-9


def test_slope_in_the_load_by_every_mode():
    def queue(rate, method):
        return mean_field_path(Supermarket(100, 2, rate), [2.0, 10.0], method=method)[-1].sum()

    before = jnp.zeros(()).dtype
    with jax.enable_x64(True):
        reverse = float(jax.grad(queue)(0.9, "odeint"))
        forward = float(jax.jvp(lambda rate: queue(rate, "rk4"), (0.9,), (1.0,))[1])
        h = 1e-3  # central: h**2 times the third derivative, about 1e-5 of it, beside 1e-10/h
        plus, minus = (mean_field(Supermarket(100, 2, 0.9 + s), [10.0]).mean_queue_length[0] for s in (h, -h))
    assert jnp.zeros(()).dtype == before
    assert abs(reverse - SLOPE) < 1e-5
    assert abs(forward - SLOPE) < 1e-5
    assert abs((plus - minus) / (2 * h) - SLOPE) < 1e-4


def test_under_jit_the_step_must_be_given():
    def queue(rate, **given):
        return mean_field_path(Supermarket(100, 2, rate, buffer=8), [1.0], method="rk4", **given).sum()

    with jax.enable_x64(True):
        with pytest.raises(ValueError, match=r"needs step and initial where jit or vmap hides"):
            jax.jit(queue)(0.9)
        hidden = jax.jit(lambda rate: queue(rate, step=0.05, initial=jnp.zeros(8)))(0.9)
        assert abs(float(hidden) - float(queue(0.9))) < 1e-6


def test_first_level_at_d_1_and_a_start():
    # M/M/1 with room for one: S' = lambda (1 - S) - S
    result = mean_field(Supermarket(10, 1, 0.6, buffer=1), [0.0, 0.7, 3.0], initial=[0.9])
    np.testing.assert_allclose(result.tail[:, 0], 0.375 + (0.9 - 0.375) * np.exp(-1.6 * result.times), atol=1e-9)
    assert result.truncation_error == 0


def test_counts_and_densities_are_the_same_start():
    model = Supermarket(8, 2, 0.9)
    counts = mean_field(model, [0.5], initial=[6, 2], method="rk4")
    np.testing.assert_array_equal(counts.tail, mean_field(model, [0.5], initial=[0.75, 0.25], method="rk4").tail)
    np.testing.assert_allclose(mean_field(model, [0.0], initial=[6, 2]).tail[0, :3], [0.75, 0.25, 0.0])


def test_levels_double_until_the_tail_fits():
    # d = 1 from 40 customers each: no queue is empty before t = 10 but for Poisson's tail, so Q = 40 + (1.2 - 1) t
    result = mean_field(Supermarket(10, 1, 1.2), [10.0], initial=np.ones(40), method="rk4")
    assert abs(result.mean_queue_length[0] - 42.0) < 1e-8
    assert result.truncation_error <= 1e-9
    assert result.tail.shape[1] >= 64


def test_a_tight_truncation_reports_its_error():
    result = mean_field(Supermarket(10, 2, 0.9), [300.0], levels=2, method="rk4")
    assert result.tail.shape == (1, 2)
    assert result.truncation_error > 0.05
    assert np.abs(result.tail[0] - closed_form(0.9, 2, 2)).max() < result.truncation_error


def test_finite_n_is_the_distinct_choice_and_n_is_else_ignored():
    # d = 2 of n = 2 without replacement, one place each: a customer is lost iff both are busy, w(S) = S (2 S - 1);
    # S' = 1.3 (1 - w(S)) - S rests where 2.6 S**2 - 0.3 S - 1.3 = 0
    model = Supermarket(2, 2, 1.3, replacement=False, buffer=1)
    rest = (0.3 + np.sqrt(0.09 + 4 * 2.6 * 1.3)) / 5.2
    assert abs(mean_field(model, [60.0], finite_n=True, method="rk4").tail[0, 0] - rest) < 1e-9
    limit = (-1 + np.sqrt(1 + 4 * 1.3**2)) / 2.6  # S = 1.3 (1 - S**2)
    assert abs(mean_field(model, [60.0], method="rk4").tail[0, 0] - limit) < 1e-9
    assert abs(fixed_point(model).tail[0] - limit) < 1e-12


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"d{case['d']}-{case['lambda']}")
def test_fixed_point_is_the_published_one(case):
    for replacement in (True, False):
        result = fixed_point(Supermarket(50, case["d"], case["lambda"], replacement))
        assert abs(result.mean_queue_length - case["Q_inf"]) < 6e-7
        np.testing.assert_allclose(result.tail, closed_form(case["lambda"], case["d"], result.tail.size), atol=1e-13)
        assert result.residual < 1e-13


def test_fixed_point_with_a_buffer_balances_the_flow():
    result = fixed_point(Supermarket(50, 3, 1.4, buffer=3))
    S = np.concatenate([[1.0], result.tail, [0.0]])
    np.testing.assert_allclose(S[1:-1], 1.4 * (S[:-2] ** 3 - S[-2] ** 3), atol=1e-12)  # level i: lambda (S_{i-1}^d - S_B^d)


def test_fixed_point_needs_more_levels_at_d_1():
    result = fixed_point(Supermarket(50, 1, 0.9))
    assert abs(result.mean_queue_length - 9.0) < 1e-10
    assert result.tail[-1] <= 1e-14


def test_a_poor_guess_is_relaxed_by_the_flow():
    result = fixed_point(Epidemic(10, 3.0, 0.1))
    exact = (1.9 + np.sqrt(1.9**2 + 4 * 3.0 * 0.1)) / 6  # 0.1 + 1.9 x - 3 x**2 = 0
    assert abs(result.tail[0] - exact) < 1e-12


def test_any_population_model_has_its_ode():
    ts = np.array([0.5, 2.0, 9.0])
    result = mean_field(Epidemic(20, 3.0, 0.0), ts, initial=[0.05])
    exact = (2 / 3) / (1 + ((2 / 3) / 0.05 - 1) * np.exp(-2.0 * ts))  # logistic
    np.testing.assert_allclose(result.tail[:, 0], exact, atol=1e-9)


def test_newton_step_has_the_fixed_points_derivative():
    with jax.enable_x64(True):
        x = jnp.asarray(closed_form(0.9, 2, 12))
        for slope in (jax.jacrev, jax.jacfwd):
            got = jax.jit(slope(lambda rate: newton_step(x, Supermarket(50, 2, rate, levels=12))))(0.9)
            exponent = 2.0 ** np.arange(1, 13) - 1
            np.testing.assert_allclose(np.asarray(got), exponent * 0.9 ** (exponent - 1), atol=1e-9)


def test_results_are_labelled():
    result = mean_field(Supermarket(10, 2, 0.5), [0.0, 1.0], method="rk4")
    assert set(result.to_json()) == {"times", "tail", "mean_queue_length", "truncation_error"}
    assert result.coordinates()["level"][0] == 1
    np.testing.assert_allclose(result.mean_queue_length, result.tail.sum(axis=1), atol=1e-12)


def test_bad_input():
    plain = type("Plain", (Model,), dict.fromkeys(Model.__abstractmethods__))()
    for call in (lambda: mean_field(plain, [1.0]), lambda: fixed_point(plain), lambda: mean_field_path(plain, [1.0])):
        with pytest.raises(ValueError, match=r"needs a population model.* got Plain.*jaxq.Supermarket.*pair approximation"):
            call()
    model = Supermarket(10, 2, 0.9)
    for rate in (1.0, 1.5):
        with pytest.raises(ValueError, match=r"needs a load below 1 .* or a finite buffer; got .*lower arrival_rate"):
            fixed_point(Supermarket(10, 2, rate))
    with pytest.raises(ValueError, match=r"must fit in 1024 levels; got .*too near its full load"):
        fixed_point(Supermarket(10, 1, 0.9999))
    with pytest.raises(ValueError, match=r"initial must be .* the tail rises by 0.2 at level 2"):
        mean_field(model, [1.0], initial=[0.5, 0.7])
    with pytest.raises(ValueError, match=r"initial must be 2 densities .* it has 3"):
        mean_field(Supermarket(10, 2, 0.9, buffer=2), [1.0], initial=[0.5, 0.4, 0.3])
    with pytest.raises(ValueError, match=r"ts must be finite times >= 0; got -1"):
        mean_field(model, [-1.0, 2.0])
    with pytest.raises(ValueError, match=r"levels must be an integer at least 1; got 0"):
        mean_field(model, [1.0], levels=0)


def test_pull_has_its_closed_equilibrium_and_stops_where_messages_run_out():
    pools = [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)]
    model = Pull(1000, pools, 2, 0.8)
    fixed = fixed_point(model)
    nu = pull_theory.equilibrium(pools, 0.8).nu
    np.testing.assert_allclose(fixed.tail[0], nu.sum(), rtol=1e-12)
    assert not fixed.tail[1:].any()
    path = mean_field(model, [1.0, 60.0])
    np.testing.assert_allclose(path.tail[-1, 0], nu.sum(), rtol=1e-6)
    uneven = Pull(1000, [Pool(1.0)], 2, 0.8)
    few = np.where(uneven.empty() > 0, 0.01, 0.0)  # at one router, drained before any server is done
    with pytest.raises(ValueError, match="a router runs out of messages"):
        mean_field(uneven, [1.0], initial=few)
