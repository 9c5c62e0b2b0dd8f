"""The pair approximation of the supermarket model on k-regular graphs at d = 2: closed equations for neighbouring pairs.

y_ij is the fraction of (vertex, neighbour) pairs with i and j customers; the lengths of a vertex's neighbours are taken as
independent given its own. With a(i, l) = 1 for i < l, 1/2 for i = l and 0 otherwise, x_i = sum_j y_ij and
m_i = sum_l y_il a(i, l)/x_i, a pair (i, j) goes to (i + 1, j) at rate (2 lambda/k)(a(i, j) + (k - 1) m_i) and, for i > 0,
to (i - 1, j) at rate 1; the same in j by symmetry.

Source: Gast 2015, "The power of two choices on graphs: the pair-approximation is accurate". At small k it is far better
than the mean field of the complete graph, to which it tends as k grows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from . import _check, ode
from .ensemble import Result

_MOST = 64       # levels: their square is the number of equations
_EDGE = 1e-12    # fraction at the last level that ends the search for levels


@dataclass(frozen=True)
class PairApproximation(Result):
    """The pair approximation: at times `times` (time,), `tail` (time, level) and `mean_queue_length` (time,) per vertex; or,
    with times None, its fixed point, (level,) and a number. `edge` is the largest fraction at the last level kept."""

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"times": ("time",), "tail": ("time", "level"), "mean_queue_length": ("time",)}
    json_keys: ClassVar[tuple[str, ...]] = ("times", "tail", "mean_queue_length", "edge")

    times: np.ndarray | None
    tail: np.ndarray
    mean_queue_length: Any
    edge: float

    def coordinates(self) -> dict[str, Any]:
        """Labels of the dimensions; a fixed point has one time, infinity."""
        levels = {"level": np.arange(1, self.tail.shape[-1] + 1)}
        return levels | {"time": np.array([np.inf]) if self.times is None else self.times}

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` with dims time (infinity for a fixed point) and level."""
        return Result.to_xarray(dataclasses.replace(
            self, times=self.coordinates()["time"], tail=np.atleast_2d(self.tail),
            mean_queue_length=np.atleast_1d(self.mean_queue_length)))


def pair_approximation(k: int, arrival_rate: float, ts: Any = None, *, levels: int | None = None) -> PairApproximation:
    """The pair approximation on a k-regular graph at d = 2: its path from the empty system, or its fixed point.

    Args:
      k: neighbours of every vertex, >= 1. arrival_rate: lambda at each vertex, in units of the service rate.
      ts: times (time,), >= 0, increasing; None for the fixed point, which needs lambda < 1.
      levels: lengths 0..levels - 1 are kept and arrivals beyond are dropped; None: doubled until the last level holds less
        than 1e-12 of the vertices (64 levels at most).

    Returns a PairApproximation. Raises ValueError for bad input or where 64 levels are not enough.
    Source: Gast 2015, as above; the model: Budhiraja, Mukherjee and Wu, arXiv:1712.07607.
    """
    k = _check.integer("k", k, 1, 2**31 - 1, "it is the number of neighbours of a vertex")
    rate = _check.real("arrival_rate", arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per vertex")
    if ts is None and rate >= 1:
        raise ValueError(f"the fixed point of the pair approximation needs arrival_rate < 1; got {rate:g}; give times ts instead")
    times = None if ts is None else _check.times(ts)
    most = _MOST if levels is None else _check.integer("levels", levels, 2, _MOST, "its square is the number of equations")
    size = 16 if levels is None else most
    parameters = (float(k), rate)
    while True:
        y = _fixed_point(size, parameters) if times is None else _path(size, parameters, times)
        x = y.reshape(*y.shape[:-1], size, size).sum(axis=-1)
        edge = float(x[..., -1].max())
        if levels is not None or edge <= _EDGE:
            break
        if size == most:
            raise ValueError(f"the pair approximation must fit in {_MOST} levels; got {edge:.2g} of the vertices at the last one "
                             f"for k={k}, arrival_rate={rate:g}; lower arrival_rate, or give levels to truncate there")
        size *= 2
    tail = np.flip(np.cumsum(np.flip(x, -1), axis=-1), -1)[..., 1:]
    mean = tail.sum(axis=-1)
    return PairApproximation({"k": k, "arrival_rate": rate, "levels": size}, times, tail,
                             float(mean) if times is None else mean, edge)


def _drift(y: jax.Array, t: Any, parameters: Any) -> jax.Array:
    """dy/dt of the flattened pair fractions, (levels**2,)."""
    size = round(y.shape[0] ** 0.5)
    y = y.reshape(size, size)
    # both terms, though y is symmetric: the Jacobian must not lose what is not
    return (_first_moves(y, parameters) + _first_moves(y.T, parameters).T).reshape(-1)


def _first_moves(y: jax.Array, parameters: Any) -> jax.Array:
    """What arrivals and services at the first vertex of a pair add to y (levels, levels), per unit time."""
    k, rate = parameters
    size = y.shape[0]
    i, j = jnp.arange(size)[:, None], jnp.arange(size)[None]
    a = jnp.where(i < j, 1.0, jnp.where(i == j, 0.5, 0.0))
    x = jnp.sum(y, axis=1)
    kept = x >= 1e-13
    m = jnp.where(kept, jnp.sum(y * a, axis=1) / jnp.where(kept, x, 1.0), 0.0)
    up = jnp.where(i < size - 1, 2 * rate / k * (a + (k - 1) * m[:, None]) * y, 0.0)
    down = jnp.where(i > 0, y, 0.0)
    return jnp.pad(up, ((1, 0), (0, 0)))[:-1] - up + jnp.pad(down, ((0, 1), (0, 0)))[1:] - down


def _path(size: int, parameters: Any, times: np.ndarray, method: str = "odeint") -> np.ndarray:
    empty = np.zeros(size * size)
    empty[0] = 1.0
    step = ode.SPACING[method] / (4 * (1 + 2 * parameters[1]))  # rates of leaving a pair: at most 4 lambda up and 2 down
    return ode.solve(_drift, empty, times, parameters, step=step, check=_wrong, method=method)


def _wrong(y: np.ndarray) -> str | None:
    off = max(float(np.max(np.abs(y.sum(axis=-1) - 1))), float(-y.min()))
    return f"pair fractions are off by {off:.2g}" if off > 1e-8 else None


def _fixed_point(size: int, parameters: Any) -> np.ndarray:
    """Newton's method from where the flow is after some time, the total held at 1."""
    y = _path(size, parameters, np.array([50.0]), "rk4")[0]
    with jax.enable_x64(True):
        for _ in range(30):
            step, residual = map(np.asarray, _newton(jnp.asarray(y), jax.tree.map(np.float64, parameters)))
            if residual < 1e-14:
                break
            y = y + step
    if not (residual <= 1e-12 and _wrong(y[None]) is None):
        raise ValueError(f"the pair approximation must reach |drift| <= 1e-12; got {residual:.2g} for k={parameters[0]:g}, "
                         f"arrival_rate={parameters[1]:g}; lower arrival_rate, or give times ts")
    return y


@jax.jit
def _newton(y: jax.Array, parameters: Any) -> tuple[jax.Array, jax.Array]:
    """The Newton step and the residual. The drift keeps the total, so the Jacobian is singular: adding the total to the first
    equation mends that, and the step then has total 0."""
    drift = _drift(y, 0.0, parameters)
    jacobian = jax.jacfwd(_drift)(y, 0.0, parameters)
    return jnp.linalg.solve(jacobian.at[0].add(1.0), -drift), jnp.max(jnp.abs(drift))
