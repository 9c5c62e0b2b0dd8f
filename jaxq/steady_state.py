"""What `stationary` returns, and how it comes from the sums over the window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import step_error
from .algorithms import exact_model
from .chain import Model, Steady
from .ensemble import Result, describe
from .estimate import MISSED, Regression, in_errors, plain_error
from .leap import Leap
from .losses import Losses
from .time_average import Sums, at_levels

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
        >>> found.tail[:3].round(3).tolist(), round(found.p_wait, 3)
        ([0.5, 0.25, 0.125], 0.5)
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
        return Regression(self.controls, self.controls_unseen).ratio(longer, served[:, None])


class Samples:
    """Independent samples of a window: `batches` batches of every replica.

    Args: cells, in order, for each the sums of every start; clock; the model (as it has grown); what is known of it.
    """

    def __init__(self, cells: Sequence[Sequence[Sums]], batches: int, clock: float, model: Model, known: Steady) -> None:
        self._model, self._known = model, known
        size = len(cells) // batches
        grouped = self._batches = [_sum(cells[k * size + j] for j in range(size)) for k in range(batches)]
        levels = max(sums.tail.shape[1] for batch in grouped for sums in batch)
        everything = [sums for batch in grouped for sums in batch]

        def gather(name: str) -> np.ndarray:
            """(samples, ...) averages over looks."""
            return np.concatenate([np.moveaxis(at_levels(getattr(sums, name), levels), -1, 0) / sums.looks for sums in everything])

        self.tail, self.tail_square, self.queues, self.queue_square = map(gather, ("tail", "tail_square", "queue", "queue_square"))
        flow, second = gather("flow"), gather("second")
        if np.isnan(second).any():  # a leap that halved its steps has none
            flow, second = np.zeros_like(flow), np.zeros_like(second)
        self._time = np.concatenate([np.full(sums.queue.size, sums.ticks / clock) for sums in everything])
        self._counters = {name: np.concatenate([sums.counters[name] for sums in everything]) for name in everything[0].counters}
        counted = known.arrivals and "arrivals" in self._counters and not isinstance(model, Leap)  # a leap's are not exactly those
        arrived = self._rate("arrivals") - 1 if counted else np.zeros_like(second)
        self._apart_by_step = gather("apart")
        self._losses = Losses(known, model, self._counters.get("lost"), self._time.sum())
        balances, unseen = self._losses.balances(second, flow, max(float(sums.queue_most.max()) for sums in everything))
        self.controls, self._unseen = np.column_stack([balances, arrived]), np.append(unseen, 0.0)
        self._regression = Regression(self.controls, self._unseen)
        self._halves = [_sum(cells[: len(cells) // 2]), _sum(cells[len(cells) // 2:])]
        self._start = np.concatenate([np.full(sums.queue.size, k % len(cells[0])) for k, sums in enumerate(everything)])

    def _rate(self, counter: str) -> np.ndarray:
        """(samples,) counts over the expected number of arrivals."""
        return self._counters[counter] / (self._time * self._known.arrivals)  # type: ignore[operator]

    def queue(self) -> tuple[float, float]:
        """Mean queue length and its standard error."""
        return self._coarse(self._regression.means(self.queues))

    def _coarse(self, found: tuple[Any, Any], unit: float = 1.0) -> tuple[float, float]:
        """A mean and its error, which is at least that of a server on a level where no look saw any; it counts `unit`."""
        looks = sum(sums.looks * sums.queue.size for batch in self._batches for sums in batch)
        missed = MISSED if self._known.lossless or not self.tail[:, :, -1].any() else 0.0  # else there is no further level
        return float(found[0]), math.hypot(found[1], missed * unit / (self._model.n * looks))

    def _share(self, counter: str, missed: float) -> tuple[float, float]:
        """Share of the customers counted, and its error: that of the `missed` ones where few or none are."""
        arrivals = self._known.arrivals * self._time.sum()  # type: ignore[operator]
        found = (self._counters[counter].sum(), missed) / arrivals if missed > 0 else self._regression.means(self._rate(counter))
        return float(found[0]), float(found[1])

    def result(self, *, warmup: float, horizon: float, target: float, cut: bool, **run: Any) -> Stationary:
        means = self._regression.means
        queue, error = self.queue()
        everyone = self.tail.sum(axis=1)
        used = max(1, int(np.max(np.flatnonzero(everyone.any(axis=0)), initial=0)) + 1)
        everyone, tails = everyone[:, :used], self.tail[:, :, :used]
        tail, tail_error = means(everyone)
        variance, variance_error = self._regression.variance(everyone, self.tail_square[:, :used])
        spread, spread_error = self._regression.variance(self.queues, self.queue_square)
        plain = float(plain_error(self.queues))
        measures = self._measures(tails)
        eta = getattr(self._model, "eta", None)
        many, drift, apart = tails.shape[1] > 1, self._drift(), self._apart()
        return Stationary(
            mean_queue_length=queue, mean_queue_length_stderr=error, mean_queue_length_variance=float(spread),
            mean_queue_length_variance_stderr=float(spread_error), **measures, tail=tail, tail_stderr=tail_error,
            tail_variance=variance, tail_variance_stderr=variance_error,
            T_mean=None if eta is None else eta * (1 - tail), T_stderr=None if eta is None else eta * tail_error,
            warmup=warmup, horizon=horizon, rel_error=error / queue if queue > 0 else math.inf, rel_error_target=target,
            converged=bool(queue > 0 and error <= target * queue and not cut and max(abs(drift), abs(apart)) <= SHOWS),
            degrees_of_freedom=self._regression.dof,
            effective_samples=float(spread) / error**2 if error > 0 else math.inf,
            control_gain=(plain / error) ** 2 if self._regression.dof < self.queues.size - 1 else 1.0, drift=drift,
            starts_apart=apart,
            replica_tail=everyone, pool_tail=tails if many else None, controls=self.controls, controls_unseen=self._unseen,
            service_rates=self._known.rates, model=describe(exact_model(self._model)), **self._step_errors(used), **run)

    def _step_errors(self, levels: int) -> dict[str, Any]:
        """What the step adds to the means, where there is one."""
        if not isinstance(self._model, Leap):
            return step_error.none(self._model)
        found = step_error.of_means(self._model, self._apart_by_step.T)
        return {"algorithm": "leap", "step": float(self._model.step)} | {
            name: value[:levels] if value.ndim else float(value) for name, value in found.items()}

    def _measures(self, tails: np.ndarray) -> dict[str, Any]:
        """What customers meet; `tails` (samples, pools, levels)."""
        known, regression, n = self._known, self._regression, self._model.n
        zero, missing = (0.0, 0.0), (math.nan, math.nan)
        found: dict[str, Any] = dict.fromkeys(("mean_response_time", "p_wait", "p_block"), missing)
        found |= {"busy": None, "messages_per_customer": None}
        if known.arrivals is not None:
            per_server = known.arrivals / n
            if known.lossless or "lost" in self._counters:
                lost = np.zeros(self.queues.size) if known.lossless else self._rate("lost")
                found["p_block"] = zero if known.lossless else self._share("lost", self._losses.missed)
                found["mean_response_time"] = self._coarse(regression.ratio(self.queues, per_server * (1 - lost)), 1 / per_server)
            if "waited" in self._counters:
                found["p_wait"] = self._share("waited", 0.0 if self._counters["waited"].any() else MISSED)
            elif known.rates is not None:  # joining a busy server raises it to level 2 or more: as often as one leaves level 2
                second = tails[:, :, 1] if tails.shape[2] > 1 else np.zeros(tails.shape[:2])
                found["p_wait"] = self._coarse(regression.means(second @ np.array(known.rates) / per_server),
                                               max(known.rates) / per_server)
            if "messages" in self._counters:
                found["messages_per_customer"] = regression.means(self._rate("messages"))
        if tails.shape[1] > 1:
            found["busy"] = tuple(part / np.array(known.fractions) for part in regression.means(tails[:, :, 0]))
        return {name + suffix: None if pair is None else pair[k] if name == "busy" else float(pair[k])
                for name, pair in found.items() for k, suffix in enumerate(("", "_stderr"))}

    def _drift(self) -> float:
        if len(self._batches) > 1:
            middle = self.queues.size // 2
            first, second = self.queues[:middle], self.queues[middle:]
            error = math.hypot(float(plain_error(first)), float(plain_error(second)))
            return in_errors(float(second.mean() - first.mean()), error, self.queues.size - 2)
        first, second = (np.concatenate([sums.queue / sums.looks for sums in half]) for half in self._halves)
        return in_errors(float(np.mean(second - first)), float(plain_error(second - first)), first.size - 1)

    def _apart(self) -> float:
        if self._start.max() == 0:
            return 0.0
        mine = [self._start == k for k in range(2)]
        sides = [Regression(self.controls[chosen], self._unseen) for chosen in mine]
        (low, low_error), (high, high_error) = (side.means(self.queues[chosen]) for side, chosen in zip(sides, mine, strict=True))
        return in_errors(float(high - low), math.hypot(low_error, high_error), sides[0].dof + sides[1].dof)


def _sum(cells: Any) -> list[Sums]:
    """The sums of cells, start by start."""
    first, *others = cells
    for other in others:
        first = [a + b for a, b in zip(first, other, strict=True)]
    return list(first)


def _number(value: Any) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None
