"""The mean field of a population model: its ODE dx/dt = drift(x), and the fixed point drift(x) = 0.

The limit n -> infinity of the density x = counts/n (Kurtz 1970). The drift is the model's own `rates` times `jumps`;
nothing here knows any particular system. `mean_field` and `fixed_point` give float64 numbers; `mean_field_path` and
`newton_step` are pure JAX, to be differentiated in the model's parameters (a model is a pytree) inside
`with jax.enable_x64(True):`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from . import _check, ode
from .chain import Model, PopulationModel
from .ensemble import Result, describe
from .truncation import MOST_LEVELS as _MOST_LEVELS
from .truncation import bad_path, bad_tail, doubled, initial_density, leak, level_count, truncated

_TRUNCATION = 1e-9   # truncation error that ends the search for levels
_RESIDUAL = 1e-10    # largest |drift| of an accepted fixed point
_RELAXATION = (0.0, 50.0, 500.0, 5000.0)  # times to follow the flow before Newton's method, until one is enough


@dataclass(frozen=True)
class MeanField(Result):
    """Mean field on a time grid: `times` (time,), `tail` (time, level) fractions of servers with at least i customers,
    `mean_queue_length` (time,) per server, and `truncation_error`, the largest change in either when the levels double.

    Example::

        >>> result = jaxq.mean_field(jaxq.Supermarket(100, 2, 2/3, buffer=1), [0.0, 20.0], method="rk4")
        >>> result.mean_queue_length.round(4).tolist(), result.truncation_error
        ([0.0, 0.5], 0.0)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"times": ("time",), "tail": ("time", "level"),
                                                  "mean_queue_length": ("time",)}
    json_keys: ClassVar[tuple[str, ...]] = ("times", "tail", "mean_queue_length", "truncation_error")

    times: np.ndarray
    tail: np.ndarray
    mean_queue_length: np.ndarray
    truncation_error: float


@dataclass(frozen=True)
class FixedPoint(Result):
    """Fixed point of the mean field: `tail` (level,), `mean_queue_length` per server, `density` (state,) and `residual`,
    the largest |drift| there (per unit time).

    Example::

        >>> point = jaxq.fixed_point(jaxq.Supermarket(100, 2, 2/3, buffer=1))  # x = lambda (1 - x**2)
        >>> round(point.mean_queue_length, 6), point.residual < 1e-10
        (0.5, True)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"tail": ("level",), "density": ("state",)}
    json_keys: ClassVar[tuple[str, ...]] = ("tail", "mean_queue_length", "residual")

    tail: np.ndarray
    density: np.ndarray
    mean_queue_length: float
    residual: float


def mean_field(model: Model, ts: Any, *, initial: Any = None, finite_n: bool = False, levels: int | None = None,
               method: str = "odeint") -> MeanField:
    """The mean-field path dx/dt = drift(x) from `initial` at time 0.

    Args:
      model: a PopulationModel; its n is ignored unless `finite_n`.
      ts: times (time,), >= 0, strictly increasing, in the unit of the model's rates.
      initial: None (empty), densities (floats; for the supermarket model S_1 >= S_2 >= ...), or counts (integers, divided
        by n). Where states are levels a short one ends in zeros.
      finite_n: use the drift of the chain with n servers, rates(x, 1/n), instead of its limit.
      levels: solve with this many levels, and with twice as many to measure the truncation error; None: double them until
        the error is below 1e-9.
      method: "odeint" (adaptive) or "rk4" (fixed step).

    Returns a MeanField, its numbers from the solution with twice the levels.

    Raises ValueError for bad arguments, and for a model without a closed mean field (server by server on a graph).
    Source: Mitzenmacher 2001, doi:10.1109/71.963420; Kurtz 1970, doi:10.2307/3212147.

    Example::

        >>> model = jaxq.Supermarket(100, 2, 2/3, buffer=1)  # x' = lambda (1 - x**2) - x
        >>> jaxq.mean_field(model, [0.0, 1.0, 20.0], method="rk4").tail.round(4).tolist()
        [[0.0], [0.3873], [0.5]]
    """
    ts = _check.times(ts)
    _check.choice("method", method, ode.METHODS)
    model, start = initial_density(_population(model, "mean_field"), initial, levels)
    inverse_n = 1.0 / model.n if _check.flag("finite_n", finite_n) else 0.0
    slack = 1e-8 + inverse_n  # at finite n the drift itself may lead below 0, by less than one server

    def follow(model: PopulationModel, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        states = ode.solve(_drift, start, ts, (model, inverse_n), method=method,
                           step=_step(model, start, inverse_n, method), check=lambda x: bad_path(model, x, slack))
        tail = np.asarray(model.tail(states.T), np.float64).T
        return tail, tail.sum(axis=1)

    tail, mean = follow(model, start)
    error, least = 0.0, level_count(model)
    while truncated(model):
        model, start = doubled(model, start)
        (coarse, coarse_mean), (tail, mean) = (tail, mean), follow(model, start)
        least = coarse.shape[1]
        error = float(max(np.max(np.abs(tail[:, :least] - coarse)), np.max(np.abs(mean - coarse_mean))))
        if levels is not None or error <= _TRUNCATION:
            break
        if 2 * least >= _MOST_LEVELS:
            raise ValueError(f"mean_field must fit in {least} levels up to t = {ts[-1]:g}; got a truncation error of "
                             f"{error:.2g}; use an earlier end, or levels={least} to accept that error")
    attributes = {"model": describe(model), "method": method, "finite_n": finite_n, "levels": least}
    return MeanField(attributes, ts, tail[:, :least], mean, error)


def mean_field_path(model: PopulationModel, ts: Any, initial: Any = None, *, method: str = "odeint",
                    step: float | None = None, finite_n: bool = False) -> jax.Array:
    """Densities (time, states) of the mean field, pure JAX, at the levels the model has; `model.tail(x.T)` are its tails.

    Differentiable in the model's leaves and in `initial`: reverse mode with "odeint", both modes with "rk4".

    Args:
      model: a PopulationModel, with the levels it has. ts: concrete times, as in `mean_field`.
      initial: densities (states,) or None (empty). method, finite_n: as in `mean_field`.
      step: internal time step; None: from the Jacobian at this model, which jit and vmap hide: there give it
        (for the supermarket model 0.1/d serves every lambda <= 1).

    Raises ValueError where x64 is off, or `step` is needed.

    Example::

        >>> import jax
        >>> from jaxq.mean_field import mean_field_path
        >>> mean = lambda rate: mean_field_path(jaxq.Supermarket(100, 2, rate, buffer=1), [10.0], method="rk4").sum()
        >>> with jax.enable_x64(True):
        ...     round(float(jax.grad(mean)(2/3)), 4)  # at rest (1 - x**2)/(1 + 2 lambda x), x = 1/2
        0.45
    """
    _population(model, "mean_field_path")
    inverse_n = 1.0 / model.n if finite_n else 0.0
    if step is None or initial is None:
        try:
            seen = jax.tree.map(_value, model)
            start = (initial_density(seen, None, None)[1] if initial is None
                     else np.asarray(jax.tree.map(_value, initial), np.float64))
            step = step or _step(seen, start, _value(inverse_n), method)
        except jax.errors.ConcretizationTypeError:
            raise ValueError("mean_field_path needs step and initial where jit or vmap hides the model's numbers; "
                             f"got step={step!r}; give both (0.1/d serves the supermarket model)") from None
        initial = start if initial is None else initial
    return ode.path(_drift, initial, ts, (model, inverse_n), step=step, method=method)


def fixed_point(model: Model, *, levels: int | None = None) -> FixedPoint:
    """The fixed point of the mean field, by Newton's method on the model's drift from `model.guess()`.

    The Jacobian is exact (autodiff, float64). A guess from which Newton's method fails is first relaxed by the flow. Without
    `levels` they are doubled until the last one is empty, and the flow into those beyond stops, to 1e-14. n is ignored.

    Raises ValueError for an overloaded system (lambda >= 1 without a buffer), a residual above 1e-10, or a model without
    a closed mean field. Source of the supermarket model's: Mitzenmacher 2001, doi:10.1109/71.963420.

    Example::

        >>> jaxq.fixed_point(jaxq.Supermarket(100, 2, 0.5)).tail[:3].round(4).tolist()  # lambda**(2**i - 1)
        [0.5, 0.125, 0.0078]
    """
    model = _population(model, "fixed_point")
    if levels is not None:
        model = model.at_levels(_check.integer("levels", _check.integer("levels", levels, 1), 1, _MOST_LEVELS))
    while True:
        guess = _guess(model)
        last = float(model.tail(guess)[-1])
        grows = levels is None and truncated(model)
        if truncated(model) and not last < 1:
            raise ValueError("fixed_point needs a load below 1 of its model (arrival_rate < 1 per server of rate 1) or a finite "
                             f"buffer; got {_check.shown(model)}; lower arrival_rate or give a buffer")
        if not (grows and last > 1e-14):
            density, residual = _newton(model, guess)
            tail = np.asarray(model.tail(density), np.float64)
            if not (grows and max(tail[-1], leak(model, density)) > 1e-14):
                return FixedPoint({"model": describe(model)}, tail, density, float(tail.sum()), residual)
        if 2 * level_count(model) > _MOST_LEVELS:
            raise ValueError(f"fixed_point must fit in {_MOST_LEVELS} levels; got {_check.shown(model)}, too near its full load; "
                             "lower arrival_rate, or give levels to truncate there")
        model = model.at_levels(2 * level_count(model))


def newton_step(x: jax.Array, model: PopulationModel) -> jax.Array:
    """x - J(x)^-1 drift(x) (states,), x (states,) a density, pure JAX; inside x64. At a fixed point it returns x, and its
    derivatives in the model's leaves with x held are those of the fixed point itself (implicit function theorem; first order
    only). Nothing is checked: a singular J gives nan or nonsense.

    Example::

        >>> import jax
        >>> from jaxq.mean_field import newton_step
        >>> point = lambda rate: newton_step(jax.numpy.array([0.5]), jaxq.Supermarket(100, 2, rate, buffer=1)).sum()
        >>> with jax.enable_x64(True):
        ...     round(float(jax.jit(jax.grad(point))(2/3)), 6)  # (1 - x**2)/(1 + 2 lambda x), x = 1/2
        0.45
    """
    drift, jacobian = model.drift(x), jax.jacfwd(model.drift)(x)
    return x - jnp.linalg.solve(jacobian, drift)


def _newton(model: PopulationModel, guess: np.ndarray) -> tuple[np.ndarray, float]:
    residual, problem = np.inf, None
    for horizon in _RELAXATION:
        x = guess
        if horizon:
            x = ode.solve(_drift, guess, np.array([horizon]), (model, 0.0), step=_step(model, guess, 0.0, "odeint"))[0]
        with jax.enable_x64(True):
            for _ in range(30):
                after, before = map(np.asarray, _iterate(jnp.asarray(x, jnp.float64), jax.tree.map(np.float64, model)))
                if not before > 1e-13:  # there already, where the Jacobian may be singular, as with neutral directions
                    break
                x = after
            residual = float(_iterate(jnp.asarray(x), jax.tree.map(np.float64, model))[1])
        problem = bad_tail(model, x[:, None], 1e-8) if np.all(np.isfinite(x)) else "it is not finite"
        if residual <= _RESIDUAL and problem is None:
            return x, residual
    raise ValueError(f"fixed_point must reach |drift| <= {_RESIDUAL:g} with tails in [0, 1]; got {residual:.3g}"
                     f"{' and ' + problem if problem else ''} after following the flow to t = {_RELAXATION[-1]:g}; "
                     "check the model's rates, or give it a better guess()")


@jax.jit
def _iterate(x: jax.Array, model: PopulationModel) -> tuple[jax.Array, jax.Array]:
    return newton_step(x, model), jnp.max(jnp.abs(model.drift(x)))


def _drift(x: jax.Array, t: Any, parameters: tuple[PopulationModel, Any]) -> jax.Array:
    model, inverse_n = parameters
    return model.drift(x, inverse_n)


def _step(model: PopulationModel, start: np.ndarray, inverse_n: float, method: str) -> float:
    """Internal spacing from ||J|| between the start and the guess."""
    weights = np.linspace(0.0, 1.0, 5)[:, None]
    states = (1 - weights) * start + weights * np.clip(_guess(model), 0.0, 1.0)
    return ode.SPACING[method] / max(ode.jacobian_norm(_drift, states, (model, inverse_n)), 1e-6)


def _guess(model: PopulationModel) -> np.ndarray:
    with np.errstate(all="ignore"):  # lambda**(d**i) beyond the floats, in either direction
        return np.asarray(model.guess(), np.float64)


def _population(model: Any, name: str) -> PopulationModel:
    if not isinstance(model, PopulationModel):
        raise ValueError(f"{name} needs a population model, one with jumps and rates; got {type(model).__name__}, whose "
                         "occupancy is not closed; use jaxq.Supermarket for the mean field of the complete graph, "
                         "or the pair approximation")
    return model


def _value(leaf: Any) -> Any:
    """A leaf's number, also inside grad and jvp."""
    return float(jax.lax.stop_gradient(leaf)) if _check.is_traced(leaf) else leaf
