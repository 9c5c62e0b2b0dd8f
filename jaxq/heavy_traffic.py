"""The supermarket model in heavy traffic: T_i = eta (1 - S_i) at lambda = 1 - beta/eta, and its limit as eta -> infinity.

Equation numbers are those of Eschenfeldt and Gamarnik, arXiv:1610.03522. Level 1 is first in every array; T_0 = 0. Times are
in mean service times. Results are float64 whatever the global x64 flag; `finite_eta_path` is pure JAX.

The nonlinear systems are written in H_i = eta (1 - S_i**d) = d (T_i - g(T_i)), g the paper's correction, so that (7) reads
T_i' = -lambda (H_i - H_{i-1}) + T_{i+1} - T_i; H = -eta expm1(d log1p(-T/eta)) keeps its digits at any eta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from . import _check, ode
from .ensemble import Result
from .limit_system import MOST_LEVELS, driven, linear, nonlinear, split, system
from .martingale import martingale
from .rescaling import check_d, fixed_point_T, pi, profile, rate, start_profile, stopping_time, tail_counts, theorem5_bound

__all__ = ["Limit", "finite_eta", "finite_eta_path", "fixed_point_T", "green", "integral_equation", "limit", "martingale",
           "pi", "start_profile", "stopping_time", "tail_counts", "theorem5_bound"]

_CHUNK = 2048  # RK4 steps by one compiled call


@dataclass(frozen=True)
class Limit(Result):
    """T on a time grid: `times` (time,), `T` (time, level), and `truncation_error`, the largest change in any T_i, relative
    to max(1, |T_i|), when the levels kept above the printed ones double. Times are in mean service times.

    Example::

        >>> result = jaxq.heavy_traffic.limit([0.0, 100.0], [2.0, 4.0, 8.0, 16.0], 2, method="exact")
        >>> result.T[-1].round(6).tolist(), result.truncation_error < 1e-9
        ([1.0, 3.0, 7.0, 15.0], True)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"times": ("time",), "T": ("time", "level")}
    json_keys: ClassVar[tuple[str, ...]] = ("times", "T")

    times: np.ndarray
    T: np.ndarray
    truncation_error: float


def green(t: float, rows: Any, cols: Any, d: int) -> np.ndarray:
    """Green function of (10), (rows, cols): T_i(t) = pi_i + sum_j G_ij(t) (T_j(0) - pi_j), pi any fixed point.

    G_ij(t) = d**((i-j)/2) exp(-(d+1) t) [I_{i-j}(2 sqrt(d) t) - I_{i+j}(2 sqrt(d) t)]: the probability that a walk with
    rates 1 up and d down, killed at 0, is at j at time t from i. Scaled Bessel functions and logarithms, no overflow.

    Args: t >= 0, in mean service times; rows, cols: levels i and j, integers >= 1. Raises ValueError for anything else.
    Source: arXiv:1610.03522.

    Example::

        >>> pi = jaxq.heavy_traffic.pi(39, 2, 1.0)  # sum_j G_ij pi_j = pi_i
        >>> (jaxq.heavy_traffic.green(1.0, [1, 2, 3], np.arange(1, 40), 2) @ pi).round(6).tolist()
        [1.0, 3.0, 7.0]
    """
    from scipy.special import ive

    t, d = _check.real("t", t, 0.0), check_d(d)
    i, j = _level_numbers("rows", rows)[:, None], _level_numbers("cols", cols)[None, :]
    if t == 0:
        return (i == j).astype(np.float64)
    z = 2 * math.sqrt(d) * t
    bessel = ive(np.abs(i - j), z) - ive(i + j, z)
    with np.errstate(divide="ignore"):
        return np.exp((i - j) / 2 * math.log(d) - (math.sqrt(d) - 1) ** 2 * t + np.log(np.maximum(bessel, 0)))


def limit(ts: Any, initial: Any, d: int, *, above: str = "fixed-point", levels: int | None = None,
          method: str = "ode") -> Limit:
    """The heavy-traffic limit (10): T_i' = T_{i+1} - (d+1) T_i + d T_{i-1}, T_0 = 0.

    Args:
      ts: times (time,), >= 0, strictly increasing, in mean service times.
      initial: T_1(0), T_2(0), ... (level,), any finite numbers, not necessarily monotone.
      above: levels above the last given start by T_{i+1} = (d+1) T_i - d T_{i-1} ("fixed-point": pi stays put, data that
        end in two zeros end in zeros), or at "zero".
      levels: levels returned; None: those of `initial`.
      method: "ode", or "exact" by the Green function (the faster one for d = 1 far out, where thousands of levels matter).

    By linearity T = b (d**i - 1)/(d - 1) + w with the b that fits the top of the data: that part is fixed, and w starts at
    a constant c above the data, so it stays bounded while T grows like d**i. w is kept on so many more levels that the walk
    of `green` gets from the printed ones to the edge with probability below 1e-15.

    Raises ValueError for bad arguments, and where d**levels is beyond the floats. Source: arXiv:1610.03522, (10).

    Example::

        >>> result = jaxq.heavy_traffic.limit([0.0, 100.0], [2.0, 4.0, 8.0, 16.0], 2, method="exact")  # ends in pi, (16)
        >>> result.T.round(6).tolist()
        [[2.0, 4.0, 8.0, 16.0], [1.0, 3.0, 7.0, 15.0]]
    """
    ts, d = _check.times(ts), check_d(d)
    _check.choice("method", method, ("ode", "exact"))
    start, fixed, c = split(initial, d, above, levels)
    printed, more = fixed.size, _margin(d, ts[-1])

    top = _round_up(start.size + more)
    w = np.concatenate([start, np.full(2 * top - start.size, c)])

    def solution(top: int) -> np.ndarray:
        if method == "exact":
            rows, cols = np.arange(1, printed + 1), np.arange(1, top + 1)
            return fixed + np.stack([green(float(t), rows, cols, d) @ w[:top] for t in ts])
        free = np.arange(w.size) < top
        return fixed + ode.solve(linear, w, ts, (d, c, free), step=_step(d, "odeint"))[:, :printed]

    coarse, fine = solution(top), solution(2 * top)
    attributes = {"system": "limit (10)", "d": d, "method": method, "above": above, "levels": top}
    return Limit(attributes, ts, fine, _difference(coarse, fine))


def finite_eta(ts: Any, initial: Any, d: int, beta: float, eta: float, *, levels: int | None = None) -> Limit:
    """The finite-eta system: (7) with y = 0, the mean field at lambda = 1 - beta/eta written in T, by guarded odeint.

    Args:
      ts: times (time,), >= 0, strictly increasing, in mean service times.
      initial: T(0) (level,), nondecreasing in [0, eta]; above it nobody is, T = eta.
      levels: levels returned; None: those of `initial`. As many more are solved as the truncation T = eta needs.

    Raises ValueError for bad arguments, and where 8192 levels do not hold it. Source: arXiv:1610.03522, (7).

    Example::

        >>> path = jaxq.heavy_traffic.finite_eta([0.0, 200.0], [10.0], 2, 1.0, 10.0, levels=3)  # from empty, T = eta
        >>> path.T[-1].round(3).tolist(), jaxq.heavy_traffic.fixed_point_T(3, 2, 1.0, 10.0).round(3).tolist()
        ([1.0, 2.71, 5.217], [1.0, 2.71, 5.217])
    """
    ts, d = _check.times(ts), check_d(d)
    start, load = profile("initial", initial, eta), rate(beta, None, eta)
    printed = start.size if levels is None else _check.integer("levels", levels, 1, MOST_LEVELS)

    def solution(top: int, size: int) -> np.ndarray:
        T, free = np.concatenate([start, np.full(size - start.size, float(eta))]), np.arange(size) < top
        return ode.solve(nonlinear, T, ts, (d, load, eta, free), step=_step(d, "odeint"),
                         check=lambda T: _leaves_range(T, eta))[:, :printed]

    top, coarse, fine = _enough(solution, max(start.size, printed) + 8)
    attributes = {"system": "finite eta (7)", "d": d, "beta": beta, "eta": eta, "levels": top}
    return Limit(attributes, ts, fine, _difference(coarse, fine))


def finite_eta_path(ts: Any, initial: Any, d: int, beta: Any, eta: Any, *, step: float | None = None,
                    method: str = "odeint") -> jax.Array:
    """`finite_eta` as pure JAX, (time, level), differentiable in initial, beta and eta inside `with jax.enable_x64(True):`.

    The levels are those of `initial` (level,); above them T = eta, so give enough. method "odeint": reverse mode; "rk4": both
    modes. step: internal time step; None: from a bound on the Jacobian.

    Raises ValueError where x64 is off, and for a bad d, ts, method or step; T, beta and eta are not checked.

    Example::

        >>> import jax  # one level: at rest T = eta (1 - x) with x = lambda (1 - x**2), here 1/2
        >>> path = lambda beta: jaxq.heavy_traffic.finite_eta_path([10.0], [3.0], 2, beta, 3.0, method="rk4")[-1, 0]
        >>> with jax.enable_x64(True):
        ...     round(float(jax.jit(jax.grad(path))(1.0)), 4)
        0.45
    """
    step = _step(check_d(d), _check.choice("method", method, ode.METHODS)) if step is None else step
    return ode.path(nonlinear, initial, ts, (d, 1 - beta / eta, eta, 1.0), step=step, method=method)


def integral_equation(ts: Any, initial: Any, d: int, *, eta: float = math.inf, beta: float | None = None,
                      arrival_rate: float | None = None, forcing: Any = None, above: str = "fixed-point",
                      levels: int | None = None, step: float | None = None) -> Limit:
    """The integral equation (7)-(8), with forcing y and correction g(x) = (eta/d)[(1 - x/eta)**d - 1] + x:

    T_i(t) = T_i(0) + y_i(t) - lambda d int_0^t [T_i - T_{i-1} + g(T_{i-1}) - g(T_i)] ds + int_0^t [T_{i+1} - T_i] ds.

    Args:
      eta: scale of T. Infinite: the linear limit, g = 0 and lambda = 1, with levels above `initial` as `above` says (see
        `limit`). Finite: give beta or arrival_rate = 1 - beta/eta; T = eta above `initial`, nondecreasing in [0, eta].
      forcing: None; a pair (times, values) with values (time, level), linear between its times; or a function of t that
        returns (level,). y(0) = 0, and y = 0 above its levels. It need not be differentiable: the equation is solved for
        X = T - y, X' = F(X + y). A path with jumps, saved on a grid, becomes a ramp over the grid interval that holds the
        jump, so the result errs by about (jump) ||F'|| (interval), between saved times by the jump itself.
      levels: levels returned; None: those of `initial`.
      step: internal time step; None: 0.25/||J||. `attributes["step_error"]` is what halving it changed.

    RK4 with fixed steps that end at the forcing's times; the numbers returned are those of the halved step. Times are in mean
    service times. Raises ValueError for bad arguments, a step too long, and where 8192 levels do not hold it.
    Source: arXiv:1610.03522.

    Example::

        >>> pushed = jaxq.heavy_traffic.integral_equation([100.0], [0.0, 0.0], 2, forcing=lambda t: [t])
        >>> pushed.T.round(6).tolist()  # at rest 1 + T_2 - 3 T_1 = 0 and T_{i+1} - 3 T_i + 2 T_{i-1} = 0
        [[0.5, 0.5]]
    """
    ts, d = _check.times(ts), check_d(d)
    start, fixed, rhs, parameters, edge = system(initial, d, eta, beta, arrival_rate, above, levels)
    step = _step(d, "rk4", parameters[1] if rhs is nonlinear else 1.0) if step is None else step
    breaks, width, y = ode.read_forcing(forcing, ts[-1])
    printed, least = fixed.size, max(start.size, fixed.size, width)
    grid, picked = ode.fine_grid(ts, _check.real("step", step, 0.0, open_low=True), breaks)
    halved = np.insert(grid, np.arange(1, grid.size), (grid[:-1] + grid[1:]) / 2)

    def solution(top: int, size: int, grid: np.ndarray = grid, picked: np.ndarray = picked) -> np.ndarray:
        X = np.concatenate([start, np.full(size - start.size, edge)])
        given = jax.tree.map(np.float64, (*parameters, np.arange(size) < top))
        out = np.repeat(X[None], picked.size, axis=0)
        for first in range(0, grid.size - 1, _CHUNK):
            times = grid[first: first + _CHUNK + 1]
            inputs = tuple(y(t, size) for t in (times[:-1], (times[:-1] + times[1:]) / 2, times[1:]))
            with jax.enable_x64(True):
                states = np.asarray(driven(rhs, X, inputs, np.diff(times), given))
            inside = (picked > first) & (picked <= first + _CHUNK)
            out[inside], X = states[picked[inside] - first], states[-1]
        T = fixed + (out + y(grid[picked], size))[:, :printed]
        if not np.all(np.isfinite(T)):
            raise ValueError(f"step must be about {_step(d, 'rk4'):.2g}, or T overflows; got {step:g}; use a smaller one")
        return T

    if rhs is nonlinear:
        top, coarse, fine = _enough(solution, least + 8)
    else:
        top = _round_up(least + _margin(d, ts[-1]))
        coarse, fine = solution(top, 2 * top), solution(2 * top, 2 * top)
    best = solution(2 * top, 2 * top, halved, 2 * picked)
    attributes = {"system": "integral equation (7)", "d": d, "eta": eta, "levels": top, "step": step,
                  "step_error": _difference(fine, best)}
    return Limit(attributes, ts, best, _difference(coarse, fine))


def _margin(d: int, t: float) -> int:
    """Levels the walk of `green` (1 up, d down) climbs within t with probability < 1e-15: its up-jumps are Poisson(t), it
    ever climbs k with probability d**-k, and at d = 1 its spread is sqrt(2 t)."""
    spread = 54 / math.log2(d) if d > 1 else 9 * math.sqrt(2 * t) + 40
    return math.ceil(min(t + 9 * math.sqrt(t) + 40, spread))


def _enough(solution: Callable[[int, int], np.ndarray], top: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Double the levels until the solution stays: the levels, its value there and at twice as many."""
    top = _round_up(top)
    coarse, fine = solution(top, 2 * top), solution(2 * top, 2 * top)
    while _difference(coarse, fine) > 1e-9:
        top *= 2
        if 2 * top > MOST_LEVELS:
            raise ValueError(f"T must reach eta within {MOST_LEVELS} levels; got a truncation error of "
                             f"{_difference(coarse, fine):.2g} with {top}; use an earlier last time")
        coarse, fine = fine, solution(2 * top, 2 * top)
    return top, coarse, fine


def _round_up(levels: int) -> int:
    return 16 * math.ceil(levels / 16)  # few sizes, few compilations


def _leaves_range(T: np.ndarray, eta: float) -> str | None:
    rise = np.diff(T, axis=1, prepend=0.0, append=eta).min()
    return f"T_1 <= T_2 <= ... <= eta fails by {-rise:.2g}" if rise < -1e-8 * eta else None


def _difference(coarse: np.ndarray, fine: np.ndarray) -> float:
    return float(np.max(np.abs(coarse - fine) / np.maximum(1.0, np.abs(fine))))


def _step(d: int, method: str, rate: float = 1.0) -> float:
    return ode.SPACING[method] / (2 * (d * max(rate, 1.0) + 1))  # ||J|| <= 2 (d lambda + 1)


def _level_numbers(name: str, value: Any) -> np.ndarray:
    levels = _check.vector(name, [value] if np.isscalar(value) else value)
    if np.any(levels < 1) or np.any(levels != np.floor(levels)):
        raise ValueError(f"{name} must be level numbers, integers >= 1; got {_check.shown(value)}")
    return levels.astype(np.float64)
