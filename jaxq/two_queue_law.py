"""The exact stationary law of two parallel queues with join the shorter (`jaxq.exact.two_queues`).

Let column j be the states whose longer queue is j. Services lead from a column to itself or to the one below, and the only
way up is from (j, j) to (j, j + 1) or (j + 1, j). So the expected times x_j(state) spent in column j per entry from below
follow column by column from the top, each by a tridiagonal elimination. All of it is sums, products and quotients of positive
numbers: every probability has full relative accuracy, however small (the idea of Grassmann, Taksar and Heyman 1985,
doi:10.1287/opre.33.5.1107).

Sources: Dester, Fricker and Tibi 2017, arXiv:1704.06442; Courtois and Semal, J. ACM 31 (1984) 804 (bounds on a truncated
chain).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check
from .ensemble import Result, describe
from .models.two_queues import TwoQueues

_KEPT = 300           # pi is stored up to this capacity
_MOST_COLUMNS = 1500  # of an unbounded system


@dataclass(frozen=True)
class ExactTwoQueues(Result):
    """Stationary law of two parallel queues, from `two_queues`; pi(q1, q2) is the probability of these two lengths.

    blocking: probability that both queues are full, so that an arrival is lost. mean_customers: of both queues together.
    p_empty = pi(0, 0); p_0k (k,) = pi(0, k); p_k0 (k,) = pi(k, 0); p_full (queue,): each queue full.
    pi (queue_1, queue_2) and customers (total,), the law of their sum, for finite capacity <= 300, else None.
    customers_above (excess,): P(capacity + excess customers) for equal rates and finite capacity, by its closed form.
    edge_error: half the width of certified bounds, the largest of all the numbers; 0 for finite capacity.
    columns: longest queue solved for.

    Example::

        >>> law = jaxq.exact.two_queues(None, 1.0)  # unbounded, half the full load
        >>> round(law.mean_customers, 6), law.edge_error < 1e-10
        (1.426321, True)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "p_0k": ("queue_2",), "p_k0": ("queue_1",), "p_full": ("queue",), "pi": ("length_1", "length_2"),
        "customers": ("total",), "customers_above": ("excess",)}
    json_keys: ClassVar[tuple[str, ...]] = ("blocking", "mean_customers", "p_empty", "p_0k", "edge_error")

    blocking: float
    mean_customers: float
    p_empty: float
    p_0k: np.ndarray
    p_k0: np.ndarray
    p_full: np.ndarray
    pi: np.ndarray | None
    customers: np.ndarray | None
    customers_above: np.ndarray | None
    edge_error: float
    columns: int


def blocking(capacity: int, rho: float) -> float:
    """Blocking probability of join the shorter of two equal queues, B = (2-r)(1-r) / (r^-2K + (1-r)(2r)^-K - r(2-r)).

    Args: capacity K of each queue; rho = r = Lambda/(2 mu). Accurate to rounding through r = 1 and r = 2, without overflow.
    Raises ValueError for capacity < 1 or rho <= 0. Source: arXiv:1704.06442.

    Example::

        >>> [round(f(5, 0.8), 4) for f in (jaxq.exact.blocking_pooled, jaxq.exact.blocking, jaxq.exact.blocking_single)]
        [0.0264, 0.0287, 0.0888]
    """
    return math.exp(_log_blocking(_check.integer("capacity", capacity, 1, 10**12), _check.real("rho", rho, 0.0, open_low=True)))


def _log_blocking(K: int, rho: float) -> float:
    u, v, shift = rho - 1, rho - 2, -2 * K * math.log(rho)
    if rho < 1:  # numerator and denominator times rho^2K
        return math.log(2 - rho) - shift - math.log(math.expm1(-shift) / u - u * math.exp(-shift) + (rho / 2) ** K)
    if rho <= 1.5:
        first = -math.expm1(shift) / u if u else 2.0 * K
        return math.log(2 - rho) - math.log(first - u + math.exp(-K * math.log(2 * rho)))
    exponent = math.log1p(v) + K * math.log1p(v / 2)
    if v == 0:
        ratio = math.exp(shift) * (1 + K / 2)
    elif exponent < 1:
        ratio = math.exp(shift) * math.expm1(exponent) / v
    else:  # exponent + shift < 0
        ratio = (math.exp(exponent + shift) - math.exp(shift)) / v
    return math.log(rho - 1) - math.log(rho - ratio)


def blocking_pooled(capacity: int, rho: float) -> float:
    """Blocking probability of M/M/2/2K, one queue for both servers: the lower bound of `blocking`. K, rho, errors as there.

    Example::

        >>> round(jaxq.exact.blocking_pooled(1, 0.5), 6)  # two servers, no place to wait: Erlang's B(2, 1) = 1/5
        0.2
    """
    K, rho = _check.integer("capacity", capacity, 1, 10**7), _check.real("rho", rho, 0.0, open_low=True)
    return _last_share(np.concatenate([[1.0], np.full(2 * K, 2.0)]), rho)


def blocking_single(capacity: int, rho: float) -> float:
    """Blocking probability of M/M/1/K, each queue by itself: the upper bound of `blocking`. K, rho, errors as there.

    Example::

        >>> round(jaxq.exact.blocking_single(3, 1.0), 6)  # uniform on 0..K
        0.25
    """
    K, rho = _check.integer("capacity", capacity, 1, 10**7), _check.real("rho", rho, 0.0, open_low=True)
    return _last_share(np.ones(K + 1), rho)


def _last_share(weights: np.ndarray, rho: float) -> float:
    """weights[-1] rho^m / sum_k weights[k] rho^k; the powers <= 1, so nothing overflows."""
    k = np.arange(weights.size)
    powers = np.exp(np.log(rho) * (k if rho < 1 else k - k[-1]))
    return float(weights[-1] * powers[-1] / np.sum(weights * powers))


def two_queues(capacity: int | float | None, arrival_rate: float, service_rates: Any = (1.0, 1.0), *,
               tolerance: float = 1e-10) -> ExactTwoQueues:
    """The exact stationary law of two parallel queues with join the shorter.

    Args:
      capacity: of each queue, the customer in service included, at most 10**4; None or inf: unbounded.
      arrival_rate: the total rate Lambda. service_rates: (mu_1, mu_2), in the same unit.
      tolerance: for unbounded queues, the largest error of a number, absolute.

    Unbounded queues are cut above a column K. What the rest does is where an excursion above it comes back to column K; the
    law below K is a mixture of those for each single place of return (Courtois and Semal), and all of these are solved. The
    mass and the customers above K are bounded by Foster's criterion with q1^2 + q2^2 and q1^3 + q2^3. The number reported is
    the middle of the bounds and `edge_error` half their width, rounding apart.

    Raises ValueError for bad parameters, an unbounded system with Lambda >= mu_1 + mu_2, or one so near its full load
    (above about 0.985) that 1500 columns do not reach the tolerance. Sources: arXiv:1704.06442; J. ACM 31 (1984) 804.

    Example::

        >>> jaxq.exact.two_queues(1, 1.0).pi.round(6).tolist()
        [[0.4, 0.2], [0.2, 0.2]]
    """
    system = TwoQueues(capacity, arrival_rate, service_rates)
    tolerance = _check.real("tolerance", tolerance, 1e-13, 0.1)
    rate, rates = system.arrival_rate, system.service_rates
    attributes = {"model": describe(system)}
    if system.capacity is None:
        return _unbounded(rate, rates, tolerance, attributes)
    K = _check.integer("capacity", system.capacity, 1, 10**4, "use jaxq.exact.blocking for the blocking probability alone")
    law = _columns(K, rate, rates, np.zeros((K, 1)), np.zeros((K, 1)), keep=K <= _KEPT)
    equal, rho = rates[0] == rates[1], rate / sum(rates)
    lost = blocking(K, rho) if equal else float(law.hub[0])
    above = np.exp(_log_blocking(K, rho) + math.log(rho) * (np.arange(K + 1.0) - K)) if equal else None
    sums = None if law.pi is None else np.array([np.trace(law.pi[::-1], m - K) for m in range(2 * K + 1)])
    return ExactTwoQueues(attributes, lost, float(law.mean[0]), float(law.axes[0, 0, 0]), law.axes[0, :, 0], law.axes[1, :, 0],
                          law.full[:, 0], law.pi, sums, above, 0.0, K)


def _unbounded(arrival: float, rates: tuple[float, float], tolerance: float, attributes: dict[str, Any]) -> ExactTwoQueues:
    if not arrival < sum(rates):
        raise ValueError(f"unbounded queues need arrival_rate below mu_1 + mu_2 = {sum(rates):g}; got {arrival:g}; "
                         "lower it or give a capacity")
    drift = min(sum(rates) - arrival, *rates)
    decay, K = 2 * math.log(sum(rates) / arrival), (arrival + sum(rates)) / drift + 8
    for _ in range(3):  # a guess: P(above K) falls like (Lambda/(mu_1 + mu_2))^2K, the bound below is K^2/drift larger
        K = max(K, math.log(2 * decay * K**2 / drift / tolerance) / decay)
    K = math.ceil(K)
    while K <= _MOST_COLUMNS:
        (mean, mean_error), (axes, axes_error) = (
            ((low + high) / 2, float(np.max(high - low)) / 2) for low, high in _bounds(K, arrival, rates))
        error = max(mean_error, axes_error)
        if error <= tolerance:
            last = int(np.max(np.nonzero(axes.max(axis=0) > error), initial=1))
            return ExactTwoQueues(attributes, 0.0, float(mean), float(axes[0, 0]), axes[0, : last + 1], axes[1, : last + 1],
                                  np.zeros(2), None, None, None, error, K)
        K = math.ceil(1.1 * K)
    raise ValueError(f"unbounded queues must fit in {_MOST_COLUMNS} columns; got a load of {arrival / sum(rates):.6g}, which needs "
                     f"more for an error of {tolerance:g}; lower arrival_rate, raise tolerance or give a capacity")


def _bounds(K: int, arrival: float, rates: tuple[float, float]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """(low, high) of the mean number of customers, and of pi(0, k) and pi(k, 0), (2, K + 1), k <= K."""
    law = _columns(K, arrival, rates, *_returns(K, rates[0] == rates[1]), keep=False)
    outside, customers = (arrival * float(law.hub.max()) * part for part in _excursion(K, arrival, rates))
    return ((law.mean.min() / (1 + outside), law.mean.max() + customers),
            (law.axes.min(axis=-1) / (1 + outside), law.axes.max(axis=-1)))


def _excursion(K: int, arrival: float, rates: tuple[float, float]) -> tuple[float, float]:
    """Bounds on the mean time above column K, from (K, K + 1) or (K + 1, K), and on the customers summed over it (Foster).

    There q1^2 + q2^2 falls at least at rate `square`, and q1^3 + q2^3 at max(q1, q2) `cube`; customers <= 2 max(q1, q2).
    """
    drift, total = min(sum(rates) - arrival, *rates), arrival + sum(rates)
    square = 2 * drift * (K + 1) - total
    cube = 3 * drift * (K + 1) - 3 * total - arrival / (K + 1)
    if not (square > 0 and cube > 0):
        return math.inf, math.inf
    return (K**2 + (K + 1) ** 2) / square, 2 * (K**3 + (K + 1) ** 3) / cube


def _returns(K: int, equal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Every single place of column K to come back to, as columns of `back_1` and `back_2`; mirror images together if equal."""
    if equal:
        half = np.eye(K, K + 1) / 2
        return half, half
    return np.eye(K, 2 * K + 1), np.eye(K, 2 * K + 1, K)


@dataclass(frozen=True)
class _Law:
    """Laws on columns 0..K for each return from above (last axis): axes (2, K + 1, :) pi(0, k) and pi(k, 0), hub pi(K, K)."""

    axes: np.ndarray
    hub: np.ndarray
    mean: np.ndarray
    full: np.ndarray
    pi: np.ndarray | None


def _columns(K: int, arrival: float, rates: tuple[float, float], back_1: np.ndarray, back_2: np.ndarray, *, keep: bool) -> _Law:
    """Eliminate columns K, K - 1, ..., 1.

    back_b (K, returns): chance that an excursion above column K comes back to (i, K) (b = 1) or (K, i) (b = 2), i < K; the
    rest comes back to (K, K).
    """
    # dtbtrs solves many right sides at once; scipy.linalg.solve_banded checks and copies at every call
    from scipy.linalg.lapack import dtbtrs

    branches, back = [rates, rates[::-1]], [back_1, back_2]  # (rate of the shorter queue, of the longer)
    if rates[0] == rates[1]:
        branches, back = branches[:1], back[:1]
    lower, upper = zip(*(_factors(K, arrival, *branch) for branch in branches), strict=True)
    returns, copies = back_1.shape[1], 2 // len(branches)
    up, time, moment = (np.empty((K + 1, returns)) for _ in range(3))
    first = np.empty((2, K + 1, returns))
    full = np.empty((2, returns))
    kept: list[list[np.ndarray]] = [[] for _ in branches]
    up[0], time[0], moment[0], first[:, 0] = 1.0, 1.0, 0.0, 1.0
    for j in range(K, 0, -1):
        solved, reach, leave = [], 0.0, 0.0
        for b, (shorter, longer) in enumerate(branches):
            source = np.zeros((j, 1 + returns), order="F")
            source[-1, 0], source[:, 1:] = 1.0, back[b][:j]
            x = dtbtrs(upper[b][:, :j], dtbtrs(lower[b][:, :j], source, uplo="L", diag="U", overwrite_b=1)[0], overwrite_b=1)[0]
            total = x.sum(axis=0)
            reach += copies * 0.5 * arrival * x[-1, 0]
            leave = leave + copies * longer * (shorter * total[0] + arrival * total[1:])
            solved.append(x)
        up[j] = reach / leave  # time in (j, j): what enters the column leaves it downwards, once
        time[j], moment[j] = up[j], 2 * j * up[j]
        lengths = np.arange(j) + j
        for b, (shorter, longer) in enumerate(branches):
            y = solved[b]
            x = (0.5 + shorter * up[j]) * y[:, :1] + arrival * up[j] * y[:, 1:]
            back[b], first[b, j] = longer * x, x[0]
            time[j] += copies * x.sum(axis=0)
            moment[j] += copies * (lengths @ x)
            if j == K:
                full[1 - b] = up[j] + x.sum(axis=0)
            if keep:
                kept[b].append(x[:, 0])
    if copies == 2:
        first[1], full[0] = first[0], full[1]
    # time in columns >= j per entry to column j: mass_j = time_j + arrival up_j mass_{j+1}; its inverse cannot overflow
    inverse, share = np.empty((K + 1, returns)), np.ones((K + 1, returns))
    inverse[K] = 1 / time[K]
    for j in range(K - 1, -1, -1):
        denominator = arrival * up[j] + time[j] * inverse[j + 1]
        share[j + 1] = arrival * up[j] / denominator  # P(columns >= j + 1)/P(columns >= j)
        inverse[j] = inverse[j + 1] / denominator
    scale = np.cumprod(share, axis=0) * inverse  # entries to column j, per unit time
    pi = None
    if keep:
        pi = np.zeros((K + 1, K + 1))
        pi[np.arange(K + 1), np.arange(K + 1)] = (scale * up)[:, 0]
        for j in range(1, K + 1):
            pi[:j, j] = kept[0][K - j] * scale[j, 0]
            pi[j, :j] = kept[-1][K - j] * scale[j, 0]
    return _Law(first * scale, scale[K] * up[K], (scale * moment).sum(axis=0), scale[K] * full, pi)


def _factors(K: int, arrival: float, shorter: float, longer: float) -> tuple[np.ndarray, np.ndarray]:
    """Band factors of a branch's elimination, shorter queue 0..K-1; `leave` is the rate out of the column, once censored."""
    leave = np.empty(K)
    leave[0] = longer
    for i in range(1, K):
        leave[i] = longer + shorter * leave[i - 1] / (arrival + leave[i - 1])
    lower, upper = np.empty((2, K), order="F"), np.empty((2, K), order="F")
    lower[0], lower[1] = 1.0, -arrival / (arrival + leave)
    upper[0], upper[1] = -shorter, arrival + leave
    return lower, upper
