"""The linear noise approximation: how far one system of n servers strays from its mean field, and the mean's 1/n term, in time.

Along the mean-field path dx/dt = f(x), with J the Jacobian of f and D the diffusion matrix at x(t)::

    n Cov(X(t)) -> W(t),                     dW/dt = J W + W J' + D,   W(0) = 0
    E[X(t)] = x(t) + m(t)/n + O(1/n^2),      dm/dt = J m + b(x, W),    m(0) = 0

with b as in `refined`. Sources: Kurtz 1971, doi:10.2307/3211904; the transient refinement: Gast, Bortolussi and Tribastone,
Size expansions of mean field approximation, Performance Evaluation 2019.
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
from .mean_field import _population, _step
from .refined import forcing
from .truncation import bad_path, doubled, initial_density, level_count, truncated

_TRUNCATION = 1e-8  # truncation error, relative to the largest constant, that ends the search for levels
_MOST_STATES = 256  # the path carries states**2 numbers


@dataclass(frozen=True)
class LinearNoise(Result):
    """One system of n servers in time, to order 1/n; S_i: fraction of servers with at least i customers, Q: per server.

    times (time,); tail (time, level), mean_queue_length (time,): S_i and Q of the mean field, n = infinity.
    tail_stdev (time, level), mean_queue_length_stdev (time,): standard deviations of one system at the model's n, not of a
      mean over replicas; they err by a factor 1 + O(1/n), more where a level holds only a few of the n servers.
    refined_tail (time, level), refined_mean_queue_length (time,): expectations at the model's n, to O(1/n^2).
    truncation_error: a bound on the change of the tails, their expectations and variances (Q's too) when the levels double.

    Example::

        >>> result = jaxq.linear_noise(jaxq.Supermarket(100, 2, 2/3, buffer=1), [0.0, 20.0])
        >>> result.mean_queue_length.round(4).tolist(), result.refined_mean_queue_length.round(4).tolist()
        ([0.0, 0.5], [0.0, 0.4988])
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "times": ("time",), "tail": ("time", "level"), "tail_stdev": ("time", "level"), "mean_queue_length": ("time",),
        "mean_queue_length_stdev": ("time",), "refined_tail": ("time", "level"), "refined_mean_queue_length": ("time",)}
    json_keys: ClassVar[tuple[str, ...]] = (*dims, "truncation_error")

    times: np.ndarray
    tail: np.ndarray
    tail_stdev: np.ndarray
    mean_queue_length: np.ndarray
    mean_queue_length_stdev: np.ndarray
    refined_tail: np.ndarray
    refined_mean_queue_length: np.ndarray
    truncation_error: float


def linear_noise(model: Model, ts: Any, initial: Any = None, *, levels: int | None = None) -> LinearNoise:
    """Mean, 1/n correction and standard deviation of one system of n servers that starts in `initial` at time 0.

    Args:
      model: a PopulationModel; n scales the results.
      ts: times (time,), >= 0, strictly increasing, in the unit of the model's rates.
      initial: None (empty), densities (floats), or counts (integers, divided by n), one and the same in every system.
      levels: solve with this many levels, and with twice as many to measure the truncation error; None: double them until
        x, m and W (above) change by less than 1e-8 of their largest value.

    Raises ValueError for bad arguments, a model without a closed mean field, more than 256 states, and a start that is
    itself random (PULL with R >= 2 routers: the first messages; give densities).
    Source: Kurtz 1971, doi:10.2307/3211904.

    Example::

        >>> result = jaxq.linear_noise(jaxq.Supermarket(100, 2, 2/3, buffer=1), [0.0, 20.0])
        >>> (100 * result.tail_stdev**2).round(4).tolist()  # at rest W = -D/(2 J) = 0.3
        [[0.0], [0.3]]
    """
    ts = _check.times(ts)
    model = _population(model, "linear_noise")
    if initial is None:
        _refuse_random_start(model)
    n = int(model.n)
    model, start = initial_density(model, initial, levels)
    moments, error, least = _moments(model, start, ts), 0.0, level_count(model)
    while truncated(model):
        model, start = doubled(model, start)
        coarse, moments = moments, _moments(model, start, ts)
        least = coarse.shape[2] - 1
        changes = np.max(np.abs(moments[:, :, : least + 1] - coarse), axis=(1, 2))
        scale = np.maximum(1.0, np.max(np.abs(moments), axis=(1, 2)))
        error = float(changes[0] + max(changes[1:]) / n)
        if levels is not None or np.all(changes <= _TRUNCATION * scale):
            break
    path, correction, variance = moments[:, :, : least + 1]
    refined, stdev = path + correction / n, np.sqrt(variance / n)
    return LinearNoise({"model": describe(model), "levels": least}, ts, path[:, 1:], stdev[:, 1:], path[:, 0], stdev[:, 0],
                       refined[:, 1:], refined[:, 0], error)


def _moments(model: PopulationModel, start: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """(3, time, 1 + level): x, m and the diagonal of W, of Q and of the tails, at the levels the model has."""
    size = start.size
    if size > _MOST_STATES:
        raise ValueError(f"linear_noise needs at most {_MOST_STATES} states, for it follows the square of their number; got {size} "
                         f"in {_check.shown(model)}; use a model of fewer states, or fewer levels")

    def complaint(states: np.ndarray) -> str | None:
        least = np.min(np.diagonal(_covariance(states, size), axis1=1, axis2=2), initial=0.0)
        return bad_path(model, states[:, :size], 1e-8) or (f"a variance falls to {least:.2g}" if least < -1e-8 else None)

    # W relaxes at twice the rate of x
    states = ode.solve(_noise, np.concatenate([start, np.zeros(size + size**2)]), ts, model,
                       step=_step(model, start, 0.0, "odeint") / 2, check=complaint)
    tails = np.asarray(model.tail(np.eye(size)), np.float64)
    tails = np.concatenate([tails.sum(axis=0, keepdims=True), tails])
    variance = np.einsum("ik,tkl,il->ti", tails, _covariance(states, size), tails, optimize=True)
    # below zero by no more than the tolerance of the integrator, which `complaint` has seen to
    return np.stack([states[:, :size] @ tails.T, states[:, size: 2 * size] @ tails.T, np.maximum(variance, 0.0)])


def _covariance(states: np.ndarray, size: int) -> np.ndarray:
    return states[:, 2 * size:].reshape(-1, size, size)


def _noise(state: jax.Array, t: Any, model: PopulationModel) -> jax.Array:
    """Right-hand side of (x, m, W), W flattened."""
    size = model.jumps.shape[1]
    x, m, w = state[:size], state[size: 2 * size], state[2 * size:].reshape(size, size)
    b, jacobian = forcing(model, x, w)
    moved = jacobian @ w
    return jnp.concatenate([model.drift(x), jacobian @ m + b, (moved + moved.T + model.diffusion(x)).ravel()])


def _refuse_random_start(model: PopulationModel) -> None:
    nobody = np.arange(8, dtype=np.uint32)
    model, state = model.init(None, (nobody, nobody))
    counts = np.asarray(model.counts(state))
    if np.any(counts != counts[:, :1]):
        raise ValueError(f"linear_noise needs one initial state; from None {type(model).__name__} starts at random (for PULL with "
                         "R routers the split of the messages, which is neutral); give densities, or use routers=1")
