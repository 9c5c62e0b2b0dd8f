"""`stationary`: steady-state means of the exact chain with confidence intervals, by replicas and time averages.

The run is a warm-up and a window. Both, and the checks whether the window is long enough, sit at fixed tick numbers on a
doubling schedule, so that the speed of the machine never changes a result.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _check, bits, hosts, memory
from .algorithms import choose
from .chain import Model, Steady
from .checkpoint import EVERY, Checkpoint, identity, prefixed, under
from .engine import CHUNK, Engine
from .ensemble import describe_start
from .leap import Leap
from .samples import Samples
from .simulate import Interrupted, progress_bar
from .steady_state import SHOWS, Stationary
from .time_average import SEGMENTS, Sums
from .warmup import settle
from .watch import Watch, Watches

_RELAXATIONS = 10     # warm-up in relaxation times, where theory knows one: exp(-10) of the start is left
_LOOKS = 100          # looks in a window as long as the warm-up
_SAMPLES = 64         # independent samples wanted: replicas, or batches of replicas where there are fewer
_PAIR = 8             # replicas from which two starts are compared
_LEAST = 64           # mean service times, of about 2 n ticks each, after which averages count as independent at least


def stationary(model: Model, key: Any, *, replicas: int, rel_error: float = 0.005, warmup: float | None = None,
               horizon: float | None = None, initial: Any = None, max_events: float = 1e11, algorithm: str = "exact",
               step: float | None = None, order: int | None = None,
               devices: Sequence[Any] | None = None, block: int | None = None, checkpoint: Any = None, every: float = EVERY,
               resume: bool = False, progress: bool | None = None) -> Stationary:
    """Steady-state means of a model, with standard errors.

    Args:
      model: any jaxq model with a steady state.
      key: as in `simulate`. (seed, model, replicas and what follows) decide the result; devices, blocks and time do not.
      replicas: independent copies R. From 64 on the errors come from their averages; fewer are cut in batches of at least
        one warm-up each, which takes a longer window.
      rel_error: stop when stderr / mean of mean_queue_length is at most this.
      warmup: time to leave out, in units of the model's rates. None: 10 relaxation times where theory knows the slowest mode
        (supermarket model: 1/((1 - lambda) ln d), 1/(1 - sqrt(lambda))**2 at d = 1), from a start near the steady state.
        Elsewhere half of the replicas start empty and half crowded, and it is three times the time at which 5 % of their
        difference is left (`warmup.py`); with fewer than 8 replicas there is one start, and a warning.
      horizon: length of the window, in that unit. None: from a quarter of the warm-up on it is doubled until `rel_error` is met.
      initial: one start for all replicas instead, as `simulate` takes it.
      max_events: ticks of all replicas together at which the run ends, converged or not; two steps of a leap count as 1000,
        which is about what they cost.
      algorithm, step, order: as in `simulate`; the result's `..._step_error` say what a leap is wrong by.
      devices, block, progress: as in `simulate`.
      checkpoint, every, resume: as in `simulate`. A run can go on with other devices, a smaller `rel_error`, a longer `horizon`
        (with 64 replicas or more) and more replicas, new ones from time 0, but not with another `warmup`. Replicas that were
        looked at at other times than the run now needs begin again, with a warning.

    Returns `Stationary`. Warns (UserWarning) where the limit came first or the start still shows.

    Raises ValueError for bad input and for a model without a steady state, `Interrupted` with the last estimate on Ctrl-C.

    Example, ten M/M/1 queues, each with rho/(1 - rho) customers::

        >>> found = jaxq.stationary(jaxq.Supermarket(10, 1, 0.5), key=0, replicas=64, rel_error=0.02)
        >>> round(found.mean_queue_length, 1), found.mean_queue_length_stderr < 0.02, found.converged
        (1.0, True, True)
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
    on = _check.devices(devices)
    memory.check(memory.of_stationary(model, starts[0], replicas, SEGMENTS, on, kept=checkpoint is not None), on,
                 "use fewer replicas")
    file = Checkpoint.of(checkpoint, every, resume, "stationary")
    if file.kept:
        file = file.part("run", identity(model, words, starts, warmup=warmup))
    with progress_bar(0, progress) as bar:
        run = _Run(model, known, starts, words, replicas, devices, block, bar, file)
        try:
            run.warm_up(warmup, most)
            run.window(horizon, rel_error, most)
            run.keep()
        except KeyboardInterrupt:
            if not hosts.spans(on):  # else the others may be elsewhere; the last checkpoint stands
                run.keep()
            raise Interrupted(run.result(rel_error) if run.cells else None) from None
        result = run.result(rel_error)
    for message in run.complaints(result):
        warnings.warn(message, stacklevel=2)
    return result


class _Run:
    """One call of `stationary`: its engines, one for each start, and the sums over the window so far."""

    def __init__(self, model: Model, known: Steady, starts: Sequence[Any], words: np.ndarray, replicas: int, devices: Any,
                 block: int | None, bar: Any, file: Checkpoint) -> None:
        self.known, self.words, self.replicas, self.bar, self.file = known, words, replicas, bar, file
        self.given = {"initial": [describe_start(start) for start in starts], "order": getattr(model, "order", None)}
        self.began = time.perf_counter()
        self.watches: list[Watches] = []
        note: dict[str, Any] = {"replicas": [[]] * len(starts), "seconds": 0.0} if file.saved is None else file.saved.note
        sizes, self.before = note["replicas"], note["seconds"]
        shares = [replicas // len(starts) + (k < replicas % len(starts)) for k in range(len(starts))]
        if any(sum(own) > share for own, share in zip(sizes, shares, strict=True)):  # the second start may not have begun
            least = max(len(starts) * (sum(own) - 1) + k + 1 for k, own in enumerate(sizes))
            raise ValueError(f"replicas must be at least the {least} of the checkpoint; got {replicas}")
        for k, start in enumerate(starts):
            own = words if k == 0 else np.concatenate(bits.fold_in(words, np.array([2**32 - k], np.uint32)))
            several, first = [], 0
            for j, size in enumerate([*sizes[k], shares[k] - sum(sizes[k])]):
                if size:
                    make = functools.partial(Engine, model, start, own, size, devices=devices, block=block, segments=SEGMENTS,
                                             first=first)
                    several.append(Watch(make, self.passed, keep=file.kept))
                    first += size
                    if file.saved is not None and j < len(sizes[k]):
                        several[-1].restore(under(f"{k}.{j}", file.saved.arrays))
            self.watches.append(Watches(several))
        self.bar.update(sum(int(engine.ticks[: engine.replicas].sum()) for engine in self.engines()))
        self.clock = self.engines()[0].clock
        self.unit = max(1, round(self.clock)) if isinstance(model, Leap) else 2 * int(model.n)  # ticks in about a mean service time
        self.cells: list[list[Sums]] = []  # of the window, in order, each with its sums for every start
        self.cut = False                   # the limit came in the warm-up
        self.span = self.looks = 0         # its ticks, and the looks at it on its grid of (ticks, looks) that recurs
        self.closed = False                # the checkpoint is not written any more

    def passed(self, ticks: int) -> None:
        """Hear of the ticks done, at a point to go on from."""
        self.bar.update(ticks)
        if self.file.kept and self.watches[0].agree(self.file.due()):
            self.keep()

    def keep(self) -> None:
        """Write the checkpoint."""
        if not self.file.kept or self.closed:
            return
        sizes: list[list[int]] = [[] for _ in self.watches]
        arrays: dict[str, np.ndarray] = {}
        for k, watches in enumerate(self.watches):
            for j, watch in enumerate(watches.watches):
                if (part := watch.arrays()) is not None:
                    sizes[k].append(watch.engine.replicas)
                    arrays |= prefixed(f"{k}.{j}", part)
        if arrays:
            self.file.write({"replicas": sizes, "seconds": self.seconds()}, arrays)

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
        span = end = left if horizon is None else min(round(horizon * self.clock), left)
        if horizon is None:
            span = min(self.batches * scale if self.batches > 1 else scale // 4, left)
        else:
            while self.batches > 1 and span < self.batches * scale and self.replicas * self.batches > 2:
                self.batches //= 2
            if self.batches == 1 and 2 * (scale // 4) <= end:
                span = scale // 4  # and on as without a horizon, so that a longer one goes on from a shorter one
        cells = max(self.batches, 2)
        span = max(span, cells) if self.doubling else span
        looks = max(1, span // (gap * cells))
        if span < cells or self.replicas * self.batches < 2:
            raise ValueError(f"stationary needs a window of {cells} ticks and 2 independent samples at least; got {span} ticks and "
                             f"{self.replicas} replicas; raise horizon, max_events or replicas")
        self.grid = (span, looks * cells)
        self._look([], looks * cells, cells)
        while 2 * self.span <= end and (horizon is not None or self.watches[0].agree(self._rel_error() > rel_error)):
            pairs = zip(self.cells[::2], self.cells[1::2], strict=True)
            self._look([[a + b for a, b in zip(*pair, strict=True)] for pair in pairs], 2 * self.looks, len(self.cells) // 2)
        if horizon is not None and self.span < end:
            last = end * self.grid[1] // self.grid[0]
            if last > self.looks:
                self._look(self.cells, last, 1)
            self.keep()  # a longer horizon goes on from here
            self.closed = True
            if self.span < end:
                self._append(self.cells, [np.array([end - self.span])], end)

    def _look(self, before: list[list[Sums]], until: int, cells: int) -> None:
        """Look at the window until its look number `until`, in as many cells of alike looks, after the cells `before`."""
        ticks, looks = self.grid
        gaps = np.diff([ticks * k // looks for k in range(self.looks, until + 1)])
        self._append(before, np.split(gaps, cells), ticks * until // looks)
        self.looks = until

    def _append(self, before: list[list[Sums]], gaps: list[np.ndarray], last: int) -> None:
        """Cells of looks to tick `last` of the window, after the cells `before`; an interrupt leaves the window as it was."""
        self._expect(last - self.span)
        added = [[watch.look(part) for watch in self.watches] for part in gaps]
        # the path is for the warm-up alone
        self.cells = before + [[dataclasses.replace(sums, path=sums.path[:0]) for sums in cell] for cell in added]
        self.span = last

    def _expect(self, ticks: int) -> None:
        self.bar.total = (self.bar.total or 0) + ticks * self.replicas
        self.bar.refresh()

    def _samples(self) -> Samples:
        return Samples(self.cells, self.batches, self.clock, self.engines()[0].model, self.known)

    def _rel_error(self) -> float:
        mean, error = self._samples().queue()
        self.bar.set_postfix_str(f"Q = {mean:.4g} +- {error:.1g}")
        return error / mean if mean > 0 else float("inf")

    def result(self, rel_error: float) -> Stationary:
        engines = self.engines()
        events = sum(int(engine.totals.get("events", engine.ticks)[: engine.replicas].sum()) for engine in engines)
        return self._samples().result(
            warmup=self.ticks / self.clock, horizon=self.span / self.clock, target=rel_error, cut=self.cut, events=events,
            replicas=self.replicas, seed=int(self.words[0]) << 32 | int(self.words[1]), seconds=self.seconds(),
            compile_seconds=sum(engine.compile_seconds for engine in engines), attributes=self.given)

    def engines(self) -> list[Engine]:
        """All engines, those of the first start first."""
        return [watch.engine for watches in self.watches for watch in watches.watches]

    def seconds(self) -> float:
        """Wall time without compilation, that before the checkpoint included."""
        return self.before + time.perf_counter() - self.began - sum(engine.compile_seconds for engine in self.engines())

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
        again = sum(watch.engine.replicas for watches in self.watches for watch in watches.watches if watch.again)
        if again:
            found.append(f"{again} replicas of the checkpoint began again from time 0: with this warm-up, window or number of "
                         "replicas they are looked at at other times")
        if (self.known.relaxation is None or len(self.known.starts) > 1) and len(self.watches) == 1 and self.automatic:
            found.append("the warm-up could not be cross-checked by a second start; compare with a run from another initial")
        return found
