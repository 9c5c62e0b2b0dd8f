"""Heavy traffic against matrix exponentials, the reference Green function, exact decimals, hand algebra and the paper."""

import json
import math
from decimal import Decimal, localcontext
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from jaxq import heavy_traffic as ht

REFERENCE = json.loads((Path(__file__).parent / "reference" / "limit.json").read_text())["cases"]


def generator(levels, d):
    return -(d + 1) * np.eye(levels) + np.eye(levels, k=1) + d * np.eye(levels, k=-1)


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"d{case['d']}")
def test_green_is_the_reference(case):
    G = ht.green(case["t"], case["rows"], case["cols"], case["d"])
    np.testing.assert_allclose(G, case["G"], rtol=0, atol=1e-7)


@pytest.mark.parametrize(("d", "t"), [(1, 3.0), (2, 0.3), (3, 5.0)])
def test_green_is_the_matrix_exponential(d, t):
    G = ht.green(t, np.arange(1, 6), [1, 4], d)
    np.testing.assert_allclose(G, expm(generator(70, d) * t)[:5, [0, 3]], atol=1e-10)


def test_green_at_the_ends_of_time():
    assert ht.green(0.0, [1, 2], [1, 2, 3], 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    # d = 1, t large: the walk killed at 0, 2 i j / (z sqrt(2 pi z)) with z = 2 t, up to a relative 1/z
    z = 2e6
    G = ht.green(z / 2, [1, 5], [1, 3], 1)
    np.testing.assert_allclose(G, np.outer([1, 5], [1, 3]) * 2 / (z * math.sqrt(2 * math.pi * z)), rtol=2e-5)
    assert np.all(np.isfinite(ht.green(30.0, [1, 400], [1, 400], 64)))  # 64**200 is beyond the floats
    assert ht.green(1e5, [1], [1], 2).tolist() == [[0.0]]


@pytest.mark.parametrize("above", ["fixed-point", "zero"])
@pytest.mark.parametrize("d", [1, 3])
def test_limit_is_the_matrix_exponential(d, above):
    initial, ts = [1.0, 5.0, 2.0, 2.5], [0.0, 0.5, 3.0]
    full = list(initial)
    for _ in range(100 if d == 1 else 45):  # by the words of the definition
        full.append((d + 1) * full[-1] - d * full[-2] if above == "fixed-point" else 0.0)
    exact = np.stack([(expm(generator(len(full), d) * t) @ full)[:4] for t in ts])
    for method in ("ode", "exact"):
        result = ht.limit(ts, initial, d, above=above, method=method)
        np.testing.assert_allclose(result.T, exact, atol=1e-8)
        assert result.truncation_error < 1e-9


def test_limit_keeps_its_fixed_points_and_zeros():
    for method in ("ode", "exact"):
        assert np.all(ht.limit([0, 1, 50], [1, 3, 7, 15], 2, method=method).T == [1, 3, 7, 15])
    np.testing.assert_allclose(ht.limit([0.0], [1, 3], 2, levels=6, method="exact").T[0], ht.pi(6, 2, 1.0), rtol=1e-15)
    ends = ht.limit([0.0, 2.0], [4, 1, 0, 0], 2, levels=6, method="exact").T
    np.testing.assert_array_equal(ends, ht.limit([0.0, 2.0], [4, 1, 0, 0], 2, levels=6, method="exact", above="zero").T)
    assert ends[0].tolist() == [4, 1, 0, 0, 0, 0]
    assert np.all(ends[1] > 0)


def test_no_horizon_sees_the_edge():
    # one level raised decays to pi at rate (sqrt(2) - 1)**2; pi_1 itself, the slope at the top, is conserved
    raised = ht.pi(8, 2, 1.5) + np.eye(8)[1]
    result = ht.limit([200.0], raised, 2)
    np.testing.assert_allclose(result.T[0], ht.pi(8, 2, 1.5), atol=1e-7)
    many = ht.limit([4000.0], [1.0, 0.0, 5.0], 1, method="exact")
    assert many.truncation_error < 1e-12
    np.testing.assert_allclose(many.T[0], 5 * np.arange(1, 4) - 10 * np.arange(1, 4) / math.sqrt(math.pi * 4000), rtol=1e-3)


def test_fixed_points_and_bounds():
    assert ht.pi(4, 2, 1.5).tolist() == [1.5, 4.5, 10.5, 22.5]
    assert ht.pi(3, 1, 2.0).tolist() == [2, 4, 6]
    T = ht.fixed_point_T(8, 2, 1.0, 100.0)
    np.testing.assert_allclose(T, [1, 2.970, 6.794, 13.994, 26.770, 46.909, 72.096, 92.291], atol=6e-4)
    np.testing.assert_allclose(T, 100 * (1 - 0.99 ** (2.0 ** np.arange(1, 9) - 1)), rtol=1e-12)
    assert ht.fixed_point_T(1100, 3, 1.0, 50.0)[-1] == 50.0
    S = 0.99 ** (2.0 ** np.arange(1, 9) - 1)
    np.testing.assert_allclose(ht.theorem5_bound(8, 2, 1.0, 100.0), 1 - 0.01 * (2.0 ** np.arange(1, 9) - 1), rtol=1e-12)
    np.testing.assert_allclose(ht.theorem5_bound(8, 2, 1.0, 100.0, sharper=True), S, rtol=1e-12)
    assert np.all(ht.theorem5_bound(8, 3, 1.0, 100.0)[1:] < ht.theorem5_bound(8, 3, 1.0, 100.0, sharper=True)[1:])


@pytest.mark.parametrize(("n", "bias"), [(10**3, 0.18854), (10**4, 0.06482), (10**5, 0.02108)])
def test_bias_of_the_finite_eta_system(n, bias):
    """The figures of the study: starts unrounded, (10) from pi + 2 beta on levels 1..3."""
    eta, ts, raised = n**0.5, np.arange(101) / 10, 2.0 * (np.arange(12) < 3)
    finite = ht.finite_eta(ts, ht.start_profile(40, 2, 1.0, eta), 2, 1.0, eta, levels=4)
    limit = ht.limit(ts, ht.pi(12, 2, 1.0) + raised, 2, levels=4)
    assert abs(np.max(2.0 ** -np.arange(1, 5) * np.abs(finite.T - limit.T)) - bias) < 6e-6
    assert finite.truncation_error < 1e-9


def decimal_path(T, rate, eta, end, steps):
    """RK4 for d = 2 in S with 40 decimal digits, S = 0 above, then eta (1 - S)."""
    with localcontext() as context:
        context.prec = 40
        rate, eta, h = Decimal(rate), Decimal(eta), Decimal(end) / steps
        S = [1 - Decimal(float(x)) / eta for x in T]

        def drift(S):
            squares, above = [Decimal(1)] + [s * s for s in S], [*S[1:], Decimal(0)]
            return [rate * (a - b) - (s - up) for a, b, s, up in zip(squares[:-1], squares[1:], S, above, strict=True)]

        for _ in range(steps):
            k1 = drift(S)
            k2 = drift([s + h / 2 * k for s, k in zip(S, k1, strict=True)])
            k3 = drift([s + h / 2 * k for s, k in zip(S, k2, strict=True)])
            k4 = drift([s + h * k for s, k in zip(S, k3, strict=True)])
            S = [s + h / 6 * (a + 2 * b + 2 * c + e) for s, a, b, c, e in zip(S, k1, k2, k3, k4, strict=True)]
        return np.array([float(eta * (1 - s)) for s in S])


@pytest.mark.parametrize("eta", [10**8, 10**12])
def test_no_digits_are_lost_at_large_eta(eta):
    start = ht.start_profile(40, 2, 1.0, eta)
    exact = decimal_path(start, Decimal(1) - Decimal(1) / eta, eta, 0.5, 200)
    result = ht.finite_eta([0.5], start, 2, 1.0, eta)
    np.testing.assert_allclose(result.T[0, :25], exact[:25], rtol=1e-9)  # above, S = 0 beyond level 40 is felt
    fixed = ht.fixed_point_T(40, 2, 1.0, eta)
    np.testing.assert_allclose(ht.finite_eta([0.5], fixed, 2, 1.0, eta).T[0, :25], fixed[:25], rtol=1e-9)


def test_finite_eta_is_differentiable_where_servers_are_empty():
    """T = eta (nobody there): in beta and eta both modes, against a finite difference."""
    def value(beta, eta, method="odeint", d=2):
        start = jnp.concatenate([jnp.asarray([1.0, 2.5]), jnp.full(10, eta)])
        return ht.finite_eta_path([1.5], start, d, beta, eta, method=method)[0, :3].sum()

    with jax.enable_x64(True):
        reverse = np.array(jax.jit(jax.grad(value, argnums=(0, 1)))(1.2, 20.0))
        forward = np.array(jax.jit(jax.jacfwd(value, argnums=(0, 1)), static_argnums=2)(1.2, 20.0, "rk4"))
        run = jax.jit(value, static_argnums=2)
        h = 1e-4  # central: h**2 = 1e-8 beside 1e-10/h = 1e-6
        difference = [(run(1.2 + h, 20.0, "odeint") - run(1.2 - h, 20.0, "odeint")) / (2 * h),
                      (run(1.2, 20.0 + h, "odeint") - run(1.2, 20.0 - h, "odeint")) / (2 * h)]
        # d = 1 and one level: T' = -lambda T + eta - T, linear even at T = eta, so dT(t)/dT(0) = exp(-(1 + lambda) t)
        full = jnp.array([20.0])
        slope = jax.jacfwd(lambda start: ht.finite_eta_path([0.8], start, 1, 2.0, 20.0, method="rk4")[0, 0])(full)
    np.testing.assert_allclose(reverse, forward, atol=3e-6)
    np.testing.assert_allclose(reverse, difference, atol=1e-5)
    np.testing.assert_allclose(slope, math.exp(-1.9 * 0.8), atol=1e-6)


def test_from_empty_at_d_1():
    # M/M/1 from empty, T = eta everywhere: S_1' = lambda (1 - S_1) - (S_1 - S_2); against expm of the buffered linear system
    rate, levels = 0.8, 30
    A = np.diag(np.full(levels, -1 - rate)) + np.eye(levels, k=1) + rate * np.eye(levels, k=-1)
    S = np.linalg.solve(A, (expm(A * 2.0) - np.eye(levels)) @ (rate * np.eye(levels)[0]))
    result = ht.finite_eta([2.0], [5.0, 5.0], 1, 1.0, 5.0)
    np.testing.assert_allclose(result.T[0], 5 * (1 - S[:2]), atol=1e-8)


def test_integral_equation_without_forcing():
    start, ts = ht.start_profile(20, 3, 1.0, 60.0), [0.0, 0.7, 4.0]
    forced = ht.integral_equation(ts, start, 3, eta=60.0, arrival_rate=1 - 1 / 60, levels=5)
    np.testing.assert_allclose(forced.T, ht.finite_eta(ts, start, 3, 1.0, 60.0, levels=5).T, rtol=1e-6)
    assert forced.truncation_error < 1e-9
    assert forced.attributes["step_error"] < 1e-5
    linear = ht.integral_equation(ts, [1.0, 5.0, 2.0], 3)
    np.testing.assert_allclose(linear.T, ht.limit(ts, [1.0, 5.0, 2.0], 3, method="exact").T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("eta", [30.0, math.inf])
@pytest.mark.parametrize("given", ["function", "table"])
def test_integral_equation_recovers_a_chosen_path(eta, given):
    """T_i = c_i + k_i sin t on levels 1..3 (d = 2), constant above: y follows from (7) by integrals known in closed form."""
    c, k, rate = np.array([2.0, 5.0, 9.0]), np.array([0.5, -1.0, 0.3]), 0.9 if math.isfinite(eta) else 1.0
    top = eta if math.isfinite(eta) else 0.0

    def y(t):
        square = c**2 * t + 2 * c * k * (1 - np.cos(t)) + k**2 * (t / 2 - np.sin(2 * t) / 4)
        plain = c * t + k * (1 - np.cos(t))                       # int T
        H = np.concatenate([[0.0], 2 * plain - square / eta, [(top if top else 0.0) * t]])  # int eta (1 - S**2)
        rise = rate * np.diff(H)                                  # lambda d int [T_i - T_{i-1} + g(T_{i-1}) - g(T_i)]
        above = np.concatenate([plain[1:], [top * t, top * t]])
        return np.concatenate([k * np.sin(t), [0.0]]) + rise - (above - np.concatenate([plain, [top * t]]))

    ts, knots = np.array([0.4, 1.0, 3.0]), np.linspace(0, 3, 1501)
    forcing = y if given == "function" else (knots, np.stack([y(t) for t in knots]))
    load = {"eta": eta, "arrival_rate": rate} if math.isfinite(eta) else {"above": "zero"}
    result = ht.integral_equation(ts, c, 2, forcing=forcing, **load)
    np.testing.assert_allclose(result.T, c + k * np.sin(ts)[:, None], atol=1e-6)


def test_a_jump_in_the_forcing_is_a_ramp_over_its_grid_interval():
    jump, level, errors = 0.5, 1, []
    exact = ht.green(1.0 - jump, [1, 2, 3], [level], 2)[:, 0]  # start 0: T(t) = G(t - jump)
    for spacing in (0.05, 0.025):
        knots = np.arange(0, 1 + spacing / 2, spacing)
        values = np.zeros((knots.size, 3))
        values[knots > jump - spacing / 2, level - 1] = 1.0
        result = ht.integral_equation([1.0], np.zeros(3), 2, forcing=(knots, values))
        errors.append(np.max(np.abs(result.T[0] - exact)))
    assert errors[0] < 0.05
    assert 1.8 < errors[0] / errors[1] < 2.2


def test_tail_counts_round_half_up_and_never_rise():
    assert ht.tail_counts([2.5, 4.95, 5.0], 10, 5.0).tolist() == [5]            # 5, 0.1 -> 0, 0
    assert ht.tail_counts([2.75, 4.75, 5.0], 10, 5.0).tolist() == [5, 1]        # 4.5 -> 5, 0.5 -> 1
    assert ht.tail_counts([0.0, 0.0], 7, 5.0).tolist() == [7, 7]
    counts = ht.tail_counts(ht.fixed_point_T(60, 2, 1.0, 1e4), 10**9, 1e4)
    assert np.all(np.diff(counts) <= 0)
    assert counts[0] == round(10**9 * (1 - 1e-4))
    assert counts[-1] > 0


def test_start_profile():
    np.testing.assert_allclose(ht.start_profile(4, 2, 1.0, 100.0) - ht.fixed_point_T(4, 2, 1.0, 100.0), [2, 2, 2, 0])
    assert ht.start_profile(2, 2, 1.0, 100.0).size == 2
    with pytest.raises(ValueError, match=r"needs T_3 \+ 2 beta <= T_4; .*least n is 62; give another start \(--start\)"):
        ht.start_profile(8, 2, 1.0, 40**0.5, alpha=0.5)
    assert ht.start_profile(8, 2, 1.0, 62**0.5, alpha=0.5).size == 8
    with pytest.raises(ValueError, match="the least n is 62"):
        ht.start_profile(8, 2, 1.0, 61**0.5, alpha=0.5)
    with pytest.raises(ValueError, match="at d=1, eta=500; no eta is large enough"):
        ht.start_profile(8, 1, 1.0, 500.0, alpha=0.5)


def test_stopping_time():
    times, eta = [0.0, 1.0, 2.0], 16.0  # eta**.25 = 2, i* = 1
    T = np.array([[1.0, 9.0], [-2.0, 9.0], [3.0, 9.0]])
    assert ht.stopping_time(times, T, eta) == 1.0
    assert ht.stopping_time(times, T / 2, eta) == math.inf
    both = np.stack([T, T / 2, T * 2], axis=2)
    assert ht.stopping_time(times, both, eta).tolist() == [1.0, math.inf, 0.0]
    # a = .4, rho = 3, eta = 3**10: i* = 2, threshold 81
    two = np.array([[1.0, 80.0, 99.0], [1.0, 81.1, 99.0], [1.0, 0.0, 0.0]])
    assert ht.stopping_time(times, two, 3.0**10 * 1.0001, a=0.4, rho=3.0) == 1.0


def test_results_are_labelled():
    result = ht.limit([0.0, 1.0], [1, 3], 2, method="exact")
    assert set(result.to_json()) == {"times", "T"}
    assert result.T.shape == (2, 2)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: ht.pi(2000, 2, 1.0), "within the floats; got 2000 with d=2"),
    (lambda: ht.limit([1.0], [1.0], 1.5), "d must be an integer at least 1; got 1.5"),
    (lambda: ht.limit([1.0], [1.0, float("nan")], 2), "initial must be a one-dimensional list of finite numbers"),
    (lambda: ht.limit([1.0], [1.0], 2, above="open"), "above must be one of 'fixed-point', 'zero'; got 'open'"),
    (lambda: ht.limit([1.0], [1.0, 3.0], 2, levels=2000), "within the floats; got 2000"),
    (lambda: ht.green(-1.0, [1], [1], 2), "t must be a finite number at least 0; got -1"),
    (lambda: ht.green(1.0, [0], [1], 2), "rows must be level numbers, integers >= 1"),
    (lambda: ht.tail_counts([1.0, 2.0, 1.5], 10, 5.0), r"got T_3 = 1.5 after T_2 = 2"),
    (lambda: ht.tail_counts([-1.0], 10, 5.0), r"got T_1 = -1; T_i is eta \(1 - S_i\)"),
    (lambda: ht.finite_eta([1.0], [1.0, 6.0], 2, 1.0, 5.0), r"<= eta = 5; got T_2 = 6 after T_1 = 1"),
    (lambda: ht.finite_eta([1.0], [1.0], 2, 6.0, 5.0), "beta must be a finite number above 0 and below 5; got 6"),
    (lambda: ht.fixed_point_T(3, 2, 5.0, 5.0), "beta must be a finite number above 0 and below 5; got 5"),
    (lambda: ht.integral_equation([1.0], [1.0], 2, beta=1.0), "beta and arrival_rate need a finite eta"),
    (lambda: ht.integral_equation([1.0], [1.0], 2, eta=9.0), "give one of beta and arrival_rate"),
    (lambda: ht.integral_equation([1.0], [1.0], 2, forcing=([0.0, 0.5], [[0.0], [1.0]])), "to the last time 1; got 2 times"),
    (lambda: ht.integral_equation([1.0], [1.0], 2, forcing=([0.0, 1.0], [[1.0], [1.0]])), r"must start with y\(0\) = 0"),
    (lambda: ht.stopping_time([0.0], np.zeros((1, 1)), 1e9, a=0.4, rho=2.1), "levels 1..5; got shape"),
    (lambda: ht.stopping_time([0.0], np.zeros((1, 1)), 10.0, a=0.5), "a must be a finite number above 0 and below 0.5"),
    (lambda: ht.stopping_time([0.0], np.zeros((1, 1)), 10.0, rho=2.0), "rho must be a finite number above 2"),
])
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
