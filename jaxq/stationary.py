"""`stationary`: steady-state means of the exact chain with confidence intervals, by replicas and time averages.

The run is a warm-up and a window. Both, and the checks whether the window is long enough, sit at fixed tick numbers on a
doubling schedule, so that the speed of the machine never changes a result.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from . import _check, bits, memory
from .algorithms import choose
from .chain import Model, Steady
from .engine import CHUNK, Engine
from .leap import Leap
from .simulate import Interrupted, progress_bar
from .steady_state import SHOWS, Samples, Stationary
from .time_average import SEGMENTS, Sums, Watch
from .warmup import settle

_RELAXATIONS = 10     # warm-up in relaxation times, where theory knows one: exp(-10) of the start is left
_LOOKS = 100          # looks in a window as long as the warm-up
_SAMPLES = 64         # independent samples wanted: replicas, or batches of replicas where there are fewer
_PAIR = 8             # replicas from which two starts are compared
_LEAST = 64           # mean service times, of about 2 n ticks each, after which averages count as independent at least


def stationary(model: Model, key: Any, *, replicas: int, rel_error: float = 0.005, warmup: float | None = None,
               horizon: float | None = None, initial: Any = None, max_events: float = 1e11, algorithm: str = "exact",
               step: float | None = None, order: int | None = None,
               devices: Sequence[Any] | None = None, block: int | None = None, progress: bool | None = None) -> Stationary:
    """Steady-state means of a model, with standard errors.

    Args:
      model: any jaxq model with a steady state.
      key: as in `simulate`. (seed, model, replicas and what follows) decide the result; devices, blocks and time do not.
      replicas: independent copies R. From 64 on the errors come from their averages; fewer are cut in batches of at least
        one warm-up each, which takes a longer window.
      rel_error: stop when stderr / mean of mean_queue_length is at most this.
      warmup: time to leave out. None: 10 relaxation times where theory knows the slowest mode (supermarket model:
        1/((1 - lambda) ln d), 1/(1 - sqrt(lambda))**2 at d = 1), from a start near the steady state. Elsewhere half of the
        replicas start empty and half crowded, and it is three times the time at which 5 % of their difference is left
        (`warmup.py`); with fewer than 8 replicas there is one start, and a warning.
      horizon: length of the window. None: from a quarter of the warm-up on it is doubled until `rel_error` is met.
      initial: one start for all replicas instead, as `simulate` takes it.
      max_events: ticks of all replicas together at which the run ends, converged or not; two steps of a leap count as 1000,
        which is about what they cost.
      algorithm, step, order: as in `simulate`; the result's `..._step_error` say what a leap is wrong by.
      devices, block, progress: as in `simulate`.

    Returns `Stationary`. Warns (UserWarning) where the limit came first or the start still shows.

    Raises ValueError for bad input and for a model without a steady state, `Interrupted` with the last estimate on Ctrl-C.
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a jaxq model such as jaxq.Supermarket(...); got {type(model).__name__}")
    replicas = _check.integer("replicas", replicas, 1, 2**31 - 1, "the error bars come from independent replicas")
    rel_error = _check.real("rel_error", rel_error, 0.0, 1.0, open_low=True)
    model = choose(model, algorithm, step, order)
    most = int(_check.real("max_events", max_events, 1.0) / model.work) // replicas
    warmup = None if warmup is None else _check.real("warmup", warmup, 0.0)
    horizon = None if horizon is None else _check.real("horizon", horizon, 0.0, open_low=True)
    known, words = model.steady(), bits.key_words(key)
    starts = (initial,) if initial is not None else known.starts if replicas >= _PAIR else known.starts[:1]
    on = jax.devices() if devices is None else list(devices)
    memory.check(memory.of_stationary(model, starts[0], replicas, SEGMENTS, on), on, "use fewer replicas")
    with progress_bar(0, progress) as bar:
        run = _Run(model, known, starts, words, replicas, devices, block, bar)
        try:
            run.warm_up(warmup, most)
            run.window(horizon, rel_error, most)
        except KeyboardInterrupt:
            raise Interrupted(run.result(rel_error) if run.cells else None) from None
        result = run.result(rel_error)
    for message in run.complaints(result):
        warnings.warn(message, stacklevel=2)
    return result


class _Run:
    """One call of `stationary`: its engines, one for each start, and the sums over the window so far."""

    def __init__(self, model: Model, known: Steady, starts: Sequence[Any], words: np.ndarray, replicas: int, devices: Any,
                 block: int | None, bar: Any) -> None:
        self.known, self.words, self.replicas, self.bar = known, words, replicas, bar
        self.began = time.perf_counter()
        self.watches: list[Watch] = []
        for k, start in enumerate(starts):
            own = words if k == 0 else np.concatenate(bits.fold_in(words, np.array([2**32 - k], np.uint32)))
            share = replicas // len(starts) + (k < replicas % len(starts))
            engine = Engine(model, start, own, share, devices=devices, block=block, segments=SEGMENTS)
            self.watches.append(Watch(engine, bar.update))
        self.clock = self.watches[0].engine.clock
        self.unit = max(1, round(self.clock)) if isinstance(model, Leap) else 2 * int(model.n)  # ticks in about a mean service time
        self.cells: list[list[Sums]] = []  # of the window, in order, each with its sums for every start
        self.cut = False                   # the limit came in the warm-up

    def warm_up(self, warmup: float | None, most: int) -> None:
        due, passed, self.automatic = 0, 0, warmup is None
        if warmup is not None:
            due = round(warmup * self.clock)
        else:
            if self.known.relaxation is None or len(self.known.starts) > 1:
                due, passed, seen = settle(self.watches, max(CHUNK, self.unit), most // 2)
                self.cut = not seen
            due = max(due, self._relaxed())
        self.ticks = max(min(due, most // 2), passed)
        self.cut |= due > self.ticks
        self._expect(self.ticks - passed)
        for watch in self.watches:
            watch.skip(self.ticks - passed)

    def _relaxed(self) -> int:
        """Ticks of 10 relaxation times, as far as theory knows them."""
        return round(_RELAXATIONS * (self.known.relaxation or 0.0) * self.clock)

    def window(self, horizon: float | None, rel_error: float, most: int) -> None:
        scale = max(self.ticks, self._relaxed(), _LEAST * self.unit)  # averages over it are as good as independent
        gap = max(CHUNK, scale // _LOOKS)
        self.batches, self.doubling = 1, horizon is None
        while self.replicas * self.batches < _SAMPLES:
            self.batches *= 2
        left = most - self.ticks
        if horizon is not None:
            span = min(round(horizon * self.clock), left)
            while self.batches > 1 and span < self.batches * scale and self.replicas * self.batches > 2:
                self.batches //= 2
        else:
            span = min(self.batches * scale if self.batches > 1 else scale // 4, left)
        cells = max(self.batches, 2)
        span = max(span, cells) if self.doubling else span
        looks = max(1, span // (gap * cells))
        if span < cells or self.replicas * self.batches < 2:
            raise ValueError(f"stationary needs a window of {cells} ticks and 2 independent samples at least; got {span} ticks and "
                             f"{self.replicas} replicas; raise horizon, max_events or replicas")
        self._look([], 0, span, looks, cells)
        while horizon is None and self.ticks + 2 * span <= most and self.watches[0].engine.agree(self._rel_error() > rel_error):
            pairs = zip(self.cells[::2], self.cells[1::2], strict=True)
            merged = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
            looks *= 2
            self._look(merged, span, 2 * span, looks, cells // 2)
            span *= 2

    def _look(self, before: list[list[Sums]], first: int, last: int, looks: int, cells: int) -> None:
        """Look at the window from tick `first` to `last`, in cells of `looks` looks as evenly as ticks allow, after the cells
        `before`; an interrupt leaves the window as it was."""
        self._expect(last - first)
        count = looks * cells
        gaps = np.diff([first + (last - first) * k // count for k in range(count + 1)])
        added = [[watch.look(part) for watch in self.watches] for part in np.split(gaps, cells)]
        # the path is for the warm-up alone
        self.cells = before + [[dataclasses.replace(sums, path=sums.path[:0]) for sums in cell] for cell in added]
        self.span = last

    def _expect(self, ticks: int) -> None:
        self.bar.total = (self.bar.total or 0) + ticks * self.replicas
        self.bar.refresh()

    def _samples(self) -> Samples:
        return Samples(self.cells, self.batches, self.clock, self.watches[0].engine.model, self.known)

    def _rel_error(self) -> float:
        mean, error = self._samples().queue()
        self.bar.set_postfix_str(f"Q = {mean:.4g} +- {error:.1g}")
        return error / mean if mean > 0 else float("inf")

    def result(self, rel_error: float) -> Stationary:
        engines = [watch.engine for watch in self.watches]
        compiled = sum(engine.compile_seconds for engine in engines)
        events = sum(int(engine.totals.get("events", engine.ticks)[: engine.replicas].sum()) for engine in engines)
        return self._samples().result(
            warmup=self.ticks / self.clock, horizon=self.span / self.clock, target=rel_error, cut=self.cut, events=events,
            replicas=self.replicas, seed=int(self.words[0]) << 32 | int(self.words[1]), compile_seconds=compiled,
            seconds=time.perf_counter() - self.began - compiled)

    def complaints(self, result: Stationary) -> list[str]:
        """What the user must hear of."""
        found = []
        if self.cut:
            found.append(f"the limit of events came before the start was forgotten, after {result.warmup:.4g} time units of "
                         "warm-up; raise max_events")
        elif self.doubling and result.rel_error > result.rel_error_target:
            found.append(f"stderr / mean of the mean queue length is {result.rel_error:.2g}, above the {result.rel_error_target:g} "
                         "asked for; raise max_events or replicas")
        if abs(result.drift) > SHOWS:
            found.append(f"the start still shows: the second half of the window differs from the first by {result.drift:.1f} "
                         "standard errors; use a longer warm-up")
        if abs(result.starts_apart) > SHOWS:
            found.append(f"the start still shows: replicas that began empty and crowded differ by {result.starts_apart:.1f} "
                         "standard errors; use a longer warm-up")
        if (self.known.relaxation is None or len(self.known.starts) > 1) and len(self.watches) == 1 and self.automatic:
            found.append("the warm-up could not be cross-checked by a second start; compare with a run from another initial")
        return found
