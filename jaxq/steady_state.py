"""What `stationary` returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .ensemble import Result
from .estimate import Regression
from .losses import EVERYONE

SHOWS = 4.0  # standard errors at which the start is said to show
_PAIRS = ("mean_queue_length", "mean_response_time", "p_wait", "p_block", "messages_per_customer")


@dataclass(frozen=True)
class Stationary(Result):
    """Steady state of a model, from `jaxq.stationary`. Every mean has its standard error beside it, `..._stderr`.

    mean_queue_length: customers per server, the one in service included. mean_response_time: of the customers served, by
      Little's law, in the unit of the rates. p_wait: a customer joins a busy server; p_block: it is lost; nan where the
      model does not tell. tail (level,): fraction of servers with at least i customers, level 1 first. Levels that few replicas
      reached have errors that are too small, as rare events do: take more replicas where they matter. Where no customer
      waited or was lost, the error is that of two who may have been missed (`losses.py`).
    tail_variance (level,), mean_queue_length_variance: of the random S_i and Q at one time.
    T_mean, T_stderr (level,): eta (1 - S_i) where the model knows eta. busy (pool,): busy fraction of each pool.
      messages_per_customer: of PULL. None elsewhere.
    warmup, horizon: time left out, and length of the window, in units of the rates. rel_error: stderr / mean of
      mean_queue_length as reached; converged: it is at most rel_error_target, the warm-up was not cut short and the start does
      not show. events: ticks of all replicas together.
    degrees_of_freedom: of the errors' t distribution. effective_samples: independent states that would give the same error;
      control_gain: the variance of mean_queue_length without control variates over that with them.
    drift: second half of the window minus the first, starts_apart: crowded start minus empty one (0 with one start), both
      of mean_queue_length in standard errors, as if they were normal; above 4 the start shows.
    algorithm, step, tail_step_error (level,), mean_queue_length_step_error, ..._stderr: as in `Ensemble`: what a leap's step adds.
    replica_tail (replica, level), pool_tail (replica, pool, level; None for one pool), controls (replica, control): averages
      of the independent samples, without control variates: the replicas, or batches of them where they are few.
      controls_unseen (control,): what losses that the run may have missed add to each, nan where not known.

    Sources: Little's law, doi:10.1287/opre.9.3.383; control variates and their errors, doi:10.1287/mnsc.27.3.322 and
    doi:10.1016/0304-4076(85)90158-7.

    Example, M/M/1, where a fraction rho**i of the queues has at least i customers::

        >>> found = jaxq.stationary(jaxq.Supermarket(10, 1, 0.5), key=0, replicas=64, rel_error=0.02)
        >>> found.tail[:2].round(2).tolist(), round(found.p_wait, 2)
        ([0.5, 0.25], 0.5)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        **dict.fromkeys(("tail", "tail_stderr", "tail_variance", "tail_variance_stderr", "T_mean", "T_stderr",
                         "tail_step_error", "tail_step_error_stderr"), ("level",)),
        "busy": ("pool",), "busy_stderr": ("pool",), "replica_tail": ("replica", "level"),
        "pool_tail": ("replica", "pool", "level"), "controls": ("replica", "control"),
        "controls_unseen": ("control",)}
    json_keys: ClassVar[tuple[str, ...]] = ("warmup", "horizon", "rel_error", "converged", "events", "seconds", "compile_seconds",
                                            "effective_samples", "control_gain", "replicas", "seed", "model", "algorithm")
    json_extras: ClassVar[tuple[str, ...]] = ("step", "mean_queue_length_step_error", "mean_queue_length_step_error_stderr")

    mean_queue_length: float
    mean_queue_length_stderr: float
    mean_queue_length_variance: float
    mean_queue_length_variance_stderr: float
    mean_response_time: float
    mean_response_time_stderr: float
    p_wait: float
    p_wait_stderr: float
    p_block: float
    p_block_stderr: float
    tail: np.ndarray
    tail_stderr: np.ndarray
    tail_variance: np.ndarray
    tail_variance_stderr: np.ndarray
    T_mean: np.ndarray | None
    T_stderr: np.ndarray | None
    busy: np.ndarray | None
    busy_stderr: np.ndarray | None
    messages_per_customer: float | None
    messages_per_customer_stderr: float | None
    warmup: float
    horizon: float
    rel_error: float
    rel_error_target: float
    converged: bool
    degrees_of_freedom: int
    effective_samples: float
    control_gain: float
    drift: float
    starts_apart: float
    replica_tail: np.ndarray
    pool_tail: np.ndarray | None
    controls: np.ndarray
    controls_unseen: np.ndarray
    service_rates: tuple[float, ...] | None
    events: int
    replicas: int
    seed: int
    seconds: float
    compile_seconds: float
    model: dict[str, Any]
    algorithm: str
    step: float | None
    tail_step_error: np.ndarray | None
    tail_step_error_stderr: np.ndarray | None
    mean_queue_length_step_error: float | None
    mean_queue_length_step_error_stderr: float | None

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line: every mean with its standard error, then how they were found."""
        def pair(mean: Any, error: Any) -> dict[str, Any]:
            return {"mean": _number(mean), "stderr": _number(error)}

        found: dict[str, Any] = {name: pair(getattr(self, name), getattr(self, f"{name}_stderr")) for name in _PAIRS
                                 if getattr(self, name) is not None}
        for name in ("tail", "busy"):
            if getattr(self, name) is not None:
                found[name] = [pair(*both) for both in zip(getattr(self, name), getattr(self, f"{name}_stderr"), strict=True)]
        return found | super().to_json()

    def response_tail(self, ts: Any) -> tuple[np.ndarray, np.ndarray]:
        """P(T > t) of the customers served, first come first served, and standard errors, both (time,), at ts (time,), in the
        unit of the rates.

        A customer that joins k others waits for k + 1 services of its server: a mixture of Erlang laws. By flow balance
        customers join at length k as often as servers with k + 1 customers finish one.

        Raises ValueError where the servers' rates are not known by pools, and for negative times.

        Example, M/M/1, where P(T > t) = exp(-(1 - rho) t)::

            >>> found = jaxq.stationary(jaxq.Supermarket(10, 1, 0.5), key=0, replicas=64, rel_error=0.02)
            >>> found.response_tail([0.0, 1.0, 2.0])[0].round(2).tolist(), np.exp([0.0, -0.5, -1.0]).round(2).tolist()
            ([1.0, 0.61, 0.37], [1.0, 0.61, 0.37])
        """
        from scipy.special import gammaincc

        from . import _check

        ts = _check.times(ts)
        if self.service_rates is None:
            raise ValueError(f"response_tail needs servers of known rates, alike within each pool; {self.model['name']} has none")
        tails = self.replica_tail[:, None, :] if self.pool_tail is None else self.pool_tail
        joined = -np.diff(tails, axis=2, append=0.0) * np.array(self.service_rates)[:, None]   # (replica, pool, length)
        length = np.arange(1, tails.shape[2] + 1)
        erlang = gammaincc(length, np.multiply.outer(ts, self.service_rates)[:, :, None])      # (time, pool, length)
        longer, served = np.einsum("rpl,tpl->rt", joined, erlang), joined.sum(axis=(1, 2))
        return Regression(self.controls, self.controls_unseen, EVERYONE).ratio(longer, served[:, None])


def _number(value: Any) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None
