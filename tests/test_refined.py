"""The refined mean field and the linear noise against exact chains, closed forms, published values and 50-digit arithmetic."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
import scipy.linalg
from epidemic import Epidemic
from results import made

import jaxq
from jaxq import Pool, Pull, Supermarket, SupermarketClasses, exact
from jaxq.ensemble import Ensemble
from jaxq.linear_noise import linear_noise
from jaxq.rates_model import RatesModel
from jaxq.refined import constants, fixed_point_density, lyapunov, refined

mpl.use("Agg")


@dataclass(frozen=True)
class Tandem(RatesModel, leaves=("n", "arrival", "first", "second")):
    """Two stations of infinitely many servers in a row, every customer moves by itself. The tails are those of a customer in
    the second station counted as a queue of two, so that Q = x_1 + 2 x_2."""

    n: Any
    arrival: Any
    first: Any
    second: Any

    def clock(self):
        return self.n * (self.arrival + 10 * self.first + 10 * self.second)

    @property
    def jumps(self):
        return np.array([[1, 0], [-1, 1], [0, -1]])

    def rates(self, x, inverse_n=0.0):
        return jnp.stack([self.arrival * jnp.ones((), x.dtype), self.first * x[0], self.second * x[1]])

    def tail(self, counts):
        return np.array([[1, 1], [0, 1]]) @ counts


@pytest.fixture(scope="module")
def many():
    """(x, V, W) of the supermarket model on 32 levels, compiled once for each d and replacement."""
    @partial(jax.jit, static_argnums=(1, 2))
    def solve(rate, d, replacement):
        model = Supermarket(100, d, rate, replacement).at_levels(32)
        return (x := fixed_point_density(model)), *constants(model, x)

    def many(rate, d=2, replacement=True):
        with jax.enable_x64(True):
            return [np.asarray(part) for part in solve(np.float64(rate), d, replacement)]
    return many


@pytest.fixture(scope="module")
def epidemics():
    """Their noise at three sizes from x = 0.3, on a grid up to t = 1."""
    return [linear_noise(Epidemic(n, 2.0, 0.3), np.linspace(0, 1, 6), [0.3]) for n in (100, 200, 400)]


@pytest.fixture(scope="module")
def nine_tenths():
    return refined(Supermarket(100, 2, 0.9))


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("d", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_published_constants(many, reference, d, replacement):
    for case in reference("meanfield"):
        if case["d"] == d:
            x, first, _ = many(case["lambda"], d, replacement)
            assert x.sum() == pytest.approx(case["Q_inf"], abs=1e-5)
            assert first.sum() == pytest.approx(case["V_with" if replacement else "V_without"], abs=1e-5)


def test_the_result_is_the_published_one_and_keeps_exact_identities(nine_tenths, reference, tmp_path):
    result, (case,) = nine_tenths, (case for case in reference("meanfield") if (case["d"], case["lambda"]) == (2, 0.9))
    np.testing.assert_allclose([result.V, result.mean_queue_length], [case["V_with"], case["Q_inf"]], rtol=0, atol=1e-5)
    assert result.refined_mean_queue_length == pytest.approx(case["Q_inf"] + case["V_with"] / 100, abs=2e-5)
    assert result.truncation_error < 1e-9
    # E S_1 = lambda and E S_2 = lambda E[S_1^2] hold at every n
    np.testing.assert_allclose(result.V_tail[:2], [0, 0.9 * result.covariance[0, 0]], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(result.V_tail.sum(), result.V, rtol=1e-12)
    np.testing.assert_allclose(result.refined_tail, result.fixed_point + result.V_tail / 100, rtol=0, atol=1e-15)
    np.testing.assert_allclose(result.covariance.sum(), result.variance, rtol=1e-12)
    assert list(result.to_json()) == ["fixed_point", "mean_queue_length", "V", "refined_mean_queue_length"]
    result.save(tmp_path / "refined.nc")
    assert jaxq.load(tmp_path / "refined.nc").attrs["V"] == result.V


def test_heavy_traffic_as_in_fifty_digits(many):
    """V of Q, and n Cov of levels 1 and 19, solved in 50-digit arithmetic by another program at eta = 1e6, d = 2, where the
    slowest mode has 1e-7 of the fastest and the variances span 1e-6 to 1e5. Then the limits: (1 - lambda) V -> 1/2 and
    n Var(T_1)/(beta eta) -> 1 + ln d."""
    eta = 1e6
    _, first, covariance = many(1 - 1 / eta)
    np.testing.assert_allclose(first.sum() / eta, 0.500040703834107, rtol=1e-8)
    np.testing.assert_allclose(np.diag(covariance)[[0, 18]], [1.69314119129412e-6, 66769.3099791186], rtol=1e-8)
    gaps = []
    for eta in (1e3, 1e4, 1e5):
        _, first, covariance = many(1 - 0.5 / eta)
        gaps.append([abs(0.5 * first.sum() / eta - 0.5), abs(eta * covariance[0, 0] / (0.5 * (1 + np.log(2))) - 1)])
    assert np.all(np.diff(gaps, axis=0) < 0)
    assert np.all(np.array(gaps[-1]) < [1e-4, 1e-5])


def test_the_covariance_solves_its_equation_for_any_stable_matrix():
    rng = np.random.default_rng(5)
    jacobian = rng.normal(size=(7, 7)) - 4.5 * np.eye(7)
    jacobian[:2, :2] = [[-1e-5, 1.0], [-1.0, -1e-5]]  # a slow oscillation
    jacobian[2:, :2] = 0.0
    half = rng.normal(size=(7, 4))
    diffusion = half @ half.T
    with jax.enable_x64(True):
        solved = np.asarray(jax.jit(lyapunov)(jacobian, diffusion))
    assert np.linalg.eigvals(jacobian).real.max() == pytest.approx(-1e-5)
    size = np.abs(solved).max()
    np.testing.assert_allclose(solved, scipy.linalg.solve_continuous_lyapunov(jacobian, -diffusion), rtol=0, atol=1e-9 * size)
    system = np.kron(jacobian, np.eye(7)) + np.kron(np.eye(7), jacobian)
    np.testing.assert_allclose(solved.ravel(), np.linalg.solve(system, -diffusion.ravel()), rtol=0, atol=1e-9 * size)


def test_the_error_falls_like_the_square_of_n_and_without_the_correction_like_n():
    """Against the exact stationary law, with loss; the covariance is right to order 1/n."""
    plain, corrected, spread = [], [], []
    for n in (16, 32, 64):
        model = Supermarket(n, 2, 0.8, replacement=False, buffer=2)
        law, result = exact.stationary(model), refined(model)
        queue = law.states.sum(axis=1) / n
        plain.append(result.mean_queue_length - law.mean_queue_length)
        corrected.append(result.refined_mean_queue_length - law.mean_queue_length)
        spread.append(n * (law.probability @ queue**2 - law.mean_queue_length**2) - result.variance)
    ratios = np.abs([np.divide(errors[:-1], errors[1:]) for errors in (plain, corrected, spread)])
    np.testing.assert_allclose(ratios[0], 2, atol=0.05)
    np.testing.assert_allclose(ratios[1], 4, atol=0.5)
    np.testing.assert_allclose(ratios[2], 2, atol=0.4)
    assert abs(corrected[-1]) < abs(plain[-1]) / 100
    np.testing.assert_allclose(result.refined_tail, law.tail, rtol=0, atol=1e-4)
    assert result.truncation_error == 0


def test_second_derivatives_forward_over_reverse_and_finite_differences():
    rate, step = 0.8, 1e-3  # the fourth-order quotients err by step**4 and by rounding 1e-13/step

    def queue(rate):
        model = Supermarket(100, 2, rate).at_levels(10)
        x = fixed_point_density(model)
        return x.sum() + constants(model, x)[0].sum() / 10

    def derivatives(rate):
        value, forward = jax.jvp(queue, (rate,), (jnp.ones(()),))
        return value, forward, *jax.jvp(jax.grad(queue), (rate,), (jnp.ones(()),))

    with jax.enable_x64(True):
        compiled = jax.jit(derivatives)
        value, forward, reverse, second = (np.array(part) for part in zip(
            *(map(float, compiled(rate + k * step)) for k in (-2, -1, 0, 1, 2)), strict=True))
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)
    weights = np.array([1, -8, 0, 8, -1]) / (12 * step)
    assert forward[2] == pytest.approx(weights @ value, rel=1e-8)
    assert second[2] == pytest.approx(weights @ reverse, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "factor"), [
    (lambda n: SupermarketClasses(n, [Pool(0.5, 1.5, 2), Pool(0.5, 0.75, 2)], 2, 0.7, replacement=False), 20),
    (lambda n: Pull(n, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 2)], 1, 0.4), 20),
    (lambda n: Pull(n, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 2)], 1, 0.4, "stale"), 20)])
def test_unequal_servers_and_one_router(build, factor):
    errors = []
    for n in (12, 24):
        law, result = exact.stationary(build(n)), refined(build(n))
        errors.append(abs(result.refined_mean_queue_length - law.mean_queue_length))
        assert errors[-1] < abs(result.mean_queue_length - law.mean_queue_length) / 2
    assert errors[1] < errors[0] / 3
    assert errors[1] < abs(result.mean_queue_length - law.mean_queue_length) / factor


def test_customers_that_move_by_themselves():
    """From a fixed start counts are sums of independent multinomials and Poissons: means and variances in closed form, and
    nothing to correct."""
    a, b, arrival, n, ts = 1.3, 0.4, 0.1, 50, np.array([0.0, 0.5, 3.0])
    result = linear_noise(Tandem(n, arrival, a, b), ts, np.array([35, 5]))
    one, two = np.exp(-a * ts), a / (a - b) * (np.exp(-b * ts) - np.exp(-a * ts))  # where one is that began in station 1
    last = np.exp(-b * ts)                                                        # and in station 2
    poisson_1 = n * arrival * (1 - one) / a
    poisson_2 = n * arrival * a / (a - b) * ((1 - last) / b - (1 - one) / a)
    mean = np.array([35 * one + poisson_1, 35 * two + 5 * last + poisson_2])
    variance = np.array([35 * one * (1 - one) + poisson_1, 35 * two * (1 - two) + 5 * last * (1 - last) + poisson_2])
    together = -35 * one * two
    np.testing.assert_allclose(result.tail.T, [mean.sum(axis=0) / n, mean[1] / n], rtol=0, atol=1e-8)
    np.testing.assert_allclose(result.refined_tail, result.tail, rtol=0, atol=1e-9)
    np.testing.assert_allclose((n * result.tail_stdev.T) ** 2, [variance.sum(axis=0) + 2 * together, variance[1]], atol=1e-6)
    np.testing.assert_allclose((n * result.mean_queue_length_stdev) ** 2, variance[0] + 4 * variance[1] + 4 * together, atol=1e-6)


def test_a_curved_drift_in_time_against_its_generator(epidemics):
    """The mean errs like 1/n without the correction and 1/n^2 with it, n times the variance like 1/n."""
    errors = []
    for n, result in zip((100, 200, 400), epidemics, strict=True):
        mean, variance = Epidemic(n, 2.0, 0.3).moments(1.0, 3 * n // 10)
        errors.append([result.tail[-1, 0] - mean, result.refined_tail[-1, 0] - mean, n * result.tail_stdev[-1, 0] ** 2 - variance])
    ratios = np.divide(errors[:-1], errors[1:])
    assert np.all(np.abs(ratios - [2, 4, 2]) < [0.01, 0.2, 0.5])
    assert abs(ratios[1, 2] - 2) < 0.25


@pytest.mark.slow
def test_in_the_long_run_the_noise_is_the_stationary_one():
    model = Supermarket(50, 2, 0.7, replacement=False, buffer=3)
    settled, result = refined(model), linear_noise(model, [0.0, 60.0])
    assert not result.tail_stdev[0].any()
    np.testing.assert_allclose(result.tail_stdev[1], np.sqrt(np.diag(settled.covariance) / 50), rtol=1e-6)
    np.testing.assert_allclose(result.mean_queue_length_stdev[1], np.sqrt(settled.variance / 50), rtol=1e-6)
    np.testing.assert_allclose(result.refined_tail[1], settled.refined_tail, rtol=0, atol=1e-7)
    np.testing.assert_allclose(result.refined_mean_queue_length[1], settled.refined_mean_queue_length, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_single_systems_of_the_exact_chain_in_time():
    """n = 1000 from empty: means within 5 standard errors (levels that hold ten customers or more), standard deviations
    within 5 of theirs, 1/sqrt(2 (R - 1)), and 2 % for their own 1/n."""
    model, ts = Supermarket(1000, 2, 0.9), np.linspace(0, 10, 6)
    band, run = linear_noise(model, ts), jaxq.simulate(model, ts, 11, replicas=1000)
    assert band.truncation_error < 1e-8
    levels = 3
    off = (run.tail_mean - band.refined_tail[:, :8])[2:, :levels] / run.tail_stderr[2:, :levels]
    assert np.abs(off).max() < 5
    ratio = np.sqrt(run.tail_variance)[2:, :levels] / band.tail_stdev[2:, :levels]
    np.testing.assert_allclose(ratio, 1, rtol=5 / np.sqrt(2 * 999) + 0.02)
    ratio = np.sqrt(run.mean_queue_length_variance[2:]) / band.mean_queue_length_stdev[2:]
    np.testing.assert_allclose(ratio, 1, rtol=5 / np.sqrt(2 * 999) + 0.02)


def test_the_figure_shows_the_band(epidemics, tmp_path):
    band = epidemics[0]
    result = replace(made(Ensemble), times=band.times, tail_mean=band.tail, tail_stderr=band.tail_stdev / 10)
    axes = jaxq.plot.tails(result, band)
    drawn = axes.collections[-2].get_paths()[0].vertices  # the last one is the legend's
    for sign in (-1, 1):
        edge = band.refined_tail[:, 0] + sign * 1.96 * band.tail_stdev[:, 0]
        assert all(np.min(np.hypot(*(drawn - point).T)) < 1e-12 for point in zip(band.times, edge, strict=True))
    assert "95 % of single systems" in [text.get_text() for text in axes.get_legend().get_texts()]
    jaxq.plot.save(axes, tmp_path / "band.png")


def test_what_has_no_refinement_says_why():
    pull = Pull(10, [Pool(1.0, 1.0, 2)], 3, 0.5)
    with pytest.raises(ValueError, match=r"2 of 4 eigenvalues that are not below 0 .*R - 1: the split of the messages"):
        refined(pull)
    with pytest.raises(ValueError, match="linear_noise needs one initial state; from None Pull starts at random"):
        linear_noise(pull, [1.0])
    with pytest.raises(ValueError, match="load below 1"):
        refined(Supermarket(100, 2, 1.0))
    graph = jaxq.GraphSupermarket(jaxq.graphs.ring(10, 2), 2, 0.5)
    for call in (lambda: refined(graph), lambda: linear_noise(graph, [1.0])):
        with pytest.raises(ValueError, match="needs a population model, one with jumps and rates; got GraphSupermarket"):
            call()
    with pytest.raises(ValueError, match="at most 256 states"):
        linear_noise(Supermarket(100, 2, 0.5, buffer=300), [1.0])
    with jax.enable_x64(False), pytest.raises(ValueError, match="constants needs float64; x64 is off"):
        constants(Supermarket(100, 2, 0.5), np.zeros(8))
