"""Around the likelihood of `fit_likelihood`: data made ready, standard errors, p-value, profile intervals, no power law. Host.

Everything here runs inside `with jax.enable_x64(True):` and takes its derivatives from `fit_likelihood.curves`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from . import fit_likelihood
from .fit_data import Block
from .fit_likelihood import Observed, Problem
from .linear_noise import linear_noise
from .models.supermarket import Supermarket

_DEPTH = 30.0   # levels solved: S_i < exp(-30) at the last one, for any lambda that is tried
_DROP = 1.9207  # half the 95 % point of chi-square with one degree of freedom

_curves = jax.jit(fit_likelihood.curves, static_argnums=0)
_expected = jax.jit(fit_likelihood.expected, static_argnums=0)


class Point(NamedTuple):
    """The likelihood at x_n = log(1 - lambda_n): expected (n, entry) and its whitened slope `tilt`; of each n's part of the
    loss in its own x: value, slope, curve and information (n,)."""

    expected: np.ndarray
    tilt: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    curve: np.ndarray
    information: np.ndarray


def prepare(blocks: list[Block], prediction: str, d: int, replacement: bool, start: np.ndarray | None) -> tuple[Problem, Observed]:
    """The data as padded arrays, weights with the factor (R - entries - 2)/(R - 1) where R replicas gave the covariance, and
    levels enough for the largest lambda allowed: 1 - lambda = 1/(20 n), or 1/(20 n**2) without the 1/n term."""
    n = np.array([block.n for block in blocks])
    low = -(1 if prediction == "refined" else 2) * math.log(n.max()) - 3
    width = max(block.level.size for block in blocks)
    times = np.unique(np.concatenate([np.zeros(0), *(block.time for block in blocks if block.time is not None)]))
    empty = np.zeros(0)
    starts = [start if start is not None else block.start if block.start is not None else empty for block in blocks]
    need = max(1, *(int(block.level.max()) for block in blocks))
    deep = math.ceil((math.log(_DEPTH * (d - 1)) - low) / math.log(d)) + 1 if d > 1 else need
    if prediction == "transient":
        held = max(tail.size for tail in starts)
        arrivals = math.ceil(times[-1] + 10 * math.sqrt(times[-1]) + 20)  # Poisson at one server at most, d = 1
        deep = held + (arrivals if d == 1 else min(arrivals, max(deep - held, 2)))
    levels = max(deep, need)
    count = len(blocks)
    value, whiten = np.zeros((count, width)), np.zeros((count, width, width))
    level, time, start_ = np.zeros((count, width), np.int32), np.zeros((count, width), np.int32), np.zeros((count, levels))
    for k, (block, tail) in enumerate(zip(blocks, starts, strict=True)):
        size = block.level.size
        spread = np.sqrt(np.diag(block.covariance))
        root = np.linalg.cholesky(block.covariance / np.outer(spread, spread))
        factor = 1.0 if block.replicas is None else (block.replicas - size - 2) / (block.replicas - 1)
        whiten[k, :size, :size] = math.sqrt(factor) * np.linalg.solve(root, np.diag(1 / spread))
        value[k, :size], level[k, :size] = block.value, block.level
        if block.time is not None:
            time[k, :size] = np.searchsorted(times, block.time)
        start_[k, : tail.size] = tail
    problem = Problem(prediction, d, replacement, levels, tuple(times.tolist()))
    return problem, Observed(np.log(n), value, whiten, level, time, start_, np.array([low, -1e-9]))


def at(problem: Problem, seen: Observed, x: np.ndarray) -> Point:
    """The likelihood at x (n,)."""
    expected, first, second = map(np.asarray, _curves(problem, seen, np.asarray(x, np.float64)))
    residual = np.einsum("nij,nj->ni", seen.whiten, seen.value - expected)
    tilt, bend = np.einsum("nij,nj->ni", seen.whiten, first), np.einsum("nij,nj->ni", seen.whiten, second)
    information = np.sum(tilt**2, axis=1)
    return Point(expected, tilt, np.sum(residual**2, axis=1) / 2, -np.sum(tilt * residual, axis=1),
                 information - np.sum(bend * residual, axis=1), information)


def directions(seen: Observed) -> np.ndarray:
    """d x_n/d theta, (n, 2), of x_n = log beta - alpha log n."""
    return np.stack([-seen.log_n, np.ones_like(seen.log_n)], axis=1)


def matrix(seen: Observed, weight: np.ndarray) -> np.ndarray:
    """The (2, 2) matrix in theta of one in x that is diagonal, weight (n,)."""
    ways = directions(seen)
    return (ways.T * weight) @ ways


def distance(seen: Observed, point: Point) -> float:
    """The gradient's norm in the Fisher metric: how many standard errors away the minimum is, about."""
    gradient = directions(seen).T @ point.slope
    return float(math.sqrt(max(gradient @ np.linalg.solve(matrix(seen, point.information), gradient), 0.0)))


def covariance(seen: Observed, point: Point, blocks: list[Block]) -> np.ndarray:
    """Covariance (2, 2) of theta: the inverse Hessian, widened where the weights come from R replicas and scatter themselves.

    To first order in 1/R, weights (1 + E) with E Wishart noise add A' E P E A in units of the Fisher matrix, A (row, 2) its
    orthonormal directions and P = 1 - A A'; within one n that is A' (tr P + P) A / R.
    """
    inverse = np.linalg.inv(matrix(seen, point.curve))
    root = np.linalg.inv(np.linalg.cholesky(matrix(seen, point.information)))  # root F root' = 1
    excess = np.zeros((2, 2))
    for k, block in enumerate(blocks):
        if block.replicas is not None:
            size, spare = block.level.size, block.replicas - block.level.size
            aligned = np.outer(point.tilt[k, :size], directions(seen)[k]) @ root.T
            left = np.eye(size) - aligned @ aligned.T
            share = (spare - 2) / ((spare - 1) * (spare - 4))
            excess += share * aligned.T @ (np.trace(left) * np.eye(size) + left) @ aligned
    return inverse + root.T @ excess @ root


def p_value(chi_square: float, dof: int, blocks: list[Block]) -> float:
    """Chance of a larger chi_square where the prediction is right; nan at dof = 0.

    With p entries weighted by the covariance of R replicas its part has mean p and variance 2 p (R - 2)/(R - p - 4) (an F law,
    Hotelling). The sum is taken as the F law with its mean and variance, exact for one such block; chi-square if none.
    """
    from scipy import stats

    if dof == 0:
        return math.nan
    entries = np.array([block.level.size for block in blocks], float)
    wider = np.array([1.0 if block.replicas is None else (block.replicas - 2) / (block.replicas - block.level.size - 4)
                      for block in blocks])
    ratio = float(np.sum(entries * wider) / np.sum(entries))
    if ratio < 1 + 1e-9:
        return float(stats.chi2.sf(chi_square, dof))
    below = (dof - 2 + 4 * ratio) / (ratio - 1)
    return float(stats.f.sf(chi_square / dof * below / (below - 2), dof, below))


def shift(problem: Problem, seen: Observed, x: np.ndarray, point: Point) -> np.ndarray:
    """By how much (2,) the first term that the prediction leaves out moves theta.

    fixed-point: V/n. transient: the same in time (`linear_noise`). refined: the term in
    1/n**2, whose size is taken as V_i/n (epsilon + |V_i|/(n S_i)), where epsilon = (1 + ln d)/(n (1 - lambda)) is the relative
    variance of 1 - S_1, in which the expansion is.
    """
    if problem.prediction == "transient":
        missing = np.zeros_like(seen.value)
        for k, gap in enumerate(np.exp(x)):
            n = round(float(np.exp(seen.log_n[k])))
            start = np.trim_zeros(seen.start[k], "b")
            model = Supermarket(n, problem.d, 1 - gap, problem.replacement)
            noise = linear_noise(model, problem.times, start if start.size else None)
            change = np.pad(noise.refined_tail - noise.tail, ((0, 0), (0, problem.levels)))
            change = np.concatenate([change.sum(axis=1, keepdims=True), change], axis=1)
            missing[k] = change[seen.time[k], seen.level[k]]
    else:
        refined, plain = (point.expected if problem.prediction == name else
                          np.asarray(_expected(problem._replace(prediction=name), seen, x)) for name in ("refined", "fixed-point"))
        missing = refined - plain
        if problem.prediction == "refined":
            epsilon = (1 + math.log(problem.d)) * np.exp(-seen.log_n - x)
            missing = missing * (epsilon[:, None] + np.abs(missing) / np.abs(refined))
    pull = np.sum(point.tilt * np.einsum("nij,nj->ni", seen.whiten, missing), axis=1)
    return np.linalg.solve(matrix(seen, point.information), directions(seen).T @ pull)


def each(problem: Problem, seen: Observed, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x (n,) that minimises the loss at each n by itself, and its standard error, by Fisher scoring; nan where it fails."""
    low, high = seen.ends
    point = at(problem, seen, x)
    for _ in range(40):
        step = -point.slope / np.maximum(point.information, 1e-300)
        if np.all(np.abs(step) * np.sqrt(point.information) < 1e-6):
            break
        x = np.clip(x + np.clip(step, -0.5, 0.5), low + 1e-6, high - 1e-6)
        point = at(problem, seen, x)
    good = (np.abs(point.slope) < 1e-3 * np.sqrt(point.information)) & (point.curve > 0)
    return np.where(good, x, np.nan), np.where(good, np.abs(point.curve), np.nan) ** -0.5


def profile(problem: Problem, seen: Observed, theta: np.ndarray, spread: np.ndarray, loss: float, which: int) -> np.ndarray:
    """The ends (2,) of the 95 % interval of theta[which]: where the loss, least in the other unknown, is 1.92 above its minimum.

    Newton's method on both conditions at once (Venzon and Moolgavkar) from the ellipse's ends; nan where it does not converge.
    """
    ends = []
    for side in (-1.0, 1.0):
        new = theta + side * math.sqrt(2 * _DROP) * spread[:, which] / math.sqrt(spread[which, which])
        found = math.nan
        for _ in range(30):
            point = at(problem, seen, np.asarray(fit_likelihood.log_gaps(new, seen.log_n)))
            gradient = directions(seen).T @ point.slope
            excess = np.array([point.value.sum() - loss - _DROP, gradient[1 - which]])
            if not np.all(np.isfinite(excess)):
                break
            if abs(excess[0]) < 1e-6 and abs(excess[1]) * math.sqrt(spread[1 - which, 1 - which]) < 1e-4:
                found = new[which]
                break
            new = new - np.linalg.solve(np.stack([gradient, matrix(seen, point.curve)[1 - which]]), excess)
        ends.append(found)
    return np.array(ends)
