"""The static side of heavy traffic: T_i = eta (1 - S_i), its fixed points and bounds, starts and the stopping time.

All of it is host arithmetic in float64; `heavy_traffic` gives these names again beside the systems that move T. Level 1 is
first in every array. Source: Eschenfeldt and Gamarnik, arXiv:1610.03522, whose equation numbers are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _check


def pi(levels: int, d: int, beta: float) -> np.ndarray:
    """The limit's fixed point (16), (levels,): pi_i = beta (d**i - 1)/(d - 1), beta i at d = 1.

    Raises ValueError for levels or d below 1, beta <= 0, and where the top level is beyond the floats.

    Example::

        >>> jaxq.heavy_traffic.pi(4, 2, 1.0).tolist()
        [1.0, 3.0, 7.0, 15.0]
    """
    fixed = _check.real("beta", beta, 0.0, open_low=True) * _geometric(levels, d)
    if not np.isfinite(fixed[-1]):
        raise ValueError(f"levels must keep d**levels within the floats; got {levels} with d={d}; use fewer")
    return fixed


def fixed_point_T(levels: int, d: int, beta: float, eta: float) -> np.ndarray:
    """The fixed point at finite eta, (levels,): T_i = eta (1 - lambda**((d**i - 1)/(d - 1))), lambda = 1 - beta/eta.

    Raises ValueError for levels or d below 1, and unless 0 < beta < eta.
    Source: Mitzenmacher 2001, doi:10.1109/71.963420, for S_i = 1 - T_i/eta.

    Example::

        >>> jaxq.heavy_traffic.fixed_point_T(3, 2, 1.0, 10.0).round(6).tolist()  # 10 (1 - 0.9**1), (1 - 0.9**3), (1 - 0.9**7)
        [1.0, 2.71, 5.217031]
    """
    tail = _log_tail(levels, d, beta, eta)
    return -eta * np.expm1(tail)


def theorem5_bound(levels: int, d: int, beta: float, eta: float, *, sharper: bool = False) -> np.ndarray:
    """Lower bound (levels,) on the stationary E S_i at every n: 1 - (beta/eta)(d**i - 1)/(d - 1), Theorem 5 (17).

    It falls below 0, and says nothing, at high levels. `sharper`: lambda**((d**i - 1)/(d - 1)) instead, which holds with
    replacement, since E S_i = lambda E S_{i-1}**d >= lambda (E S_{i-1})**d (Jensen); an equality at level 1.

    Raises ValueError for levels or d below 1, and unless 0 < beta < eta. Source: arXiv:1610.03522.

    Example::

        >>> jaxq.heavy_traffic.theorem5_bound(3, 2, 1.0, 10.0).round(6).tolist()
        [0.9, 0.7, 0.3]
        >>> jaxq.heavy_traffic.theorem5_bound(3, 2, 1.0, 10.0, sharper=True).round(6).tolist()
        [0.9, 0.729, 0.478297]
    """
    tail = _log_tail(levels, d, beta, eta)
    return np.exp(tail) if _check.flag("sharper", sharper) else 1 - beta / eta * _geometric(levels, d)


def tail_counts(T: Any, n: int, eta: float) -> np.ndarray:
    """Integer tail counts x_i = n S_i, S = 1 - T/eta, rounded half up, then made nonincreasing; trailing zeros cut.

    Args: T (level,), nondecreasing in [0, eta] (to 1e-12 eta), level 1 first; `Supermarket` starts from the result.

    Raises ValueError naming the first level where T is not such a profile.

    Example::

        >>> jaxq.heavy_traffic.tail_counts([1.0, 3.0, 7.0, 10.0], 100, 10.0).tolist()
        [90, 70, 30]
    """
    n = _check.integer("n", n, 1, 2**31 - 1)
    T = profile("T", T, eta)
    counts = np.floor(n * np.clip(1 - T / eta, 0.0, 1.0) + 0.5).astype(np.int64)
    return np.trim_zeros(np.minimum.accumulate(counts), "b")


def start_profile(levels: int, d: int, beta: float, eta: float, *, bump: float = 2.0, bump_levels: int = 3,
                  alpha: float | None = None) -> np.ndarray:
    """The study's start, (levels,): the finite-eta fixed point plus bump * beta on levels 1..bump_levels.

    Raises ValueError where that is no profile, T_k + bump beta > T_{k+1} at k = bump_levels (small eta, or d = 1), naming
    the least eta, and with `alpha` (eta = n**alpha) the least n.

    Example::

        >>> start = jaxq.heavy_traffic.start_profile(4, 2, 1.0, 100.0)
        >>> (start - jaxq.heavy_traffic.fixed_point_T(4, 2, 1.0, 100.0)).round(6).tolist()
        [2.0, 2.0, 2.0, 0.0]
    """
    k, bump = _check.integer("bump_levels", bump_levels, 1, _check.MOST_LEVELS), _check.real("bump", bump, 0.0, 1e6)
    alpha = None if alpha is None else _check.real("alpha", alpha, 0.0, 2.0, open_low=True)
    T = fixed_point_T(max(_check.integer("levels", levels, 1, _check.MOST_LEVELS), k + 1), d, beta, eta)

    def excess(eta: float) -> float:
        low, high = fixed_point_T(k + 1, d, beta, eta)[-2:]
        return low + bump * beta - high

    if excess(eta) > 0:
        least = "no eta is large enough"
        if d**k > bump and alpha is not None:
            least = f"the least n is {_least(lambda n: excess(max(float(n) ** alpha, beta * (1 + 1e-9))) <= 0)}"
        elif d**k > bump:
            least = f"the least eta is about {_least(lambda e: excess(max(float(e), beta * (1 + 1e-9))) <= 0)}"
        raise ValueError(f"a start raised by {bump:g} beta on levels 1..{k} needs T_{k} + {bump:g} beta <= T_{k + 1}; "
                         f"got {T[k - 1] + bump * beta:.4g} > {T[k]:.4g} at d={d}, eta={eta:g}; {least}; "
                         "give another start (--start)")
    T[:k] += bump * beta
    return T[:levels]


def stopping_time(times: Any, T: Any, eta: float, *, a: float = 0.25, rho: float | None = None, d: int = 2) -> Any:
    """First saved time with max_{1 <= i <= i*} |T_i| >= eta**a, i* = max(1, floor((a/2) log_rho eta)); inf if never.

    Args: times (time,); T (time, level) or (time, level, replica); 0 < a < 1/2; rho > d, d + 1 unless given.

    Returns a float, or (replica,) with inf for the replicas that never do. T is looked at on the save grid only, so this is
    never before the true t*, and later where T was beyond the bound between saved times only; a finer grid tells by how much.
    For simulated paths T = eta (1 - paths/n), from `simulate(..., save="paths")`. Raises ValueError for arguments outside these
    ranges, and for fewer than i* levels. Source: arXiv:1610.03522.

    Example::

        >>> T = [[0.0, 1.0], [1.0, 2.0], [3.0, 5.0]]  # i* = 1, the bound 16**(1/4) = 2
        >>> jaxq.heavy_traffic.stopping_time([0.0, 1.0, 2.0], T, 16.0)
        2.0
    """
    times, paths, d = _check.times(times, "times"), _check.grid("T", T), check_d(d)
    a = _check.real("a", a, 0.0, 0.5, open_low=True, open_high=True)
    rho = _check.real("rho", d + 1 if rho is None else rho, d, open_low=True)
    eta = _check.real("eta", eta, 1.0)
    top = max(1, math.floor(a / 2 * math.log(eta) / math.log(rho)))
    if paths.shape[0] != times.size or paths.shape[1] < top:
        raise ValueError(f"T must be (time, level) or (time, level, replica) with {times.size} times and levels 1..{top}; "
                         f"got shape {paths.shape}; save more levels or use a smaller a")
    reached = np.max(np.abs(paths[:, :top]), axis=1) >= eta**a
    first = np.where(reached.any(axis=0), times[np.argmax(reached, axis=0)], np.inf)
    return float(first) if first.ndim == 0 else first


def _geometric(levels: int, d: int) -> np.ndarray:
    """(d**i - 1)/(d - 1) for i = 1..levels; i at d = 1; inf beyond the floats."""
    levels = _check.integer("levels", levels, 1, _check.MOST_LEVELS)
    with np.errstate(over="ignore"):
        return np.cumsum(np.power(float(check_d(d)), np.arange(levels)))


def _log_tail(levels: int, d: int, beta: float, eta: float) -> np.ndarray:
    eta = _check.real("eta", eta, 0.0, open_low=True)
    beta = _check.real("beta", beta, 0.0, eta, open_low=True, open_high=True, hint="lambda = 1 - beta/eta must be > 0")
    return _geometric(levels, d) * math.log1p(-beta / eta)


def profile(name: str, T: Any, eta: float) -> np.ndarray:
    """T (level,) as float64, nondecreasing in [0, eta] to 1e-12 eta; ValueError naming the first level where it is not."""
    eta = _check.real("eta", eta, 0.0, open_low=True)
    T = _check.vector(name, T).astype(np.float64)
    steps = np.diff(np.concatenate([[0.0], T]))
    bad = (steps < -1e-12 * eta) | (eta * (1 + 1e-12) < T)
    if np.any(bad):
        i = int(np.argmax(bad))
        raise ValueError(f"{name} must satisfy 0 <= T_1 <= T_2 <= ... <= eta = {eta:g}; got T_{i + 1} = {T[i]:g}"
                         f"{f' after T_{i} = {T[i - 1]:g}' if i else ''}; T_i is eta (1 - S_i)")
    return np.clip(T, 0.0, eta)


def rate(beta: Any, arrival_rate: Any, eta: float) -> float:
    """lambda, given as itself or by beta; ValueError unless one of the two is."""
    eta = _check.real("eta", eta, 1.0)
    if (beta is None) == (arrival_rate is None):
        raise ValueError(f"give one of beta and arrival_rate = 1 - beta/eta; got {_check.shown(beta)} and "
                         f"{_check.shown(arrival_rate)}; leave one out")
    if beta is None:
        return _check.real("arrival_rate", arrival_rate, 0.0, open_low=True)
    return 1 - _check.real("beta", beta, 0.0, eta, open_low=True, open_high=True, hint="lambda = 1 - beta/eta") / eta


def check_d(d: Any) -> int:
    """d as an integer >= 1, or ValueError."""
    return _check.integer("d", _check.integer("d", d, 1, hint="give the number of servers a customer samples"), 1, 2**31 - 1)


def _least(holds: Callable[[int], bool]) -> int:
    """The least integer >= 1 where a condition that stays true once true holds."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2  # does not hold there
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
