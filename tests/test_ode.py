"""The guarded integrators against matrix exponentials and closed forms, and the failures the guard must see."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.ode import odeint
from scipy.linalg import expm

import jaxq
from jaxq import ode

mean_field = importlib.import_module("jaxq.mean_field")  # the name is the function's too

# not symmetric, complex eigenvalues, row sums of unlike size
MATRIX = np.array([[-1.0, 0.7, 0.0], [-2.0, -1.5, 0.3], [0.4, 0.0, -0.6]])
START = np.array([1.0, -0.5, 2.0])
STEP = 0.5 / 3.8


def linear(x, t, matrix):
    return matrix @ x


def decay(x, t, rate):
    return -rate * x


def braked(x, t, rate):
    return 1 - rate * x**2


def seasonal(x, t, rate):
    return -rate * x + jnp.cos(t)


@pytest.mark.parametrize("method", ode.METHODS)
def test_solve_is_the_matrix_exponential_at_any_times(method):
    ts = np.array([0.003, 0.5, 0.5001, 4.0])
    states = ode.solve(linear, START, ts, MATRIX, step=STEP, method=method)
    exact = np.stack([expm(MATRIX * t) @ START for t in ts])
    assert states.dtype == np.float64
    np.testing.assert_allclose(states, exact, rtol=0, atol=1e-9 if method == "odeint" else 1e-4)


def test_solve_across_chunks_and_at_time_zero():
    ts = np.array([0.0, 1.0, 150.0, 151.5])  # 0.1 apart: two compiled chunks of 1024
    states = ode.solve(seasonal, [2.0], ts, 0.3, step=0.1)[:, 0]
    exact = (0.3 * np.cos(ts) + np.sin(ts)) / 1.09 + (2 - 0.3 / 1.09) * np.exp(-0.3 * ts)
    np.testing.assert_allclose(states, exact, atol=1e-8)
    assert ode.solve(seasonal, [2.0], np.array([0.0]), 0.3, step=0.1).tolist() == [[2.0]]


def test_rk4_has_order_four_and_the_stated_error():
    exact = expm(MATRIX * 3.0) @ START
    norm = 3.8
    errors = []
    with jax.enable_x64(True):
        for step in (0.1, 0.05, 0.025):
            end = ode.path(linear, START, [3.0], MATRIX, step=step, method="rk4")[0]
            errors.append(np.max(np.abs(np.asarray(end) - exact)))
            assert errors[-1] < 3.0 * norm * (step * norm) ** 4 / 120 * np.max(np.abs(START))
    ratios = np.array(errors[:-1]) / errors[1:]
    assert np.all((ratios > 14) & (ratios < 18)), ratios


def test_reverse_mode_is_right_where_bare_odeint_is_not():
    def bare(rate):
        return odeint(braked, jnp.array([0.0]), jnp.array([0.0, 12.0]), rate, rtol=1e-10, atol=1e-12)[-1, 0]

    def guarded(rate):
        return ode.path(braked, [0.0], [12.0], rate, step=0.5 / 4)[-1, 0]  # |J| = 2 rate x <= 4

    with jax.enable_x64(True):
        exact = -0.5 * 4.0**-1.5  # x -> rate**-1/2, from which the way backwards leads to infinity
        assert not abs(float(jax.grad(bare)(4.0)) - exact) < 1e-3
        assert abs(float(jax.grad(guarded)(4.0)) - exact) < 1e-9


def test_both_modes_and_a_finite_difference_agree():
    weights = np.array([1.0, 2.0, -1.0])

    def value(scale, method):
        return (ode.path(linear, START, [0.5, 2.0], scale * MATRIX, step=STEP / 2, method=method) @ weights).sum()

    # d/ds w exp(s A t) x = w A t exp(s A t) x
    exact = sum(weights @ MATRIX @ expm(1.1 * MATRIX * t) @ START * t for t in (0.5, 2.0))
    with jax.enable_x64(True):
        reverse = [float(jax.jit(jax.grad(value), static_argnums=1)(1.1, method)) for method in ode.METHODS]
        forward = float(jax.jvp(lambda scale: value(scale, "rk4"), (1.1,), (1.0,))[1])
        h = 1e-5  # central: h**2 and rounding/h both near 1e-10
        difference = float(value(1.1 + h, "odeint") - value(1.1 - h, "odeint")) / (2 * h)
    np.testing.assert_allclose(reverse[0], exact, atol=1e-7)
    np.testing.assert_allclose([reverse[1], forward], exact, atol=1e-4)
    np.testing.assert_allclose(forward, reverse[1], rtol=1e-12)
    np.testing.assert_allclose(difference, exact, atol=1e-5)


def test_too_few_steps_are_seen():
    with jax.enable_x64(True):  # bare odeint says nothing: 0 within its tolerances is the truth
        silent = float(odeint(decay, jnp.array([1.0]), jnp.array([0.0, 50.0]), 3.0, mxstep=4)[-1, 0])
    assert np.isfinite(silent)
    assert abs(silent) > 1
    with pytest.raises(ValueError, match=r"at most 4 steps in each interval of 50; .* use a smaller step or a larger"):
        ode.solve(decay, [1.0], np.array([50.0]), 3.0, step=50.0, mxstep=4)


def test_too_coarse_a_step_is_seen():
    with pytest.raises(ValueError, match=r"rk4 with at most 1000 steps in each interval of 0.8; it left its equation"):
        ode.solve(decay, [1.0], np.array([8.0]), 3.0, step=0.8, method="rk4")


def rooted(x, t, rate):
    return -rate * jnp.sqrt(x)  # 0 at t = 2/rate from 1, no number below


def test_a_path_to_infinity_or_beyond_the_numbers_is_refused():
    def low(states):
        return "it is low" if states.min() < 0.5 else None

    for method in ode.METHODS:  # 1/(1 - t)
        with pytest.raises(ValueError, match=rf"solved by {method} .* between t = 0 and 2; use .* an earlier end"):
            ode.solve(lambda x, t, rate: rate * x**2, [1.0], np.array([2.0]), 1.0, step=0.1, method=method)
    assert abs(ode.solve(rooted, [1.0], np.array([1.0]), 1.0, step=0.1)[0, 0] - 0.25) < 1e-9
    with pytest.raises(ValueError, match=r"left its equation between t = 0 and 3, where it is low; use"):
        ode.solve(rooted, [1.0], np.array([3.0]), 1.0, step=0.1, check=low)
    with pytest.raises(ValueError, match=r"initial must be finite; got nan in one of 2 states"):
        ode.solve(decay, [1.0, np.nan], np.array([0.0]), 1.0, step=0.1)


def test_a_fault_beside_a_large_state_is_seen():
    """The state that leaves its equation is 1e-9 of another that stands still."""
    def beside(x, t, rate):
        return jnp.stack([0.0 * x[0], -rate * x[1]])

    for options in ({"step": 5.0, "mxstep": 2}, {"step": 2.0, "method": "rk4"}):
        with pytest.raises(ValueError, match="it left its equation"):
            ode.solve(beside, [1e9, 1.0], np.array([5.0]), 3.0, **options)


def test_tolerances_below_the_last_bit_give_it():
    states = ode.solve(decay, [1.0], np.array([3.0]), 1.0, step=0.1, rtol=1e-19, atol=1e-22)
    assert abs(states[0, 0] - np.exp(-3)) < 1e-13


@pytest.mark.parametrize("step", [0.0, -0.1, np.nan, np.inf])
def test_no_step_is_refused_everywhere(step):
    """An infinite one once gave the start for every time."""
    with pytest.raises(ValueError, match="step must be a finite number above 0; got"):
        ode.solve(decay, [1.0], np.array([3.0]), 1.0, step=step)
    with jax.enable_x64(True), pytest.raises(ValueError, match="step must be a finite number above 0; got"):
        ode.path(decay, [1.0], [3.0], 1.0, step=step)


def test_mass_that_leaves_by_the_last_level_is_said(monkeypatch):
    """Twice the capacity: by t = 20 the queues are longer than the levels that there may be."""
    model = jaxq.Supermarket(10, 2, 2.0, levels=4)
    monkeypatch.setattr(mean_field, "_MOST_LEVELS", 16)
    with pytest.raises(ValueError, match=r"must fit in 8 levels up to t = 20; got a truncation error of .*, or levels=8"):
        jaxq.mean_field(model, [1.0, 20.0])
    kept = jaxq.mean_field(model, [1.0, 20.0], levels=8)
    assert kept.truncation_error > 1


def test_the_callers_check_is_asked():
    def small(states):
        return "the state exceeds 1" if states.max() > 1 else None

    assert ode.solve(decay, [1.0], np.array([1.0]), 2.0, step=0.1, check=small).shape == (1, 1)
    with pytest.raises(ValueError, match=r"at most 1000 steps an interval the state exceeds 1; use"):
        ode.solve(decay, [1.0], np.array([1.0]), -2.0, step=0.1, check=small)


def test_new_parameters_and_times_do_not_compile_again():
    traces, counts = [], []

    def counted(x, t, rate):
        traces.append(1)
        return -rate * x

    for rate, last in ((1.0, 3.0), (1.7, 2.9), (2.0, 3.1)):
        end = ode.solve(counted, [1.0], np.array([0.5, last]), rate, step=0.1)[-1, 0]
        np.testing.assert_allclose(end, np.exp(-rate * last), atol=1e-9)
        counts.append(len(traces))
    assert counts[0] > 0
    assert counts == [counts[0]] * 3


def test_the_global_flag_is_left_alone():
    before = jnp.zeros(()).dtype
    states = ode.solve(decay, np.float32([1.0]), np.array([1.0]), 1.0, step=0.1)
    assert jnp.zeros(()).dtype == before
    assert type(states) is np.ndarray
    assert abs(states[0, 0] - np.exp(-1)) < 1e-10
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"needs float64; x64 is off; call it inside"):
        ode.path(decay, [1.0], [1.0], 1.0, step=0.1)


def test_fine_grid_contains_the_times_and_is_fine():
    rng = np.random.default_rng(5)
    for _ in range(50):
        ts = np.unique(rng.exponential(3.0, size=rng.integers(1, 9)))
        breaks = rng.exponential(3.0, size=rng.integers(0, 5))
        grid, picked = ode.fine_grid(ts, 0.3, breaks)
        assert grid[0] == 0
        assert np.all(np.diff(grid) > 0)
        assert np.diff(grid).max() <= 0.3 * (1 + 1e-12)
        assert np.array_equal(grid[picked], ts)
        assert set(breaks[breaks < ts[-1]]) <= set(grid)


def test_bad_input():
    with pytest.raises(ValueError, match=r"the last time must be at most 1e.06 .* got 1e.09; use fixed_point"):
        ode.solve(decay, [1.0], np.array([1e9]), 1.0, step=0.1)
    with pytest.raises(ValueError, match=r"mxstep must be an integer at least 1; got 0"):
        ode.solve(decay, [1.0], np.array([1.0]), 1.0, step=0.1, mxstep=0)
    with pytest.raises(ValueError, match=r"method must be one of 'odeint', 'rk4'; got 'euler'"):
        ode.solve(decay, [1.0], np.array([1.0]), 1.0, step=0.1, method="euler")
    with jax.enable_x64(True), pytest.raises(ValueError, match=r"ts must be strictly increasing; got 1 then 1"):
        ode.path(decay, [1.0], [1.0, 1.0], 1.0, step=0.1)


def test_jacobian_norm_is_the_largest_row_sum():
    assert abs(ode.jacobian_norm(linear, np.stack([START, START]), MATRIX) - 3.8) < 1e-14
    with pytest.raises(ValueError, match=r"needs a finite Jacobian .* got nan; check the model's rates there, or start elsewhere"):
        ode.jacobian_norm(rooted, np.array([[1.0], [-1.0]]), 1.0)
