"""The martingale of simulated paths and the stopping time, on the save grid."""

import math

import numpy as np
import pytest

import jaxq
from jaxq import heavy_traffic as ht

N, D, BETA = 400, 2, 1.2
ETA = 20.0
REPLICAS = 4000
TIMES = np.linspace(0, 1.5, 121)
START = [380, 330, 200, 70, 10]


@pytest.fixture(scope="module")
def paths():
    """T (time, level, replica) of an asymmetric start, with a last level where nobody is."""
    model = jaxq.Supermarket.heavy_traffic(N, D, BETA)
    result = jaxq.simulate(model, TIMES, 4, replicas=REPLICAS, initial=START, save="paths")
    T = ETA * (1 - result.paths / N)
    return np.pad(T, ((0, 0), (0, 1), (0, 0)), constant_values=ETA)


@pytest.fixture(scope="module")
def noise(paths):
    return ht.martingale(TIMES, paths, D, eta=ETA, beta=BETA)


def test_it_is_equation_7_by_hand():
    """Two levels and three times, the equation as it stands in the paper, g(x) = x**2 / (2 eta) at d = 2."""
    eta, rate, times = 4.0, 0.75, np.array([0.0, 0.5, 0.75])
    T1, T2 = np.array([1.0, 2.0, 1.5]), np.array([4.0, 4.0, 4.0])
    g = lambda x: x**2 / (2 * eta)  # noqa: E731
    integrand = rate * 2 * (T1 - 0 + g(0) - g(T1)) - (T2 - T1)
    integral = np.array([0.0, 0.5 * (integrand[0] + integrand[1]) / 2, 0.25 * (integrand[1] + integrand[2]) / 2])
    integral[2] += integral[1]
    y = ht.martingale(times, np.stack([T1, T2], axis=1), 2, eta=eta, arrival_rate=rate)
    np.testing.assert_allclose(y[:, 0], T1 - 1.0 + integral, rtol=1e-14, atol=1e-15)
    upper = rate * 2 * (T2 - T1 + g(T1) - g(T2))
    np.testing.assert_allclose(y[1, 1], 0.5 * (upper[0] + upper[1]) / 2, rtol=1e-14)


def test_its_mean_is_zero_at_every_time_and_level(noise):
    mean, error = noise.mean(axis=2), noise.std(axis=2, ddof=1) / REPLICAS**0.5
    assert not noise[0].any()
    assert np.all(error[1:, :6] > 0)
    assert np.all(np.abs(mean[:, :6]) <= 5 * error[:, :6])  # few replicas reach higher levels: not normal
    assert error[-1, :4].max() < 0.02


def test_its_variance_is_the_compensator(paths, noise):
    """E y**2 = (eta**2/n) E int [lambda (S_{i-1}**2 - S_i**2) + S_i - S_{i+1}] ds, and increments are uncorrelated."""
    S = 1 - paths / ETA
    below = np.concatenate([np.ones_like(S[:, :1]), S[:, :-1]], axis=1)
    above = np.concatenate([S[:, 1:], np.zeros_like(S[:, :1])], axis=1)
    rate = ETA**2 / N * ((1 - BETA / ETA) * (below**2 - S**2) + S - above)
    variation = np.cumsum(np.diff(TIMES)[:, None, None] * (rate[1:] + rate[:-1]) / 2, axis=0)
    difference = noise[1:] ** 2 - variation
    error = difference.std(axis=2, ddof=1) / REPLICAS**0.5
    levels = slice(0, 6)
    assert np.all(np.abs(difference.mean(axis=2)[:, levels]) <= 5 * error[:, levels])
    assert np.all(error[-1, :5] < 0.05 * variation[-1, :5].mean(axis=1))
    product = noise[60] * (noise[120] - noise[60])
    assert np.all(np.abs(product.mean(axis=1)) <= 5 * product.std(axis=1) / REPLICAS**0.5 + 1e-12)


def test_the_equation_with_its_own_forcing_returns_the_path(paths):
    """To second order in the grid's spacing: a quarter of the error on a grid twice as fine."""
    errors = []
    for every in (4, 2, 1):
        times, T = TIMES[::every], paths[::every, :, 0]
        y = ht.martingale(times, T, D, eta=ETA, beta=BETA)
        solved = ht.integral_equation(times, T[0], D, eta=ETA, beta=BETA, forcing=(times, y), step=0.0125 / 2)
        assert solved.attributes["step_error"] < 1e-9
        errors.append(np.abs(solved.T - T).max())
    assert errors[-1] < 2e-4
    assert np.abs(paths[:, :, 0] - ht.finite_eta(TIMES, paths[0, :, 0], D, BETA, ETA).T).max() > 0.5
    ratios = np.array(errors[:-1]) / errors[1:]
    assert np.all(np.abs(ratios - 4) < 2), errors


def test_what_the_grid_does_not_see_shrinks_like_its_spacing(paths, noise):
    """Between saved times the path is unknown: y errs at random, in proportion to the spacing, by h (d lambda + 1)/3 or so."""
    errors = []
    for every in (20, 10, 5):
        y = ht.martingale(TIMES[::every], paths[::every], D, eta=ETA, beta=BETA)
        errors.append((y - noise[::every])[-1, :4].std(axis=1) / noise[-1, :4].std(axis=1))
    errors = np.array(errors)
    spacing = np.array([20, 10, 5])[:, None] * TIMES[1]
    assert np.all(np.abs(errors[:-1] / errors[1:] - 2) < 0.35), errors
    bound = spacing * (D * (1 - BETA / ETA) + 1) / 3
    assert np.all((0.2 * bound < errors) & (errors < 1.5 * bound)), errors / bound


def test_the_stopping_time_of_every_replica(paths):
    """Against a loop over times, from the definition; inf where the bound is not reached."""
    a, rho = 0.28, 2.5
    top = max(1, math.floor(a / 2 * math.log(ETA) / math.log(rho)))
    times = ht.stopping_time(TIMES, paths, ETA, a=a, rho=rho)
    assert times.shape == (REPLICAS,)
    for replica in range(0, REPLICAS, 40):
        reached = [t for t, T in zip(TIMES, paths[:, :, replica], strict=True) if max(abs(T[:top])) >= ETA**a]
        assert times[replica] == (reached[0] if reached else math.inf)
    share = np.isfinite(times).mean()
    assert 0.02 < share < 0.98
    coarse = ht.stopping_time(TIMES[::8], paths[::8], ETA, a=a, rho=rho)  # a coarser grid sees it later or not at all
    assert np.all(coarse >= times)
    assert np.any(coarse > times)
    assert ht.stopping_time(TIMES, paths[:, :, 3], ETA, a=a, rho=rho) == times[3]


@pytest.mark.parametrize(("changed", "message"), [
    ({"T": np.zeros((2, 0))}, r"T must be \(time, level\).*from 0 on; got shape \(2, 0\)"),
    ({"T": np.full((3, 2), 4.0)}, r"2 times from 0 on; got shape \(3, 2\)"),
    ({"times": [0.5, 1.0]}, "from time 0.5; save time 0 too"), ({"T": np.array([[1.0, 3.0], [1.0, 4.0]])}, "nobody there; got 3 at level 2"),
    ({"T": np.array([[-1.0, 4.0], [1.0, 4.0]])}, r"must lie in \[0, eta = 4\]; got -1 to 4"),
    ({"T": np.array([[math.nan, 4.0], [1.0, 4.0]])}, "must lie in"), ({"beta": 1.0}, "give one of beta and arrival_rate"),
    ({"d": 0}, "d must be an integer"), ({"eta": 0.5}, "eta must be")])
def test_bad_input_is_refused_with_one_sentence(changed, message):
    given = {"times": [0.0, 1.0], "T": np.array([[1.0, 4.0], [2.0, 4.0]]), "d": 2, "eta": 4.0, "arrival_rate": 0.9} | changed
    with pytest.raises(ValueError, match=message) as caught:
        ht.martingale(given.pop("times"), given.pop("T"), given.pop("d"), **given)
    assert "\n" not in str(caught.value)
