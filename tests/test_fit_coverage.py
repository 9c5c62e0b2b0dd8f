"""The fit's intervals and p-values over many data sets drawn around a known law, and on jaxq's own runs."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats
from test_fit import SIZES, as_result, stationary_law

from jaxq import fit_data, fit_errors, fit_likelihood
from jaxq.fit import fit_scaling

REPETITIONS = 200


def one(problem, seen):
    """theta from one start, as the public function's first."""
    guess = fit_likelihood.start_each(problem, seen)
    theta, _ = fit_likelihood.line(seen.log_n, guess, np.ones(seen.log_n.shape))
    return fit_likelihood.solve(problem, seen, theta)[0]


@partial(jax.jit, static_argnums=0)
def every(problem, seen, value, whiten):
    """Data set by data set: a lane that needs more iterations does not hold up the others."""
    return jax.lax.map(lambda part: one(problem, seen._replace(value=part[0], whiten=part[1])), (value, whiten))


def repeat(alpha, beta, replicas, seed, levels=3):
    """(alpha, log beta) and standard errors, each (repetition, 2), and p-values of fits to drawn data; replicas None: the
    covariance is known, else estimated from that many."""
    rng = np.random.default_rng(seed)
    means, spreads = stationary_law(SIZES, 2, alpha, beta, levels)
    sets = []
    for _ in range(REPETITIONS):
        if replicas is None:
            draws = [rng.multivariate_normal(mean, spread / 64) for mean, spread in zip(means, spreads, strict=True)]
            sets.append([fit_data.Block(n, np.arange(1, levels + 1), value, spread / 64, None, None, None)
                         for n, value, spread in zip(SIZES, draws, spreads, strict=True)])
        else:
            runs = [as_result(n, 2, rng.multivariate_normal(mean, spread, size=replicas))
                    for n, mean, spread in zip(SIZES, means, spreads, strict=True)]
            sets.append(fit_data.read(runs, levels).blocks)
    thetas, errors, p_values = [], [], []
    with jax.enable_x64(True):
        ready = [fit_errors.prepare(blocks, "refined", 2, True, None) for blocks in sets]
        problem = ready[0][0]
        values, weights = (np.stack([getattr(seen, name) for _, seen in ready]) for name in ("value", "whiten"))
        found = np.asarray(every(problem, ready[0][1], values, weights))
        for theta, (_, seen), blocks in zip(found, ready, sets, strict=True):
            point = fit_errors.at(problem, seen, np.asarray(fit_likelihood.log_gaps(theta, seen.log_n)))
            assert fit_errors.distance(seen, point) < 1e-3
            thetas.append(theta)
            errors.append(np.sqrt(np.diag(fit_errors.covariance(seen, point, blocks))))
            p_values.append(fit_errors.p_value(2 * point.value.sum(), levels * SIZES.size - 2, blocks))
    return np.array(thetas), np.array(errors), np.array(p_values)


def check(alpha, beta, thetas, errors, p_values):
    truth = np.array([alpha, np.log(beta)])
    covered = np.mean(np.abs(thetas - truth) < 1.96 * errors, axis=0)
    assert np.all(covered >= 0.9), (alpha, beta, covered)  # 95 % expected: 0.9 is 3.2 standard deviations of 200 draws below
    beta_covered = np.mean(np.abs(np.exp(thetas[:, 1]) - beta) < 1.96 * np.exp(thetas[:, 1]) * errors[:, 1])
    assert beta_covered >= 0.9, (alpha, beta, beta_covered)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4, (alpha, beta)
    scatter = thetas.std(axis=0, ddof=1) / errors.mean(axis=0)
    assert np.all(np.abs(scatter - 1) < 5 / np.sqrt(2 * REPETITIONS)), (alpha, beta, scatter)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_intervals_cover_and_p_values_are_uniform(alpha, beta):
    check(alpha, beta, *repeat(alpha, beta, None, round(100 * alpha + 1000 * beta)))


@pytest.mark.slow
def test_the_same_where_the_covariance_is_that_of_few_replicas():
    """24 replicas and 5 levels: without the three corrections intervals cover less and p-values crowd at 0."""
    check(0.5, 1.0, *repeat(0.5, 1.0, 24, 7, levels=5))


@pytest.mark.slow
def test_d_is_found():
    rng = np.random.default_rng(8)
    runs = [as_result(n, 3, rng.multivariate_normal(mean, spread, size=64))
            for n, mean, spread in zip(SIZES[:2], *stationary_law(SIZES[:2], 3, 0.5, 1.0), strict=True)]
    fit = fit_scaling(runs, levels=3, fit_d=True)
    assert fit.d == 3
    assert fit.d_tried.tolist() == list(range(1, 9))
    assert fit.chi_square == pytest.approx(fit.d_chi_square[2])
    assert fit.chi_square < np.delete(fit.d_chi_square, 2).min() / 100
    assert abs(fit.alpha - 0.5) < 4 * fit.alpha_stderr


def test_our_own_runs_give_the_truth_back():
    """bench/fit_end_to_end.py on stationary runs at n = 300 to 10 000, stored in bench/results/fit_end_to_end.md."""
    table = (Path(__file__).parent.parent / "bench" / "results" / "fit_end_to_end.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("| 0.")]
    assert {row[0] for row in rows} == {"0.3", "0.5"}
    for truth, name, alpha, off, beta, beta_off, *_, p_value, _ in rows:
        value, error = map(float, alpha.split("±"))
        assert float(off) == pytest.approx((value - float(truth)) / error, rel=0.12, abs=0.06)   # the table is rounded
        if name == "refined":
            assert abs(float(off)) < 4
            assert abs(float(beta_off)) < 4
            assert error < 0.01
            assert float(p_value) > 1e-3
        if name == "refined, d=3":
            assert float(p_value) < 1e-10
        assert float(beta.split("±")[1]) > 0
