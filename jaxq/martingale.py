"""The martingale part of simulated paths: what the noise adds to the integral equation of heavy traffic."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _check
from .rescaling import check_d, rate


def martingale(times: Any, T: Any, d: int, *, eta: float, beta: float | None = None,
               arrival_rate: float | None = None) -> np.ndarray:
    """The forcing y that puts saved paths T into the integral equation (7), y_i(t) =

    T_i(t) - T_i(0) + lambda d int_0^t [T_i - T_{i-1} + g(T_{i-1}) - g(T_i)] ds - int_0^t [T_{i+1} - T_i] ds.

    For paths of `Supermarket` with replacement and without a buffer it is a martingale, with quadratic variation
    (eta**2/n) int_0^t [lambda (S_{i-1}**d - S_i**d) + S_i - S_{i+1}] ds, S = 1 - T/eta.

    Args:
      times: save times (time,), the first one 0, in mean service times.
      T: (time, level) or (time, level, replica), eta (1 - x/n) from tail counts x (`simulate(..., save="paths")`). Its last
        level must be eta throughout: nobody is there, so y = 0 above. Where somebody was at the last level saved, that no
        one was above it is for the caller to say, by one more level: np.pad(T, ((0, 0), (0, 1), (0, 0)),
        constant_values=eta) with the whole of `Ensemble.paths`, which holds all levels reached at saved times.
      eta, beta, arrival_rate: the scale, and one of beta and lambda = 1 - beta/eta.

    Returns y, shaped as T, float64. The integrals are trapezoidal sums over the save grid. What the path did between saved
    times is not known: with spacing h, y errs by O(h**2) in mean and, relative to its own size, by about h (d lambda + 1)/3
    at random. `integral_equation` with this y, which it takes as linear between the times, returns T to O(h**2).

    Raises ValueError for a path that does not start at 0, leaves [0, eta], or ends in a level that somebody reached.
    Source: Eschenfeldt and Gamarnik, arXiv:1610.03522.

    Example::

        >>> empty = [[10.0], [10.0]]  # nobody came: y is the eta lambda t of the arrivals expected
        >>> jaxq.heavy_traffic.martingale([0.0, 1.0], empty, 2, eta=10.0, beta=1.0).round(6).tolist()
        [[0.0], [9.0]]
    """
    times, T, d = _check.times(times, "times"), _check.grid("T", T, finite=False), check_d(d)
    load = rate(beta, arrival_rate, eta)
    if T.shape[0] != times.size or T.shape[1] == 0 or times[0] != 0:
        raise ValueError(f"T must be (time, level) or (time, level, replica) at {times.size} times from 0 on; got shape {T.shape} "
                         f"from time {times[0]:g}; save time 0 too")
    if not (T.min() >= -1e-9 * eta and T.max() <= eta * (1 + 1e-9)):
        raise ValueError(f"T must lie in [0, eta = {eta:g}]; got {T.min():g} to {T.max():g}; T_i is eta (1 - S_i)")
    if T[:, -1].min() < eta * (1 - 1e-9):
        raise ValueError(f"the last level of T must be eta = {eta:g} throughout, nobody there; got {T[:, -1].min():g} at level "
                         f"{T.shape[1]}; give all levels that were reached, and one more of eta")
    with np.errstate(divide="ignore"):  # log1p(-1) where nobody is
        H = -eta * np.expm1(d * np.log1p(-np.clip(T, 0.0, eta) / eta))  # eta (1 - S**d) = d (T - g(T))
    zero, full = np.zeros_like(T[:, :1]), np.full_like(T[:, :1], eta)
    drift = load * (np.concatenate([zero, H[:, :-1]], axis=1) - H) + np.concatenate([T[:, 1:], full], axis=1) - T
    widths = np.diff(times).reshape(-1, *[1] * (T.ndim - 1))
    integral = np.cumsum(widths * (drift[1:] + drift[:-1]) / 2, axis=0)
    return T - T[:1] - np.concatenate([np.zeros_like(T[:1]), integral])
