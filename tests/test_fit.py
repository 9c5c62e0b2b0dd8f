"""The fit of eta_n: closed forms, coverage over drawn data, wrong models, gradients, errors, figure."""

import dataclasses
import json
import math
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from results import made
from scipy import stats

import jaxq
from jaxq import fit_data, fit_errors, fit_likelihood, plot
from jaxq.fit import fit_scaling
from jaxq.refined import constants, fixed_point_density
from jaxq.steady_state import Stationary

mpl.use("Agg")
SIZES = np.array([1e3, 1e4, 1e5, 1e6])


def stationary_law(n, d, alpha, beta, levels=3):
    """Refined means (n, level) and covariances (n, level, level) of replica averages over ten relaxation times: linear noise
    averaged over a window T has covariance J^-1 D J^-T / (n T)."""
    gaps = beta * n**-alpha
    with jax.enable_x64(True):
        means, inverse, diffusion = (np.asarray(part) for part in _theory(1 - gaps, 1 / n, d))
    noise = inverse @ diffusion @ inverse.swapaxes(1, 2) * (gaps * math.log(d) / (10 * n))[:, None, None]
    return means[:, :levels], noise[:, :levels, :levels]


@partial(jax.jit, static_argnames="d")
@partial(jax.vmap, in_axes=(0, 0, None))
def _theory(rate, inverse_n, d):
    model = dataclasses.replace(jaxq.Supermarket(100, d, 0.9).at_levels(28), arrival_rate=rate)
    x = fixed_point_density(model)
    return x + constants(model, x)[0] * inverse_n, jnp.linalg.inv(jax.jacfwd(model.drift)(x)), model.diffusion(x)


def as_result(n, d, tails):
    """What `stationary` saves, of replica averages (replica, level)."""
    model = {"name": "Supermarket", "n": int(n), "d": d, "replacement": True, "buffer": None}
    replicas, levels = (np.zeros(size, int) for size in tails.shape)
    whole = made(Stationary).to_xarray().isel(replica=replicas, level=levels).assign_coords(level=1 + np.arange(levels.size))
    return whole.assign(replica_tail=(("replica", "level"), tails)).assign_attrs(model=json.dumps(model))


@pytest.fixture(scope="module")
def law():
    return stationary_law(SIZES, 2, 0.5, 1.0)


@pytest.fixture(scope="module")
def drawn(law):
    rng = np.random.default_rng(5)
    return [as_result(n, 2, rng.multivariate_normal(mean, spread, size=64)) for n, mean, spread in zip(SIZES, *law, strict=True)]


@pytest.fixture(scope="module")
def fitted(drawn):
    return fit_scaling(drawn, levels=3, profile=True)


def columns(n, level, value, stderr, **more):
    return {"n": n, "level": level, "value": value, "stderr": stderr} | more


def test_the_truth_is_within_the_errors(fitted):
    assert abs(fitted.alpha - 0.5) < 4 * fitted.alpha_stderr < 0.02
    assert abs(fitted.beta - 1) < 4 * fitted.beta_stderr < 0.4
    assert (fitted.dof, fitted.d, fitted.prediction, fitted.converged) == (10, 2, "refined", True)
    assert 1e-3 < fitted.p_value < 1 - 1e-3
    assert abs(fitted.free_slope - fitted.alpha) < fitted.alpha_stderr
    np.testing.assert_allclose(fitted.gap, SIZES**-0.5, atol=5 * fitted.gap_stderr.max())
    assert np.all(np.abs(fitted.gap - SIZES**-0.5) < 4 * fitted.gap_stderr)
    assert fitted.correlation > 0.9  # the mean of log n is far from 0
    assert np.all(np.abs(fitted.value - fitted.fitted) < 4 * fitted.value_stderr)


def test_profile_intervals_are_those_of_the_standard_errors_where_the_likelihood_is_quadratic(fitted):
    np.testing.assert_allclose(fitted.alpha_interval, fitted.alpha + 1.96 * fitted.alpha_stderr * np.array([-1, 1]),
                               atol=0.1 * fitted.alpha_stderr)
    low, high = fitted.beta_interval
    assert low < fitted.beta < high
    assert math.log(high / low) == pytest.approx(2 * 1.96 * fitted.beta_stderr / fitted.beta, rel=0.05)


def test_results_save_and_print(fitted, drawn, tmp_path):
    fitted.save(tmp_path / "fit.nc")
    again = jaxq.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again["gap"], fitted.gap)
    assert again.attrs["alpha"] == fitted.alpha
    text = json.loads(json.dumps(fitted.to_json()))
    assert text["alpha"] == {"value": fitted.alpha, "stderr": fitted.alpha_stderr}
    assert {"beta", "correlation", "prediction", "chi_square", "dof", "p_value", "converged"} <= set(text)
    for k, result in enumerate(drawn):
        result.to_netcdf(tmp_path / f"{k}.nc", engine="h5netcdf")
    from_files = fit_scaling([tmp_path / f"{k}.nc" for k in (2, 0, 3, 1)], levels=3)  # in any order
    assert from_files.alpha == fitted.alpha
    assert from_files.alpha_interval is None


def test_the_figure_shows_data_fit_and_residuals(fitted, tmp_path):
    left, right = plot.fit(fitted)
    drawn_lines = [line.get_ydata() for line in (*left.get_lines(), *right.get_lines())]
    assert any(np.array_equal(y, fitted.gap) for y in drawn_lines)
    first = fitted.row_level == 1
    assert any(np.array_equal(y, ((fitted.value - fitted.fitted) / fitted.value_stderr)[first]) for y in drawn_lines)
    plot.save((left, right), tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def test_hessian_and_fisher_agree_near_the_truth_and_curves_are_derivatives(fitted, drawn):
    """The Hessian is J'J plus residuals times curvature: within a few standard deviations of 0 they differ by a few per cent."""
    blocks = fit_data.read(drawn, 3).blocks
    with jax.enable_x64(True):
        problem, seen = fit_errors.prepare(blocks, "refined", 2, True, None)
        x = np.log(fitted.beta) - fitted.alpha * seen.log_n
        point = fit_errors.at(problem, seen, x)
        hessian, fisher = fit_errors.matrix(seen, point.curve), fit_errors.matrix(seen, point.information)
        np.testing.assert_allclose(hessian, fisher, rtol=0.1)
        assert not np.allclose(hessian, fisher, rtol=1e-6)
        h = 1e-4  # central differences: truncation ~h^2, rounding ~1e-12/h
        up, down = fit_errors.at(problem, seen, x + h), fit_errors.at(problem, seen, x - h)
        np.testing.assert_allclose(point.slope, (up.value - down.value) / (2 * h), rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(point.curve, (up.slope - down.slope) / (2 * h), rtol=1e-4)
    spread = fit_errors.covariance(seen, point, blocks)
    assert spread[0, 0] == pytest.approx(np.linalg.inv(hessian)[0, 0], rel=0.1)
    assert spread[0, 0] > np.linalg.inv(hessian)[0, 0]


@pytest.mark.parametrize("prediction", ["fixed-point", *(pytest.param(name, marks=pytest.mark.slow) for name in ("refined", "transient"))])
def test_gradients_reverse_forward_and_finite_difference(drawn, prediction):
    blocks = fit_data.read(drawn, 3).blocks
    if prediction == "transient":
        blocks = [block._replace(time=np.full(3, 4.0)) for block in blocks]
    with jax.enable_x64(True):
        problem, seen = fit_errors.prepare(blocks, prediction, 2, True, None)
        seen = jax.tree.map(jnp.asarray, seen)
        loss = jax.jit(lambda theta: fit_likelihood.loss(problem, seen, theta))
        theta = jnp.array([0.51, 0.05])
        reverse, forward = jax.jit(jax.grad(loss))(theta), jax.jit(jax.jacfwd(loss))(theta)
        np.testing.assert_allclose(reverse, forward, rtol=1e-9)
        h = 1e-5  # truncation ~h^2 relative, rounding of the loss ~1e-9/h
        finite = [(loss(theta + h * e) - loss(theta - h * e)) / (2 * h) for e in jnp.eye(2)]
        np.testing.assert_allclose(reverse, np.array(finite), rtol=1e-5)


def test_wrong_d_is_flagged_by_chi_square(drawn):
    """d = 3 data seen as d = 2: same S_1, other levels above."""
    rng = np.random.default_rng(6)
    three = []
    for n, result in zip(SIZES, drawn, strict=True):
        tails = np.asarray(result["replica_tail"])
        moved = (1 - n**-0.5) ** np.array([1.0, 4.0, 13.0])
        three.append(as_result(n, 2, moved + tails - tails.mean(axis=0) + rng.normal(size=3) * tails.std(axis=0) / 8))
    assert fit_scaling(three, levels=3).p_value < 1e-10


def test_two_sizes_and_level_one_are_a_hand_calculation():
    """E S_1 = lambda: alpha and beta solve two equations, and their errors follow by the delta method."""
    n, gap, error = np.array([100.0, 900.0]), np.array([0.2, 0.05]), np.array([0.004, 0.002])
    fit = fit_scaling(columns(n, [1, 1], 1 - gap, error), d=1)
    span, relative = math.log(9), error / gap
    alpha = math.log(4) / span
    assert fit.alpha == pytest.approx(alpha, abs=1e-6)
    assert fit.beta == pytest.approx(0.2 * 100**alpha, rel=1e-5)
    assert fit.alpha_stderr == pytest.approx(np.hypot(*relative) / span, rel=1e-4)
    log_n = np.log(n)
    log_beta_error = np.hypot(relative[0] * log_n[1], relative[1] * log_n[0]) / span
    assert fit.beta_stderr == pytest.approx(fit.beta * log_beta_error, rel=1e-4)
    np.testing.assert_allclose(fit.gap, gap, rtol=1e-5)
    np.testing.assert_allclose(fit.gap_stderr, error, rtol=1e-3)
    assert fit.free_slope == pytest.approx(alpha, abs=1e-5)
    assert fit.free_slope_stderr == pytest.approx(fit.alpha_stderr, rel=1e-3)
    assert fit.dof == 0
    assert math.isnan(fit.p_value)
    assert fit.to_json()["p_value"] is None
    assert fit.alpha_model_error == 0  # at d = 1 the fixed point is the law at every n


def test_csv_table_and_quantities_are_the_same_data(tmp_path):
    """S, T = eta (1 - S) and Q; Q = lambda/(1 - lambda) at d = 1, M/M/1."""
    n = [100.0, 1600.0]
    rate = 1 - 0.9 * np.array(n) ** -0.4
    noisy = rate / (1 - rate) * np.array([1.01, 0.99])
    error = noisy / 50
    table = fit_scaling(columns(n, [0] * 2, noisy, error), d=1)
    lines = [f"{a:g},0,{b!r},{c!r},Q" for a, b, c in zip(n, noisy.tolist(), error.tolist(), strict=True)]
    (tmp_path / "q.csv").write_text("n, level, value, stderr, quantity\n" + "\n".join(lines) + "\n\n")
    read = fit_scaling(tmp_path / "q.csv", d=1)
    assert (read.alpha, read.beta, read.alpha_stderr) == (table.alpha, table.beta, table.alpha_stderr)
    assert abs(table.alpha - 0.4) < 4 * table.alpha_stderr
    np.testing.assert_allclose(table.gap, 1 / (1 + noisy), rtol=1e-6)
    S, sd, eta = 1 - np.array([0.09, 0.05]), np.array([0.001] * 2), np.array([10.0, 20.0])
    as_S = fit_data.read(columns(n, [1] * 2, S, sd)).blocks
    as_T = fit_data.read(columns(n, [1] * 2, eta * (1 - S), eta * sd, quantity=["T"] * 2, eta=eta)).blocks
    for one, other in zip(as_S, as_T, strict=True):
        np.testing.assert_allclose(one.value, other.value, rtol=1e-12)
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-12)


@pytest.mark.slow
def test_transient_data_follow_the_ode():
    """Mean field from empty at t = 4, 8 with errors far below the slope in lambda: the truth comes back."""
    rows = []
    for n in (100, 400, 1600):
        path = jaxq.mean_field(jaxq.Supermarket(n, 2, 1 - n**-0.5), [4.0, 8.0])
        rows += [(n, level, path.tail[k, level - 1], 1e-4, t) for k, t in enumerate((4.0, 8.0)) for level in (1, 3)]
    n, level, value, stderr, t = zip(*rows, strict=True)
    with pytest.warns(UserWarning, match="transient prediction leaves out"):
        fit = fit_scaling(columns(n, level, value, stderr, t=t), d=2)
    assert fit.prediction == "transient"
    assert fit.alpha == pytest.approx(0.5, abs=1e-4)
    assert fit.beta == pytest.approx(1.0, abs=5e-4)
    assert fit.chi_square < 1e-2


def test_p_value_of_one_block_is_hotellings():
    """T^2 (R - p)/(p (R - 1)) has the F law with p and R - p degrees of freedom."""
    block = fit_data.Block(100.0, np.arange(1, 4), np.zeros(3), np.eye(3), None, 20, None)
    square = 9.0
    weighted = square * (20 - 3 - 2) / 19
    assert fit_errors.p_value(weighted, 3, [block]) == pytest.approx(stats.f.sf(square * 17 / (3 * 19), 3, 17), rel=1e-12)
    known = block._replace(replicas=None)
    assert fit_errors.p_value(5.0, 4, [known, known]) == pytest.approx(stats.chi2.sf(5.0, 4), rel=1e-12)


@pytest.mark.parametrize(("data", "settings", "match"), [
    (columns([1, 2], [1, 1], [.5, .5], [.1, .1]) | {"value": [.5]}, {"d": 2}, "equally long"),
    ({"n": [1], "level": [1], "value": [.5]}, {}, "'stderr' is missing; got n, level, value; add it"),
    (columns([10, 10.5], [1, 1], [.5, .5], [.1, .1]), {}, "data row 2 must have a whole number >= 1 as n; got 10.5"),
    (columns([10, 20], [1, 1], [.5, math.nan], [.1, .1]), {}, "data row 2 must have a finite number as value; got nan"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, 0]), {}, "data row 2 must have a number above 0 as stderr; got 0"),
    (columns([10, 20], [1, -1], [.5, .5], [.1, .1]), {}, "whole number >= 0 as level; got -1"),
    (columns([10, 20], [0, 0], [.5, .5], [.1, .1], quantity=["T", "T"]), {}, "quantity S or T at a level >= 1, or Q at level 0"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1], quantity=["T", "T"]), {}, "the column 'eta' is missing"),
    (columns([10, 10], [1, 2], [.5, .5], [.1, .1]), {"d": 2}, r"two or more sizes n; got \[10\]"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1]), {}, "d must be known"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1]), {"fit_d": True}, "fit of 3 unknowns needs at least 3 rows of data; got 2"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1]), {"d": 2, "prediction": "transient"}, "needs data at times; got stationary data"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1], t=[1, 2]), {"d": 2, "prediction": "refined"}, "needs stationary data; got data at times"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1], t=[1, 2]), {"d": 2, "start": [.5, .6]}, "start must be tails"),
    (columns([10, 20], [1, 1], [.5, .5], [.1, .1]), {"d": 2, "prediction": "best"}, "prediction must be one of 'refined'"),
    (columns([100, 900], [1, 1], [.9, .5], [.01, .01]), {"d": 1}, "must reach a minimum with 0 < lambda_n < 1 and alpha > 0"),
    ("nowhere.csv", {}, "study folder, a .nc result or a CSV that can be read; got 'nowhere.csv'"),
    (7, {}, "got int; give one of these"),
])
def test_errors_are_one_sentence(data, settings, match):
    with pytest.raises(ValueError, match=match):
        fit_scaling(data, **settings)


def test_errors_of_files_and_results(tmp_path):
    (tmp_path / "bad.csv").write_text("n,level,value,stderr\n10,1,0.5,0.1\n20,1,half,0.1\n")
    with pytest.raises(ValueError, match=r"bad.csv line 3 must have a finite number as value; got 'half'; mend or drop the row"):
        fit_scaling(tmp_path / "bad.csv")
    (tmp_path / "short.csv").write_text("n,level,value,stderr\n10,1,0.5\n")
    with pytest.raises(ValueError, match="line 2 must have 4 cells, as its first line has; got 3"):
        fit_scaling(tmp_path / "short.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="it is empty"):
        fit_scaling(tmp_path / "empty.csv")
    with pytest.raises(ValueError, match=r"must hold study\.nc"):
        fit_scaling(tmp_path)
    few = [as_result(n, 2, np.random.default_rng(0).uniform(0.5, 0.6, (replicas, 2))) for n, replicas in ((100, 5), (200, 40))]
    with pytest.raises(ValueError, match="covariance of 1 entries needs at least 6 replicas; got 5 at n = 100"):
        fit_scaling(few)
    other = as_result(100, 3, np.random.default_rng(0).uniform(0.5, 0.6, (40, 2)))
    with pytest.raises(ValueError, match="must share one d"):
        fit_scaling([few[1], other])
    with pytest.raises(ValueError, match="levels must be at most 2 with 40 replicas"):
        fit_scaling([few[1]], levels=3)
    flat = as_result(100, 2, np.stack([np.linspace(0.5, 0.6, 40)] * 2, axis=1))
    with pytest.raises(ValueError, match="covariance is singular"):
        fit_scaling([few[1], flat], levels=2)
    full = as_result(100, 2, few[1]["replica_tail"].values)
    full.attrs["model"] = json.dumps(json.loads(full.attrs["model"]) | {"buffer": 5})
    with pytest.raises(ValueError, match="supermarket model without a buffer"):
        fit_scaling([few[1], full])
