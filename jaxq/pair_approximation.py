"""The pair approximation of the supermarket model on k-regular graphs at d = 2: closed equations for neighbouring pairs.

y_ij is the fraction of (vertex, neighbour) pairs with i and j customers; the lengths of a vertex's neighbours are taken as
independent given its own. With a(i, l) = 1 for i < l, 1/2 for i = l and 0 otherwise, x_i = sum_j y_ij and
m_i = sum_l y_il a(i, l)/x_i, a pair (i, j) goes to (i + 1, j) at rate (2 lambda/k)(a(i, j) + (k - 1) m_i) and, for i > 0,
to (i - 1, j) at rate 1; the same in j by symmetry.

Source: Gast 2015, "The power of two choices on graphs: the pair-approximation is accurate". At small k it is far better
than the mean field of the complete graph, to which it tends as k grows. `ode` integrates paths; fixed points are found in
NumPy, where nothing compiles.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check, ode
from .ensemble import Result

_MOST = 64         # levels: their square is the number of equations
_EDGE = 1e-12      # fraction at the last level that ends the search for levels
_ITERATIONS = 100  # of Newton's method; some ten or twenty are enough
# pivots on the diagonal: they keep the relative accuracy of fractions far below the rounding of 1
_PIVOTS: Any = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


@dataclass(frozen=True)
class PairApproximation(Result):
    """The pair approximation of a k-regular graph, lengths as fractions of its vertices.

    times: (time,), in mean service times; None: a fixed point, and the next two without the dimension time.
    tail: (time, level), vertices with at least 1, 2, ... customers. mean_queue_length: (time,), customers per vertex.
    edge: the largest fraction at the last level kept.

    Source: Gast 2015, as in `pair_approximation`.

    Example::

        >>> found = jaxq.pair_approximation(4, 0.9)
        >>> round(float(found.tail[0]), 6), found.edge < 1e-12  # every customer is served once
        (0.9, True)
    """

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
      ts: times (time,), >= 0, strictly increasing, in mean service times; None for the fixed point, which needs lambda < 1.
      levels: lengths 0..levels - 1 are kept and arrivals beyond are dropped; None: doubled until the last level holds less
        than 1e-12 of the vertices (64 levels at most).

    Returns a PairApproximation: (time, level) and (time,), or (level,) and a number for the fixed point. Its `edge` tells the
    truncation; how far the approximation is from the graph has no bound.

    Raises ValueError for bad input, where 64 levels are not enough, and where the equations could not be solved.
    Source: Gast 2015, "The power of two choices on graphs: the pair-approximation is accurate"; the model: Budhiraja,
    Mukherjee and Wu, arXiv:1712.07607.

    Example, customers per vertex of degree 4, and on the complete graph::

        >>> round(jaxq.pair_approximation(4, 0.9).mean_queue_length, 4)
        2.5424
        >>> round(float(np.sum(0.9 ** (2.0 ** np.arange(1, 10) - 1))), 4)
        2.3527
    """
    k = _check.integer("k", k, 1, 2**31 - 1, "it is the number of neighbours of a vertex")
    rate = _check.real("arrival_rate", arrival_rate, 0.0, 1e6, open_low=True, hint="it is lambda per vertex")
    if ts is None and rate >= 1:
        raise ValueError(f"the fixed point of the pair approximation needs arrival_rate < 1; got {rate:g}; give times ts instead")
    times = None if ts is None else _check.times(ts)
    most = _MOST if levels is None else _check.integer("levels", levels, 2, _MOST, "its square is the number of equations")
    size = 16 if levels is None else most
    parameters = (float(k), rate)
    y = np.ones((1, 1))
    while True:
        y = _fixed_point(np.pad(y, (0, size - len(y))), parameters) if times is None else _path(size, parameters, times)
        x = y.sum(axis=-1)
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


def _drift(y: Any, t: Any, parameters: Any) -> Any:
    """dy/dt of the flattened pair fractions, (levels**2,), in NumPy or JAX as y is."""
    size = math.isqrt(y.shape[0])
    y = y.reshape(size, size)
    return (_first_moves(y, parameters) + _first_moves(y.T, parameters).T).reshape(-1)


def _first_moves(y: Any, parameters: Any) -> Any:
    """What arrivals and services at the first vertex of a pair add to y (levels, levels), per unit time."""
    up, down = _moves(y.shape[0])
    return up @ (_arrivals(y, parameters)[0] * y) + down @ y


def _moves(size: int) -> tuple[np.ndarray, np.ndarray]:
    """What one arrival and one service at a vertex of each length (columns) add to the lengths (rows), (levels, levels)."""
    return np.eye(size, k=-1) - np.eye(size), np.eye(size, k=1) - np.diag(1.0 * (np.arange(size) > 0))


def _arrivals(y: Any, parameters: Any) -> tuple[Any, Any]:
    """The rate r_ij of arrivals at the first vertex of a pair, and dr_ij/dy_il through m_i, [i, l], the same for every j."""
    k, rate = parameters
    size = y.shape[0]
    i = np.arange(size)[:, None]
    a = (i < i.T) + 0.5 * np.eye(size)
    x = y.sum(axis=1).reshape(size, 1)
    kept = 1.0 * (x >= 1e-13)  # of others m_i would be 0/0
    over = kept / (x * kept + 1.0 - kept)
    m = (y * a).sum(axis=1).reshape(size, 1) * over
    scale = 2 * rate / k * (i < size - 1)
    return scale * (a + (k - 1) * m), scale * (k - 1) * (a - m) * over


def _path(size: int, parameters: Any, times: np.ndarray) -> np.ndarray:
    empty = np.zeros(size * size)
    empty[0] = 1.0
    step = ode.SPACING["odeint"] / (4 * (1 + 2 * parameters[1]))  # rates of leaving a pair: at most 4 lambda up and 2 down
    return ode.solve(_drift, empty, times, parameters, step=step, check=_wrong).reshape(-1, size, size)


def _wrong(y: np.ndarray) -> str | None:
    off = max(float(np.max(np.abs(y.sum(axis=-1) - 1))), float(-y.min()))
    return f"pair fractions are off by {off:.2g}" if off > 1e-8 else None


def _fixed_point(y: np.ndarray, parameters: Any) -> np.ndarray:
    """Newton's method from y, (levels, levels), on the pairs i <= j: y is symmetric.

    At first its steps are those of the implicit Euler method, (1/tau - J)^-1 drift: they follow the flow, tau growing, and
    one that would lead below 0 is done again with a smaller tau. For there are other roots below 0.
    """
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    size = len(y)
    pairs = np.triu_indices(size)
    half = np.zeros((size, size), int)
    half[pairs] = np.arange(pairs[0].size)
    half = np.maximum(half, half.T)  # where a pair stands among those with i <= j
    # the drift keeps the total, so that J is singular: taking the total off one equation mends that, and steps have total 0
    total = csc_array((np.bincount(half.ravel()), (np.zeros(pairs[0].size, int), np.arange(pairs[0].size))),
                      shape=(pairs[0].size,) * 2)
    u, tau, drift = y[pairs], 1.0, np.full(1, np.inf)
    for _ in range(_ITERATIONS):
        drift = _drift(u[half].reshape(-1), 0.0, parameters).reshape(size, size)[pairs]
        if np.max(np.abs(drift)) < 1e-14:
            break
        matrix = _jacobian(u[half], parameters, half) - total - eye_array(u.size) / tau
        after = u - splu(csc_array(matrix), **_PIVOTS).solve(drift)
        if after.min() < -1e-13:
            tau /= 16
        else:
            u, tau = after, 4 * tau
    y, residual = u[half], float(np.max(np.abs(drift)))
    if not (residual <= 1e-12 and _wrong(y.reshape(1, -1)) is None):
        raise ValueError(f"the pair approximation must reach |drift| <= 1e-12; got {residual:.2g} for k={parameters[0]:g}, "
                         f"arrival_rate={parameters[1]:g}; lower arrival_rate, or give times ts")
    return y


def _jacobian(y: np.ndarray, parameters: Any, half: np.ndarray) -> Any:
    """d drift/d y on the pairs i <= j, which `half` (levels, levels) counts; sparse."""
    from scipy.sparse import bsr_array, csr_array, eye_array, kron

    size = len(y)
    rates, slopes = _arrivals(y, parameters)
    blocks = rates[:, :, None] * np.eye(size) + y[:, :, None] * slopes[:, None]  # of d(r_ij y_ij)/dy_il: [i, j, l]
    leaving = bsr_array((blocks, np.arange(size), np.arange(size + 1)), shape=(size**2, size**2))
    up, down = (kron(csr_array(move), eye_array(size)) for move in _moves(size))
    moves = csr_array(up @ leaving + down)
    spread = csr_array((np.ones(size**2), (np.arange(size**2), half.ravel())))
    i, j = np.triu_indices(size)
    return (moves[i * size + j] + moves[j * size + i]) @ spread
