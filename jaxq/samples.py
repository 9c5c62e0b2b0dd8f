"""Independent samples of a window, and the steady state that they give."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import step_error
from .algorithms import exact_model
from .chain import Model, Steady
from .ensemble import describe
from .estimate import MISSED, Regression, in_errors, plain_error
from .leap import Leap
from .losses import EVERYONE, Losses
from .steady_state import SHOWS, Stationary
from .time_average import Sums, at_levels


class Samples:
    """Independent samples of a window: `batches` batches of every replica.

    Args: cells, in order, for each the sums of every start; clock; the model (as it has grown); what is known of it.
    """

    def __init__(self, cells: Sequence[Sequence[Sums]], batches: int, clock: float, model: Model, known: Steady) -> None:
        self._model, self._known = model, known
        size = len(cells) // batches
        grouped = self._batches = [_sum(cells[k * size + j] for j in range(size)) for k in range(batches)]
        everything = [sums for batch in grouped for sums in batch]
        levels = max(part.shape[1] for sums in everything for part in (sums.tail, sums.flow))  # flow may know one more

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
        self._losses = Losses(known, exact_model(model), self._counters.get("lost"), self._time.sum())
        balances, unseen = self._losses.balances(second, flow, max(float(sums.queue_most.max()) for sums in everything))
        self.controls, self._unseen = np.column_stack([balances, arrived]), np.append(unseen, 0.0)
        self._regression = Regression(self.controls, self._unseen, EVERYONE)
        self._halves = [_sum(cells[: len(cells) // 2]), _sum(cells[len(cells) // 2:])]
        self._start = np.concatenate([np.full(sums.queue.size, k % len(cells[0])) for k, sums in enumerate(everything)])

    def _rate(self, counter: str) -> np.ndarray:
        """(samples,) counts over the expected number of arrivals."""
        return self._counters[counter] / (self._time * self._known.arrivals)  # type: ignore[operator]

    def queue(self) -> tuple[float, float]:
        """Mean queue length and its standard error."""
        mean, error = self._regression.means(self.queues)
        return float(mean), math.hypot(error, self._grain)

    @functools.cached_property
    def _server(self) -> float:
        """Error of a fraction of servers where no look saw any that counts."""
        return MISSED / (self._model.n * sum(sums.looks * sums.queue.size for batch in self._batches for sums in batch))

    @functools.cached_property
    def _grain(self) -> float:
        """The least error of a mean queue length: of servers on a level where no look saw any; 0 where there is no such level."""
        return self._server if self._known.lossless or not self.tail[:, :, -1].any() else 0.0

    def _fractions(self, servers: np.ndarray, most: Any) -> tuple[Any, Any]:
        """Means (...,) of fractions of servers (samples, ...), at most `most`, and their errors."""
        mean, error = self._regression.means(servers)
        return mean, np.where((servers == 0).all(axis=0) | (servers == most).all(axis=0), self._server, error)

    def _share(self, counter: str, missed: float) -> tuple[float, float]:
        """Share of the customers counted, and its error: that of the `missed` ones where few or none are."""
        arrivals = self._known.arrivals * self._time.sum()  # type: ignore[operator]
        found = (self._counters[counter].sum(), missed) / arrivals if missed > 0 else self._regression.means(self._rate(counter))
        return float(found[0]), float(found[1])

    def result(self, *, warmup: float, horizon: float, target: float, cut: bool, **run: Any) -> Stationary:
        queue, error = self.queue()
        everyone = self.tail.sum(axis=1)
        used = max(1, int(np.max(np.flatnonzero(everyone.any(axis=0)), initial=0)) + 1)
        everyone, tails = everyone[:, :used], self.tail[:, :, :used]
        tail, tail_error = self._fractions(everyone, 1.0)
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
                mean, error = regression.ratio(self.queues, per_server * (1 - lost))
                missed = mean * found["p_block"][1] if self._losses.missed > 0 else 0.0  # else the ratio's error has it
                found["mean_response_time"] = mean, math.hypot(error, self._grain / per_server, missed)
            waits = self.tail.shape[2] > 1
            if "waited" in self._counters:
                found["p_wait"] = self._share("waited", MISSED if waits and not self._counters["waited"].any() else 0.0)
            elif known.rates is not None:  # joining a busy server raises it to level 2 or more: as often as one leaves level 2
                second = tails[:, :, 1] if tails.shape[2] > 1 else np.zeros(tails.shape[:2])
                mean, error = regression.means(second @ np.array(known.rates) / per_server)
                found["p_wait"] = mean, math.hypot(error, max(known.rates) * self._server * waits / per_server)
            if "messages" in self._counters:
                found["messages_per_customer"] = regression.means(self._rate("messages"))
        if tails.shape[1] > 1:
            found["busy"] = tuple(part / np.array(known.fractions) for part in self._fractions(tails[:, :, 0], known.fractions))
        return {name + suffix: None if pair is None else pair[k] if name == "busy" else float(pair[k])
                for name, pair in found.items() for k, suffix in enumerate(("", "_stderr"))}

    def _drift(self) -> float:
        if len(self._batches) > 1:
            middle = self.queues.size // 2
            if middle < 2:
                return 0.0
            first, second = self.queues[:middle], self.queues[middle:]
            error = math.hypot(float(plain_error(first)), float(plain_error(second)))
            return in_errors(float(second.mean() - first.mean()), error, self.queues.size - 2)
        first, second = (np.concatenate([sums.queue / sums.looks for sums in half]) for half in self._halves)
        return in_errors(float(np.mean(second - first)), float(plain_error(second - first)), first.size - 1)

    def _apart(self) -> float:
        if self._start.max() == 0:
            return 0.0
        mine = [self._start == k for k in range(2)]
        sides = [Regression(self.controls[chosen], self._unseen, EVERYONE) for chosen in mine]
        (low, low_error), (high, high_error) = (side.means(self.queues[chosen]) for side, chosen in zip(sides, mine, strict=True))
        return in_errors(float(high - low), math.hypot(low_error, high_error, 3 * self._grain), sides[0].dof + sides[1].dof)


def _sum(cells: Any) -> list[Sums]:
    """The sums of cells, start by start."""
    first, *others = cells
    for other in others:
        first = [a + b for a, b in zip(first, other, strict=True)]
    return list(first)
