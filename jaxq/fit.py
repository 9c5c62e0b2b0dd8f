"""How eta_n scales, from data: alpha and beta of lambda_n = 1 - beta n**-alpha by maximum likelihood, with their errors.

Sources: the heavy-traffic regime, Eschenfeldt and Gamarnik, arXiv:1610.03522; the 1/n term of the refined prediction, Gast and
Van Houdt, doi:10.1145/3154491; estimated covariances, Hartlap, Simon and Schneider, doi:10.1051/0004-6361:20066170; profile
likelihood, Venzon and Moolgavkar, doi:10.2307/2347496.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from . import _check, fit_data, fit_errors, fit_likelihood
from .ensemble import Result
from .fit_data import Block
from .fit_likelihood import Observed, Problem

MOST_D = 8         # fit_d tries 1..8
_CONVERGED = 1e-3  # gradient at an accepted minimum, in standard errors
_AWAY = ((0.0, 0.0), (0.15, 0.0), (-0.15, 0.0), (0.0, 0.7))  # starts: added to alpha and, at the middle n, to log(1 - lambda)

_start_each = jax.jit(fit_likelihood.start_each, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _solve(problem: Problem, seen: Observed, starts: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.map(partial(fit_likelihood.solve, problem, seen), starts)


@dataclass(frozen=True)
class ScalingFit(Result):
    """alpha and beta in lambda_n = 1 - beta n**-alpha (eta_n = n**alpha) from data at several n, from `fit_scaling`.

    alpha, beta: maximum likelihood, with *_stderr from the Hessian there and their `correlation`. *_model_error: by how much
      the first term that the prediction leaves out may shift them; it is not part of the standard error.
    alpha_interval, beta_interval: (bound,) 95 % by profile likelihood, with profile=True; else None.
    d, replacement, prediction: of the model fitted. d_tried, d_chi_square: (d,) with fit_d=True; else None.
    chi_square: residuals weighted by the inverse covariance; dof = rows - 2; p_value: chance of as large a chi_square.
    gradient_norm: at the minimum, in standard errors. converged is True: a fit that does not converge raises.
    n, gap, gap_stderr: (n,) 1 - lambda_n at each n by itself, no power law; eta_n = beta/gap for any choice of beta.
    free_slope, free_slope_stderr: of log eta_n in log n, by weighted regression on those.
    row_n, row_level, row_time, value, value_stderr, fitted: (row,) the data, level 0 being Q, time nan where stationary, and
      the prediction at the minimum.

    Example, where S_1 = lambda_n = 1 - n**-1/2 at every n::

        >>> data = {"n": [100, 400, 1600], "level": [1, 1, 1], "value": [0.9, 0.95, 0.975], "stderr": [0.001] * 3}
        >>> found = jaxq.fit_scaling(data, d=1)
        >>> found.gap.round(3), found.dof, round(found.free_slope, 3)
        (array([0.1  , 0.05 , 0.025]), 1, 0.5)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "n": ("n",), "gap": ("n",), "gap_stderr": ("n",), "alpha_interval": ("bound",), "beta_interval": ("bound",),
        "d_tried": ("d",), "d_chi_square": ("d",), "row_n": ("row",), "row_level": ("row",), "row_time": ("row",),
        "value": ("row",), "value_stderr": ("row",), "fitted": ("row",)}
    json_keys: ClassVar[tuple[str, ...]] = (
        "correlation", "prediction", "chi_square", "dof", "p_value", "converged", "d", "free_slope", "free_slope_stderr", "n",
        "gap", "gap_stderr", "alpha_model_error", "beta_model_error", "alpha_interval", "beta_interval", "d_tried", "d_chi_square")

    alpha: float
    alpha_stderr: float
    beta: float
    beta_stderr: float
    correlation: float
    alpha_model_error: float
    beta_model_error: float
    alpha_interval: np.ndarray | None
    beta_interval: np.ndarray | None
    d: int
    replacement: bool
    prediction: str
    chi_square: float
    dof: int
    p_value: float
    converged: bool
    gradient_norm: float
    d_tried: np.ndarray | None
    d_chi_square: np.ndarray | None
    n: np.ndarray
    gap: np.ndarray
    gap_stderr: np.ndarray
    free_slope: float
    free_slope_stderr: float
    row_n: np.ndarray
    row_level: np.ndarray
    row_time: np.ndarray
    value: np.ndarray
    value_stderr: np.ndarray
    fitted: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line: alpha and beta with their errors, then `json_keys`."""
        return {"alpha": {"value": self.alpha, "stderr": self.alpha_stderr},
                "beta": {"value": self.beta, "stderr": self.beta_stderr}} | super().to_json()


def fit_scaling(data: Any, *, d: int | None = None, prediction: str | None = None, fit_d: bool = False,
                replacement: bool | None = None, profile: bool = False, levels: int | None = None, times: Any = None,
                start: Any = None) -> ScalingFit:
    """Fit lambda_n = 1 - beta n**-alpha to means at several n, by weighted least squares (Gaussian maximum likelihood).

    Args:
      data: one of
        a list of results of `stationary`, or of `simulate` with save="paths", or of their .nc files, one n each: the
          covariance of the levels is that over replicas (from `replica_tail`, which do not know lambda);
        a study folder (with study.nc) or a `Study`: its T back to S; it holds no covariance, see below;
        a CSV file or a table (dict, pandas, xarray) with columns n, level, value, stderr [, t] [, quantity S|T|Q]; level 0 is Q.
          T = eta (1 - S) is read back to S = 1 - T/eta and needs the column eta it was made with.
        Rows of tables, and levels of data without replicas, are taken as independent. Levels of one n are strongly
        correlated, so then give one level per n, or read chi_square and the errors as rough.
      d: servers sampled; None: that of the data. Given, it overrides the data's. fit_d: try 1..8 and keep the least chi_square.
      prediction: "refined" (fixed point plus V/n; the default), "fixed-point", or "transient" (the mean-field ODE from a known
        start; the default, and needed, for data at times).
      replacement: sampling; None: that of the data, else True.
      profile: also 95 % intervals by profile likelihood.
      levels: how many levels of each result, from 1; None: up to 6 with S_i >= 0.05, as the replicas allow.
      times: which saved times of simulated results to fit; None: the last.
      start: tails (level,) at time 0 for transient data; None: the data's own, empty for tables.

    A covariance estimated from R replicas has its inverse scaled by (R - entries - 2)/(R - 1), the standard errors widened for
    its noise, and p_value taken from the F law that has the mean and variance which chi_square then has.

    Returns `ScalingFit`. Warns where the prediction's own error exceeds a standard error. Raises ValueError for bad data, and
    where no minimum with 0 < lambda_n < 1 and alpha > 0 is reached.

    Sources: arXiv:1610.03522 (the regime), doi:10.1145/3154491 (V/n), doi:10.1051/0004-6361:20066170 (estimated covariances),
    doi:10.2307/2347496 (profile likelihood).

    Example, where S_1 = lambda_n = 1 - n**-1/2 at every n::

        >>> data = {"n": [100, 400, 1600], "level": [1, 1, 1], "value": [0.9, 0.95, 0.975], "stderr": [0.001] * 3}
        >>> found = jaxq.fit_scaling(data, d=1)
        >>> round(found.alpha, 3), round(found.alpha_stderr, 3), round(found.beta, 3)
        (0.5, 0.012, 1.0)
    """
    fit_d, profile = _check.flag("fit_d", fit_d), _check.flag("profile", profile)
    replacement = None if replacement is None else _check.flag("replacement", replacement)
    if fit_d and d is not None:
        raise ValueError(f"give d, or fit_d=True to try 1 to {MOST_D}; got d={_check.shown(d)} with fit_d=True; leave one out")
    found = fit_data.read(data, levels, times)
    blocks = found.blocks
    timed = {block.time is not None for block in blocks}
    if prediction is None:
        prediction = "transient" if True in timed else "refined"
    _check.choice("prediction", prediction, fit_likelihood.PREDICTIONS)
    if timed != {prediction == "transient"}:
        came = "both kinds" if len(timed) > 1 else "data at times" if True in timed else "stationary data"
        needs = "data at times" if prediction == "transient" else "stationary data"
        raise ValueError(f"prediction {prediction!r} needs {needs}; got "
                         f"{came}; fit each kind with its own prediction")
    d = found.d if d is None else _check.integer("d", d, 1, 64)
    if d is None and not fit_d:
        raise ValueError("d must be known; the data do not say it; give d, or fit_d=True to try 1 to 8")
    sampling = bool(replacement if replacement is not None else found.replacement if found.replacement is not None else True)
    rows, unknowns = sum(block.level.size for block in blocks), 3 if fit_d else 2
    if rows < unknowns:
        raise ValueError(f"a fit of {unknowns} unknowns needs at least {unknowns} rows of data; got {rows}; add data")
    if start is not None:
        start = _check.vector("start", start).astype(np.float64)
        if prediction != "transient":
            raise ValueError(f"start belongs to prediction 'transient', of data at times; got {_check.shown(start.tolist())} with "
                             f"{prediction!r}; leave it out")
        if np.any(np.diff(np.concatenate([[1.0], start, [0.0]])) > 0):
            raise ValueError(f"start must be tails 1 >= S_1 >= S_2 >= ... >= 0; got {_check.shown(start.tolist())}; mend it")
    tried = np.arange(1, MOST_D + 1) if fit_d else np.array([d])
    with jax.enable_x64(True):
        fits = [_least(*fit_errors.prepare(blocks, prediction, int(k), sampling, start)) for k in tried]
        problem, seen, theta, _, guess = min(fits, key=lambda fit: fit[3])
        fields = _report(problem, seen, theta, guess, blocks, profile)
    fields |= {"d_tried": tried if fit_d else None, "d_chi_square": np.array([2 * fit[3] for fit in fits]) if fit_d else None}
    result = ScalingFit(attributes={}, d=problem.d, replacement=sampling, prediction=prediction, converged=True,
                        **fields)
    worst = max(result.alpha_model_error / result.alpha_stderr, result.beta_model_error / result.beta_stderr)
    if worst > 1:
        warnings.warn(f"the {prediction} prediction leaves out a term that may shift alpha by {result.alpha_model_error:.2g} and "
                      f"beta by {result.beta_model_error:.2g}, {worst:.2g} standard errors; leave out the smallest n, or use "
                      "fewer levels (with levels=1 the stationary prediction is exact)", stacklevel=2)
    return result


def _least(problem: Problem, seen: Observed) -> tuple[Problem, Observed, np.ndarray, float, np.ndarray]:
    """The lowest minimum from several starts: theta (2,) and the loss there; and the guess (n,) the starts came from."""
    guess = _start_each(problem, seen)
    theta, _ = fit_likelihood.line(seen.log_n, guess, jnp.ones(seen.log_n.size))
    middle = float(np.mean(seen.log_n))
    starts = np.asarray(theta) + np.array([[alpha, level + alpha * middle] for alpha, level in _AWAY])
    thetas, losses = map(np.asarray, _solve(problem, seen, starts))
    best = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    return problem, seen, thetas[best], float(losses[best]), np.asarray(guess)


def _report(problem: Problem, seen: Observed, theta: np.ndarray, guess: np.ndarray, blocks: list[Block],
            profile: bool) -> dict[str, Any]:
    """The fields of `ScalingFit` at the minimum; ValueError if it is none."""
    x = np.asarray(fit_likelihood.log_gaps(theta, seen.log_n))
    point = fit_errors.at(problem, seen, x)
    distance = fit_errors.distance(seen, point)
    hessian = fit_errors.matrix(seen, point.curve)
    if not (distance < _CONVERGED and np.all(np.linalg.eigvalsh(hessian) > 0)):
        raise ValueError(f"the fit must reach a minimum with 0 < lambda_n < 1 and alpha > 0; got a gradient of {distance:.2g} "
                         f"standard errors at alpha = {theta[0]:.3g}, beta = {math.exp(theta[1]):.3g}; check d, the prediction and "
                         "the data, or give more sizes n")
    spread = fit_errors.covariance(seen, point, blocks)
    alpha_error, log_error = np.sqrt(np.diag(spread))
    beta, loss = math.exp(theta[1]), float(point.value.sum())
    shift = fit_errors.shift(problem, seen, x, point)
    ends: list[np.ndarray | None] = [None, None]
    if profile:
        ends = [fit_errors.profile(problem, seen, theta, spread, loss, 0),
                np.exp(fit_errors.profile(problem, seen, theta, spread, loss, 1))]
    alone, alone_error = fit_errors.each(problem, seen, guess)
    known = np.isfinite(alone)
    slope, slope_error = fit_likelihood.line(seen.log_n[known], alone[known], alone_error[known] ** -2.0)[:2] if known.sum() > 1 \
        else ((math.nan,), math.nan)
    dof = sum(block.level.size for block in blocks) - 2
    sizes = [block.level.size for block in blocks]
    nowhere = [block.time if block.time is not None else np.full(block.level.size, np.nan) for block in blocks]
    return {"alpha": float(theta[0]), "alpha_stderr": float(alpha_error), "beta": beta, "beta_stderr": float(beta * log_error),
            "correlation": float(spread[0, 1] / (alpha_error * log_error)), "alpha_model_error": float(abs(shift[0])),
            "beta_model_error": float(beta * abs(shift[1])), "alpha_interval": ends[0], "beta_interval": ends[1],
            "chi_square": 2 * loss, "dof": dof, "p_value": fit_errors.p_value(2 * loss, dof, blocks), "gradient_norm": distance,
            "n": np.array([block.n for block in blocks]), "gap": np.exp(alone), "gap_stderr": np.exp(alone) * alone_error,
            "free_slope": float(slope[0]), "free_slope_stderr": float(slope_error),
            "row_n": np.repeat([block.n for block in blocks], sizes),
            "row_level": np.concatenate([block.level for block in blocks]),
            "row_time": np.concatenate(nowhere), "value": np.concatenate([block.value for block in blocks]),
            "value_stderr": np.concatenate([np.sqrt(np.diag(block.covariance)) for block in blocks]),
            "fitted": np.concatenate([point.expected[k, :size] for k, size in enumerate(sizes)])}
