"""The quantile of the binomial law against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm, poisson

from jaxq import binomial

GRID = (np.arange(2**17) + 0.5) / 2**17
SMALL = [(5, 0.3), (5, 0.9), (40, 0.2), (1000, 0.01), (10**9, 3e-9), (30, 0.5), (1, 0.5), (7, 1.0), (7, 0.0), (0, 0.4)]
LARGE = [(64, 0.5), (200, 0.08), (200, 0.92), (160_000, 1e-4), (10**5, 0.3), (10**9, 2e-8), (10**9, 0.4), (2**31 - 1, 0.9)]


BINOMIAL = jax.jit(binomial.binomial)  # compiled once


def draws(trials, p):
    with jax.enable_x64(True):
        g = jnp.asarray(norm.ppf(GRID))
        return np.asarray(BINOMIAL(jnp.full_like(g, trials), jnp.full_like(g, p), g))


@pytest.mark.parametrize(("trials", "p"), SMALL)
def test_small_variances_are_inverted_exactly(trials, p):
    count = draws(trials, p)
    wrong = count != binom.ppf(GRID, trials, p).clip(0)
    assert wrong.mean() <= 2e-5, "only where a probability falls on the grid itself"


@pytest.mark.parametrize(("trials", "p"), LARGE)
def test_large_variances_are_as_close_as_documented(trials, p):
    count = draws(trials, p)
    assert np.all(np.diff(count) >= 0)
    assert count.min() >= 0
    assert count.max() <= trials
    values = np.unique(count)
    values = values[:: max(1, values.size // 500)]
    below = np.searchsorted(count, values, side="right") / count.size
    assert np.abs(below - binom.cdf(values, trials, p)).max() < 2e-5 + 1 / count.size
    mean, deviation = trials * p, np.sqrt(trials * p * (1 - p))
    assert abs(count.mean() - mean) < 2e-6 * deviation + 1e-15 * mean
    assert count.var() / deviation**2 == pytest.approx(1, abs=3e-4)  # the grid's own ends cost 1e-4


@pytest.mark.parametrize("mean", [0.3, 9.0, 40.0, 1e6])
def test_poisson(mean):
    count = draws(binomial.RESERVOIR, mean / binomial.RESERVOIR)
    values = np.unique(count)[:: max(1, int(mean**0.5) // 50)]
    below = np.searchsorted(count, values, side="right") / count.size
    assert np.abs(below - poisson.cdf(values, mean)).max() < 2e-5 + 1 / count.size


def test_normals_of_words():
    with jax.enable_x64(True):
        words = np.array([0, 2**31, 2**32 - 1, 12345678], np.uint32)
        found = np.asarray(binomial.normal(words, words))
    exact = norm.ppf(((words.astype(float) * 2**20) + (words >> 12) + 0.5) * 2.0**-52)
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    assert np.all(np.isfinite(found))
