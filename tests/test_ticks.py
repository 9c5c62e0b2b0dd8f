"""The Poisson path of each replica: its law, and that it is one path whatever is asked of it."""

import numpy as np
import pytest
from scipy import stats

from jaxq import bits, ticks


def keys(replicas, seed=0):
    return bits.fold_in(bits.key_words(seed), np.arange(replicas, dtype=np.uint32))


def test_cell_counts_invert_the_poisson_distribution():
    thresholds = ticks._poisson_thresholds(ticks.Fraction(1500.25))
    at = np.arange(1300, 1700)
    np.testing.assert_allclose(thresholds[at] / 2.0**64, stats.poisson.cdf(at, 1500.25), rtol=1e-12)
    assert thresholds[-1] == 2**64 - 1


@pytest.mark.parametrize("clock", [0.013, 3.0, 1901.0, 1.9e7])
def test_a_path_has_poisson_increments_on_fine_and_coarse_grids(clock):
    """20 000 replicas, 50 increments of random lengths: 1e6 replica-cells; 5 standard errors each, 7 checks."""
    replicas, rng = 20_000, np.random.default_rng(3)
    cell = 1500 / clock
    grid = np.cumsum(cell * rng.choice([0.003, 0.04, 0.3, 1.0, 2.7], 50))
    path = ticks.PoissonPath(clock, keys(replicas))
    counts = np.array([path.count(t) for t in grid])
    means = clock * np.diff(grid, prepend=0)
    increments = np.diff(counts, axis=0, prepend=0)
    assert increments.min() >= 0
    scaled = (increments - means[:, None]) / np.sqrt(means)[:, None]
    assert abs(scaled.mean()) < 5 / np.sqrt(scaled.size)
    spread = np.sqrt(np.mean(2 + 1 / means) / scaled.size)  # of the mean square of a scaled Poisson count
    assert abs((scaled**2).mean() - 1) < 5 * spread
    for lag in (1, 2, 5):  # along the path
        products = scaled[lag:] * scaled[:-lag]
        assert abs(products.mean()) < 5 / np.sqrt(products.size)
    across = scaled[:, 1:] * scaled[:, :-1]  # between replicas
    assert abs(across.mean()) < 5 / np.sqrt(across.size)
    z = (counts[-1] - clock * grid[-1]) / np.sqrt(clock * grid[-1])
    assert stats.kstest(z, "norm").pvalue > 1e-4


def test_small_counts_follow_the_exact_law():
    """Means of 0.1 to 60 inside one cell, where halving and positions meet: chi-square p > 1e-5 each."""
    path = ticks.PoissonPath(1500.0, keys(50_000, seed=4))
    for mean in (0.1, 2.0, 15.0, 60.0):
        counts = path.count(mean / 1500)
        low, high = stats.poisson.ppf([1e-3, 1 - 1e-3], mean)
        edges = np.arange(low, high + 1)
        observed = np.array([(counts <= low).sum(), *(counts[:, None] == edges[1:-1]).sum(axis=0), (counts >= high).sum()])
        p = np.diff(np.concatenate([[0], stats.poisson.cdf(edges[:-1], mean), [1]]))
        assert stats.chisquare(observed, 50_000 * p).pvalue > 1e-5


def test_a_finer_grid_a_longer_horizon_and_more_replicas_see_the_same_path():
    clock, grid = 977.0, np.array([0.1, 0.75, 1.3, 2.6, 2.60001, 9.0, 40.0])
    path = ticks.PoissonPath(clock, keys(300))
    counts = {t: path.count(t) for t in grid}
    for t in grid:
        np.testing.assert_array_equal(ticks.PoissonPath(clock, keys(300)).count(t), counts[t])
        np.testing.assert_array_equal(ticks.PoissonPath(clock, keys(3)).count(t), counts[t][:3])
    fine = ticks.PoissonPath(clock, keys(300))
    previous = np.zeros(300)
    for t in np.union1d(grid, np.linspace(0, 9, 400)):
        now = fine.count(t)
        assert (now >= previous).all()
        previous = now
        if t in counts:
            np.testing.assert_array_equal(now, counts[t])


def test_tick_counts_do_not_correlate_with_the_marks():
    """Arrivals among the first 300 ticks against the count of the first cells, 200 000 replicas, 5 standard errors."""
    replicas = 200_000
    first = keys(replicas, seed=9)
    ones = np.zeros(replicas)
    for tick in range(5):
        hi, lo = bits.tick_block(*first, np.full(replicas, tick, np.uint32), np.zeros(replicas, np.uint32), 0)
        ones += np.bitwise_count(hi) + np.bitwise_count(lo)
    path = ticks.PoissonPath(1200.0, first)
    for t in (0.01, 0.4, 1.0, 3.0):
        r = np.corrcoef(path.count(t), ones)[0, 1]
        assert abs(r) < 5 / np.sqrt(replicas)


def test_times_must_not_decrease():
    path = ticks.PoissonPath(1000.0, keys(2))
    path.count(5.0)
    with pytest.raises(ValueError, match="times that do not decrease"):
        path.count(1.0)
    with pytest.raises(ValueError, match=r"fewer than 2\*\*42 ticks"):
        path.count(1e12)
