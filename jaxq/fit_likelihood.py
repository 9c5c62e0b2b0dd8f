"""The likelihood of eta_n = n**alpha: predicted means at each n, weighted residuals, and their minimum. Pure JAX, float64.

The unknowns are theta = (alpha, log beta) in 1 - lambda_n = beta n**-alpha, so that x_n = log(1 - lambda_n) = log beta -
alpha log n is linear in them. Every function works under jit, vmap and both modes of differentiation inside
`with jax.enable_x64(True):`; what decides shapes is in `Problem` (static), what varies from data set to data set in `Observed`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .mean_field import mean_field_path
from .models.levels import exponents
from .models.supermarket import Supermarket
from .refined import constants

PREDICTIONS = ("refined", "fixed-point", "transient")
_GRID = 64     # values of log(1 - lambda) tried at each n for a start
_MOST = 60     # iterations
_TARGET = 1e-5  # gradient, in standard errors, that ends them
_GAIN = 1e-9     # fall of the loss, or
_SHORTEST = 1e-12  # step, that does
_STEP = 0.1    # internal ODE step times d

class Problem(NamedTuple):
    """What is fixed at compilation: the prediction, d, the sampling, levels solved, times of the data (empty: stationary)."""

    prediction: str
    d: int
    replacement: bool
    levels: int
    times: tuple[float, ...] = ()


class Observed(NamedTuple):
    """The data, padded to the same number of entries at each n: log_n (n,), value (n, entry), whiten (n, entry, entry), whose
    product with residuals has unit covariance (zero rows for padding), level and time (n, entry) as indices into a prediction,
    start (n, level), and the ends (2,) of the interval that log(1 - lambda_n) is kept in."""

    log_n: Any
    value: Any
    whiten: Any
    level: Any
    time: Any
    start: Any
    ends: Any


def predict(problem: Problem, x: jax.Array, log_n: jax.Array, start: jax.Array) -> jax.Array:
    """Means (time, 1 + level) of Q and S_1, S_2, ... at log(1 - lambda) = x; one time where the data are stationary.

    The fixed point S_i = lambda**((d**i - 1)/(d - 1)) is that of the ODE; at d = 1 the queues are independent M/M/1 and it is
    the law at every n.
    """
    model = _model(problem, x)
    if problem.prediction == "transient":
        path = mean_field_path(model, np.array(problem.times), start, method="rk4", step=_STEP / problem.d)
        return jnp.concatenate([jnp.sum(path, axis=1, keepdims=True), path], axis=1)
    tail = jnp.exp(exponents(problem.d, problem.levels) * jnp.log1p(-jnp.exp(x)))
    if problem.d == 1:
        return jnp.concatenate([(model.arrival_rate / jnp.exp(x))[None], tail])[None]
    if problem.prediction == "refined":
        tail = tail + constants(model, tail)[0] * jnp.exp(-log_n)
    return jnp.concatenate([jnp.sum(tail)[None], tail])[None]


def expected(problem: Problem, seen: Observed, x: jax.Array) -> jax.Array:
    """The predictions (n, entry) of the data at log(1 - lambda_n) = x (n,)."""
    tables = jax.vmap(partial(predict, problem))(x, seen.log_n, seen.start)
    return jax.vmap(lambda table, time, level: table[time, level])(tables, seen.time, seen.level)


def curves(problem: Problem, seen: Observed, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`expected` with its first and second derivatives in each n's own x, all (n, entry), by forward mode."""
    def slope(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(partial(expected, problem, seen), (x,), (jnp.ones_like(x),))

    (value, first), (_, second) = jax.jvp(slope, (x,), (jnp.ones_like(x),))
    return value, first, second


def residuals(problem: Problem, seen: Observed, x: jax.Array) -> jax.Array:
    """(n, entry), independent with unit variance where the prediction at x (n,) is right."""
    return jnp.einsum("nij,nj->ni", seen.whiten, seen.value - expected(problem, seen, x))


def log_gaps(theta: Any, log_n: Any) -> jax.Array:
    """log(1 - lambda_n) (n,) of the power law."""
    return jnp.asarray(theta[1] - theta[0] * log_n)


def loss(problem: Problem, seen: Observed, theta: jax.Array) -> jax.Array:
    """Half the chi-square: the negative log-likelihood of Gaussian data, up to a constant."""
    return jnp.sum(residuals(problem, seen, log_gaps(theta, seen.log_n)) ** 2) / 2


def start_each(problem: Problem, seen: Observed) -> jax.Array:
    """The best log(1 - lambda_n) (n,) of a grid, each n by itself, by the mean field alone."""
    plain = _mean_field(problem)
    grid = seen.ends[0] + (seen.ends[1] - seen.ends[0]) * (jnp.arange(_GRID) + 0.5) / _GRID
    cost = jax.lax.map(lambda x: jnp.sum(residuals(plain, seen, jnp.full(seen.log_n.shape, x)) ** 2, axis=1), grid)
    return grid[jnp.argmin(jnp.where(jnp.isfinite(cost), cost, jnp.inf), axis=0)]


def line(log_n: Any, x: Any, weight: Any) -> tuple[jax.Array, jax.Array]:
    """theta (2,) of the weighted regression x = log beta - alpha log n, and alpha's standard error where 1/weight are variances."""
    centre = jnp.sum(weight * log_n) / jnp.sum(weight)
    moment = jnp.sum(weight * (log_n - centre) ** 2)
    alpha = -jnp.sum(weight * (log_n - centre) * x) / moment
    return jnp.stack([alpha, jnp.sum(weight * x) / jnp.sum(weight) + alpha * centre]), 1 / jnp.sqrt(moment)


def solve(problem: Problem, seen: Observed, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """theta (2,) at the minimum of `loss` near `start`, and the loss there.

    L-BFGS (optax) with step halving, in coordinates that keep 0 < lambda_n < 1 and alpha > 0 and whose unit is about one
    standard error, by the mean field's Gauss-Newton matrix at the start. One evaluation of the gradient in the program keeps
    its compilation short. Whether it is a minimum is for the caller to see, by `curves`.
    """
    import optax

    first, last = seen.log_n[0], seen.log_n[-1]
    low, high = seen.ends

    def theta_of(u: jax.Array) -> jax.Array:
        """u (2,), unconstrained: log(1 - lambda) at the least n inside the ends, at the largest n below that."""
        top = low + (high - low) * jax.nn.sigmoid(u[0])
        alpha = (top - low) / (last - first) * jax.nn.sigmoid(u[1])
        return jnp.stack([alpha, top + alpha * first])

    share = jnp.clip((log_gaps(start, first) - low) / (high - low), 1e-3, 1 - 1e-3)
    slope = jnp.clip(start[0] * (last - first) / (share * (high - low)), 1e-3, 1 - 1e-3)
    origin = jax.scipy.special.logit(jnp.stack([share, slope]))
    plain = _mean_field(problem)
    jacobian = jax.jacfwd(lambda u: residuals(plain, seen, log_gaps(theta_of(u), seen.log_n)).ravel())(origin)
    scale = _inverse_root(jacobian.T @ jacobian)

    def cost(z: jax.Array) -> jax.Array:
        return loss(problem, seen, theta_of(origin + scale @ z))

    method = optax.scale_by_lbfgs(memory_size=4, scale_init_precond=False)

    def going(carry: Any) -> jax.Array:
        k, _, _, gradient, _, _, step, gain = carry
        return (k < _MOST) & (jnp.linalg.norm(gradient) > _TARGET) & (step > _SHORTEST) & (gain > _GAIN)

    def more(carry: Any) -> Any:
        k, z, value, gradient, state, way, step, gain = carry
        trial = z + step * way
        trial_value, trial_gradient = jax.value_and_grad(cost)(trial)
        flat = (trial_value <= value * (1 + 1e-6)) & (jnp.linalg.norm(trial_gradient) < jnp.linalg.norm(gradient))
        better = (trial_value <= value + 1e-4 * step * (way @ gradient)) | flat  # flat: a fall that rounding hides
        better &= jnp.all(jnp.isfinite(trial_gradient))
        upwards, moved = method.update(trial_gradient, state, trial)
        downhill = upwards @ trial_gradient > 0
        new = (trial, trial_value, trial_gradient, moved, -jnp.where(downhill, upwards, trial_gradient), jnp.ones(()),
               value - trial_value)
        old = (z, value, gradient, state, way, step / 4, gain)
        return k + 1, *jax.tree.map(partial(jnp.where, better), new, old)

    zero = jnp.zeros_like(origin)
    far = jnp.asarray(jnp.inf)
    begin = (0, zero, far, jnp.ones_like(zero), method.init(zero), zero, jnp.ones(()), far)
    _, z, value, *_ = jax.lax.while_loop(going, more, begin)
    return theta_of(origin + scale @ z), value


def _model(problem: Problem, x: jax.Array) -> Supermarket:
    plain = Supermarket(max(problem.d, 2), problem.d, 0.5, problem.replacement).at_levels(problem.levels)
    return dataclasses.replace(plain, arrival_rate=-jnp.expm1(x))


def _mean_field(problem: Problem) -> Problem:
    return problem._replace(prediction="fixed-point") if problem.prediction == "refined" else problem


def _inverse_root(matrix: jax.Array) -> jax.Array:
    """A with A' matrix A = 1 (nearly, where it is singular)."""
    size = jnp.sqrt(jnp.diag(matrix)) + 1e-150
    eye = jnp.eye(size.size)
    factor = jnp.linalg.cholesky(matrix / jnp.outer(size, size) + 1e-9 * eye)
    return jax.scipy.linalg.solve_triangular(factor, eye, lower=True).T / size[:, None]
