"""The refined mean field: what n servers add to the fixed point at order 1/n, and how much they fluctuate around it.

With x the fixed point of the drift f, J its Jacobian there, D the diffusion matrix of the jumps, and 1/n corrections f_1 of
the drift itself (servers sampled without replacement)::

    n Cov(X) -> W,             J W + W J' + D = 0
    E[X] = x + V/n + O(1/n^2), V = -J^{-1} b,   b_i = (1/2) sum_kl (d^2 f_i / dx_k dx_l) W_kl + f_1,i

All derivatives are automatic, of the model's own rates: nothing here knows any particular system. `refined` gives float64
numbers; `constants` and `fixed_point_density` are pure JAX, to be differentiated in the model's parameters inside
`with jax.enable_x64(True):`.

Source: Gast and Van Houdt 2017, doi:10.1145/3154491; the covariance: Kurtz 1971, doi:10.2307/3211904.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from . import _check
from .chain import Model, PopulationModel
from .ensemble import Result, describe
from .mean_field import _population, fixed_point, newton_step
from .truncation import MOST_LEVELS, truncated

_TRUNCATION = 1e-9  # relative change of the constants that ends the search for levels
_NEUTRAL = 1e-9     # eigenvalues of J above this share of ||J|| are 0; heavy traffic has (ln d)/(6 eta)
_ROUNDING = 1e-14   # error of the constants, relative, times ||J|| over the slowest rate
_DOUBLINGS = 64     # enough for a slowest mode of 1e-18 of the fastest


@dataclass(frozen=True)
class Refined(Result):
    """Steady state of n servers to order 1/n; S_i: fraction of servers with at least i customers, Q: customers per server.

    fixed_point, mean_queue_length: S_i (level,) and Q of the mean field, n = infinity.
    V_tail (level,), V: their 1/n constants, E[S_i] = fixed_point + V_tail/n + O(1/n^2).
    refined_tail (level,), refined_mean_queue_length: fixed_point + V_tail/n and mean_queue_length + V/n at the model's n.
    covariance (level, other_level), variance: limits of n Cov(S_i, S_j) and n Var(Q).
    truncation_error: the largest change of V_tail, V and variance when the levels last doubled (absolute).

    Example::

        >>> result = jaxq.refined(jaxq.Supermarket(100, 2, 2/3, buffer=1))
        >>> round(result.mean_queue_length, 6), round(result.refined_mean_queue_length, 6)
        (0.5, 0.4988)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "fixed_point": ("level",), "V_tail": ("level",), "refined_tail": ("level",), "covariance": ("level", "other_level")}
    json_keys: ClassVar[tuple[str, ...]] = ("fixed_point", "mean_queue_length", "V", "refined_mean_queue_length")

    fixed_point: np.ndarray
    mean_queue_length: float
    V: float
    refined_mean_queue_length: float
    V_tail: np.ndarray
    refined_tail: np.ndarray
    covariance: np.ndarray
    variance: float
    truncation_error: float


def refined(model: Model, *, levels: int | None = None) -> Refined:
    """The refined mean field of the steady state: fixed point, 1/n constants and covariance.

    Args:
      model: a PopulationModel; its n enters only as the 1/n of refined_tail and refined_mean_queue_length.
      levels: solve with this many levels and with twice as many to measure the truncation error; None: double them until
        the constants change by less than 1e-9 relative (in heavy traffic by no more than rounding may).

    How wrong: O(1/n^2), with a constant that grows in heavy traffic; V/n should be small beside mean_queue_length. Against
    exact chains the tests show the order.

    Raises ValueError for an overloaded system, for a model without a closed mean field (server by server on a graph), and
    where the fixed point is not isolated and stable: PULL with R >= 2 routers has R - 1 neutral directions, the split of
    the messages, in which the system diffuses without end.
    Source: Gast and Van Houdt 2017, doi:10.1145/3154491.

    Example::

        >>> result = jaxq.refined(jaxq.Supermarket(100, 2, 2/3, buffer=1))  # f = lambda (1 - x**2) - x: J = -5/3, D = 1
        >>> round(result.variance, 6), round(result.V, 6)  # -D/(2 J), lambda W/J
        (0.3, -0.12)
    """
    model = _population(model, "refined")
    point = fixed_point(model, levels=levels)
    least, error = point.tail.size, 0.0
    cut = model.at_levels(least)
    slowest = _slowest(cut, point.density)
    V, covariance = _expand(cut, point.density)
    while truncated(cut):
        least, coarse_V, coarse_covariance = V.size, V, covariance
        point = fixed_point(model, levels=2 * least)
        V, covariance = _expand(model.at_levels(2 * least), point.density)
        error = float(max(np.max(np.abs(V[:least] - coarse_V)), abs(V.sum() - coarse_V.sum()),
                          abs(covariance.sum() - coarse_covariance.sum())))
        scale = point.mean_queue_length + np.max(np.abs(V)) + covariance.sum()
        if levels is not None or error <= max(_TRUNCATION, _ROUNDING / slowest) * scale:
            break
        if 2 * least >= MOST_LEVELS:
            raise ValueError(f"refined must fit in {least} levels; got {_check.shown(model)}, whose constants still change by "
                             f"{error:.2g} when they double; lower arrival_rate, or give levels={least} to accept that error")
    mean, constant, variance = point.mean_queue_length, float(V.sum()), float(covariance.sum())
    tail, V = point.tail[:least], V[:least]
    return Refined({"model": describe(model), "levels": least}, tail, mean, constant, mean + constant / model.n, V,
                   tail + V / model.n, covariance[:least, :least], variance, error)


def fixed_point_density(model: PopulationModel, guess: Any = None) -> jax.Array:
    """Density (states,) of the mean field's fixed point, pure JAX, at the levels the model has; inside x64.

    Newton's method from `guess` (None: `model.guess()`), which must be near, such as `fixed_point(model).density`: nothing
    is checked. First, second and third derivatives in the model's leaves are exact, forward and reverse: each of the last
    two steps, taken with derivatives, squares the power of a parameter change that the density does not follow.

    Raises ValueError where x64 is off.

    Example::

        >>> import jax
        >>> from jaxq.refined import fixed_point_density
        >>> point = lambda rate: fixed_point_density(jaxq.Supermarket(100, 2, rate, buffer=1)).sum()
        >>> with jax.enable_x64(True):
        ...     round(float(jax.jit(jax.grad(point))(2/3)), 6)  # (1 - x**2)/(1 + 2 lambda x), x = 1/2
        0.45
    """
    _need_x64("fixed_point_density")
    x = jax.lax.stop_gradient(jnp.asarray(model.guess() if guess is None else guess, jnp.float64))
    held = jax.lax.stop_gradient(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), model))
    x = jax.lax.fori_loop(0, 6, lambda _, x: newton_step(x, held), x)
    return newton_step(newton_step(x, model), model)


def constants(model: PopulationModel, density: Any) -> tuple[jax.Array, jax.Array]:
    """V (states,) and W (states, states) of a fixed point: E[X] = density + V/n + O(1/n^2), n Cov(X) -> W; pure JAX.

    Differentiable twice and more in the model's leaves and in `density`, both modes. Not checked: a singular Jacobian gives
    nan or nonsense. Raises ValueError where x64 is off. Source: Gast and Van Houdt 2017, doi:10.1145/3154491.

    Example::

        >>> import jax
        >>> from jaxq.refined import constants, fixed_point_density
        >>> def constant(rate):
        ...     model = jaxq.Supermarket(100, 2, rate, buffer=1)
        ...     return constants(model, fixed_point_density(model))[0].sum()
        >>> with jax.enable_x64(True):
        ...     round(float(jax.jit(jax.grad(constant))(2/3)), 6)  # V = -lambda x/(1 + 2 lambda x)**2, x = 1/2
        -0.0576
    """
    _need_x64("constants")
    x = jnp.asarray(density, jnp.float64)
    jacobian = jax.jacfwd(model.drift)(x)
    covariance = lyapunov(jacobian, model.diffusion(x))
    return -jnp.linalg.solve(jacobian, forcing(model, x, covariance)[0]), covariance


def forcing(model: PopulationModel, x: jax.Array, covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """b (states,), which drives the mean at order 1/n, and J (states, states), at density x with n Cov(X) (states, states).

    b is half the drift's second derivative contracted with the covariance, row by row, so that no (states, states, states)
    array is made, plus the drift's own 1/n term: its derivative in inverse_n, here one more variable.
    """
    point = jnp.concatenate([x, jnp.zeros(1)])

    def bend(direction: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(lambda y: jax.jvp(lambda z: model.rates(z[:-1], z[-1]), (y,), (direction,))[1], (point,), (row,))

    first, second = jax.vmap(bend)(jnp.eye(point.size), jnp.pad(covariance, ((0, 1), (0, 1))))
    jumps = jnp.asarray(model.jumps, jnp.float64)
    return (jnp.sum(second, axis=0) / 2 + first[-1]) @ jumps, (first[:-1] @ jumps).T


def lyapunov(jacobian: jax.Array, diffusion: jax.Array) -> jax.Array:
    """W (states, states) with J W + W J' + D = 0 for a stable J, pure JAX, any number of derivatives in both modes.

    W = sum_k A^k Q A'^k with the Cayley transform A = (p - J)^{-1} (p + J), p = ||J||, summed by doubling: a slowest mode of
    1e-6 of the fastest takes 26 products. Where J's off-diagonal entries are >= 0, as in queues, so are A's, and nothing
    cancels: small variances come out as accurately as large ones. Source: Smith 1968, doi:10.1137/0116017.
    """
    def summed(a: jax.Array, right: jax.Array) -> jax.Array:
        shift = jnp.max(jnp.sum(jnp.abs(a), axis=1)) * jnp.eye(a.shape[0])
        inverse = jnp.linalg.inv(shift - a)

        def going(state: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
            return (state[0] < _DOUBLINGS) & (jnp.max(jnp.abs(state[1])) > 1e-20)

        def double(state: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
            k, power, total = state
            return k + 1, power @ power, total + power @ total @ power.T

        return jax.lax.while_loop(going, double, (0, inverse @ (shift + a), -2 * shift @ inverse @ right @ inverse.T))[2]

    return jax.lax.custom_linear_solve(lambda w: jacobian @ w + w @ jacobian.T, -diffusion,
                                       lambda _, right: summed(jacobian, right), lambda _, right: summed(jacobian.T, right))


def _expand(model: PopulationModel, density: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V (level,) and covariance (level, level) of the tails."""
    with jax.enable_x64(True):
        first, covariance = map(np.asarray, _constants(jax.tree.map(np.float64, model), density))
    tails = np.asarray(model.tail(np.eye(density.size)), np.float64)
    return tails @ first, tails @ covariance @ tails.T


def _slowest(model: PopulationModel, density: np.ndarray) -> float:
    """The rate of the slowest mode as a share of ||J||; ValueError where the fixed point is not isolated and stable."""
    with jax.enable_x64(True):
        jacobian = np.asarray(_jacobian(jax.tree.map(np.float64, model), density))
    rates = -np.linalg.eigvals(jacobian).real / np.max(np.sum(np.abs(jacobian), axis=1))
    free = int(np.sum(rates <= _NEUTRAL))
    if free:
        raise ValueError(f"refined needs a fixed point that is isolated and stable; the Jacobian there has {free} of {rates.size} "
                         "eigenvalues that are not below 0 (for PULL with R routers R - 1: the split of the messages is neutral); "
                         f"got {_check.shown(model)}; use routers=1, leave out counts that the others determine, or simulate")
    return float(rates.min())


@jax.jit
def _jacobian(model: PopulationModel, x: jax.Array) -> jax.Array:
    return jax.jacfwd(model.drift)(x)


@jax.jit
def _constants(model: PopulationModel, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return constants(model, x)


def _need_x64(name: str) -> None:
    if jnp.zeros(()).dtype != jnp.float64:
        raise ValueError(f"{name} needs float64; x64 is off; call it inside `with jax.enable_x64(True):`")
