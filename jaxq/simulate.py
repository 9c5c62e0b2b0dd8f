"""`simulate`: an ensemble of the exact chain on a time grid, with moments over replicas and their errors."""

from __future__ import annotations

import functools
import operator
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _check, bits, hosts, memory, step_error
from .algorithms import choose, exact_model
from .chain import Model
from .checkpoint import EVERY, Checkpoint, identity, prefixed, under
from .cohort import Cohort, stack
from .engine import CHUNK, SEGMENTS, Engine
from .ensemble import Ensemble, describe, describe_start
from .leap import Leap
from .moments import Moments


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `partial` is the result of what was reached (`simulate`: an Ensemble), or None.

    Example::

        >>> from jaxq.simulate import Interrupted
        >>> try:
        ...     result = jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50)
        ... except Interrupted as interrupted:
        ...     result = interrupted.partial
    """

    def __init__(self, partial: Any) -> None:
        super().__init__("interrupted")
        self.partial = partial


def simulate(model: Model, ts: Any, key: Any, *, replicas: int, initial: Any = None, save: str = "moments",
             algorithm: str = "exact", step: float | None = None, order: int | None = None,
             devices: Sequence[Any] | None = None, block: int | None = None, chunk: int = CHUNK, kernel: bool = False,
             checkpoint: Any = None, every: float = EVERY, resume: bool = False, progress: bool | None = None) -> Ensemble:
    """Simulate independent replicas of the chain and save them at the times `ts`.

    Args:
      model: any jaxq model.
      ts: save times (time,), increasing, >= 0, in units of the model's rates; the initial state is always at time 0.
      key: integer seed 0 <= seed < 2**64, or a typed threefry JAX key. (seed, model, ts) decide every integer of replica r:
        neither the number of replicas, devices or blocks nor other save times change it.
      replicas: number of independent copies R.
      initial: None (empty), or what the model takes (`Supermarket`: tail counts or fractions), the same in every replica.
      save: "moments" (mean, variance and error over replicas), or "paths" to keep every replica's tail counts as well.
      algorithm: "exact", tick by tick. "bulk": exact too, for `Supermarket` with 10**7 servers or more, about sqrt(n) ticks at a
        time; here the save times change the path (not its law), and integers are the same on one backend only. "leap": for
        population models with very many servers, steps of time at a cost that does not depend on n, wrong by what
        `..._step_error` of the result says; save times do not change its steps.
      step: of a leap, in time (None: a power of two from the rates); order: 1 or 2 (default), of its error in the step.
      devices: JAX devices to share the replicas (default: all local ones).
      block, chunk: replicas and ticks done together; they change the speed only. kernel: on a GPU or TPU, many ticks in one
        launch where the model can (`jaxq.kernel`); the same integers. Off by itself: it has not been run on a GPU yet.
      checkpoint: a file that is written every `every` seconds and at the end, also on Ctrl-C. resume: go on from it, bit for bit,
        also with other devices, more replicas or more times after those reached; from the start where it is not there yet.
      progress: a bar with the time left on stderr; None shows it on a terminal or in a notebook.

    Returns: `Ensemble`. Raises ValueError for bad input, `Interrupted` (with what was done) on Ctrl-C.

    Example::

        >>> model = jaxq.Supermarket(100, 2, 0.9)
        >>> jaxq.simulate(model, [0.0, 5.0], key=0, replicas=50).mean_queue_length.round(3)
        array([0.   , 1.412])
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a jaxq model such as jaxq.Supermarket(...); got {type(model).__name__}")
    ts, words = _check.times(ts), bits.key_words(key)
    _check.choice("save", save, ("moments", "paths"))
    replicas = _check.integer("replicas", replicas, 1, 2**31 - 1, "give the number of independent copies")
    segments = min(SEGMENTS, 1 << (ts.size - 1).bit_length())
    chosen, on = choose(model, algorithm, step, order), _check.devices(devices)
    memory.check(memory.of_simulate(chosen, initial, replicas, ts.size, save, segments, on, kept=checkpoint is not None), on,
                 "use fewer replicas" if save == "moments" else 'use save="moments", fewer times or fewer replicas')
    file = Checkpoint.of(checkpoint, every, resume, "simulate")
    if file.kept:
        file = file.part("run", identity(chosen, words, [initial], save=save))

    def cohort(first: int, count: int) -> Cohort:
        return Cohort(Engine(chosen, initial, words, count, devices=devices, block=block, chunk=chunk, segments=segments,
                             kernel=kernel, first=first), ts, save)

    run = _Run(cohort, replicas, file)
    given = {"initial": describe_start(initial), "order": getattr(chosen, "order", None)}
    with progress_bar(int(run.clock * ts[-1] * replicas), progress, "step" if algorithm == "leap" else "tick") as bar:
        try:
            run.go(bar.update)
        except KeyboardInterrupt:
            if not hosts.spans(on):  # else the others may be elsewhere; the last checkpoint stands
                run.keep()
            raise Interrupted(run.result(words, given) if run.reached else None) from None
    run.keep()
    return run.result(words, given)


class _Run:
    """One call of `simulate`: its cohorts, those of the checkpoint first."""

    def __init__(self, cohort: Callable[[int, int], Cohort], replicas: int, file: Checkpoint) -> None:
        self._file, self._started, self._before = file, time.perf_counter(), 0.0
        self.cohorts: list[Cohort] = []
        sizes = []
        if saved := file.saved:
            sizes, self._before = list(saved.note["replicas"]), saved.note["seconds"]
            if sum(sizes) > replicas:
                raise ValueError(f"replicas must be at least the {sum(sizes)} of the checkpoint; got {replicas}")
        first = 0
        for k, size in enumerate([*sizes, replicas - sum(sizes)]):
            if size:
                self.cohorts.append(cohort(first, size))
                first += size
                if saved and k < len(sizes):
                    self.cohorts[-1].restore(under(k, saved.arrays))
        self.clock = self.cohorts[0].engine.clock

    def go(self, passed: Callable[[int], Any]) -> None:
        """Advance to the last save time, cohort by cohort; `passed` hears of the ticks done, those of the checkpoint first."""
        for run in self.cohorts:
            passed(int(run.engine.ticks[: run.engine.replicas].sum()))
            for ticks in run:
                passed(ticks)
                if self._file.kept and run.engine.agree(self._file.due()):
                    self.keep()

    def keep(self) -> None:
        """Write the checkpoint."""
        if not self._file.kept:
            return
        started = {k: arrays for k, run in enumerate(self.cohorts) if (arrays := run.arrays()) is not None}
        if started:
            note = {"replicas": [self.cohorts[k].engine.replicas for k in started], "seconds": self._seconds()}
            self._file.write(note, {name: array for k, part in started.items() for name, array in prefixed(k, part).items()})

    @property
    def reached(self) -> int:
        """Save times that all replicas have reached."""
        return min(len(run.moments) for run in self.cohorts)

    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._started - sum(run.engine.compile_seconds for run in self.cohorts)

    def result(self, words: np.ndarray, given: dict[str, Any]) -> Ensemble:
        cohorts, times = self.cohorts, self.reached
        model = cohorts[0].engine.model
        n, eta = int(model.n), getattr(model, "eta", None)
        moments, apart = (_added([getattr(run, name)[:times] for run in cohorts]) for name in ("moments", "apart"))
        replicas = sum(run.engine.replicas for run in cohorts)
        rows = max(run.engine.model.tail(np.zeros((run.engine.counts_rows, 1))).shape[0] for run in cohorts)
        levels = min(max(max((one.used for one in moments), default=0), 8), rows)
        mean = np.array([one.mean(levels) for one in moments]).reshape(-1, 1 + levels) / n
        variance = np.array([one.variance(levels) for one in moments]).reshape(-1, 1 + levels) / n**2
        error = np.sqrt(variance / replicas)
        paths = counter_paths = None
        if cohorts[0].paths:
            paths = np.concatenate([stack(run.paths[:times], run.engine.replicas, levels) for run in cohorts], axis=2)
            counter_paths = {name: np.stack([np.concatenate([run.counters[k][name] for run in cohorts]) for k in range(times)])
                             for name in cohorts[0].counters[0]}
        last = [run.counters[times - 1] if times else {} for run in cohorts]
        totals = {name: sum(int(np.sum(counters[name])) for counters in last) for name in last[0]}
        arrivals, lost = totals.get("arrivals", 0), totals.get("lost", 0)
        change = sum(run.moments[times - 1].sums[0] - run.first for run in cohorts) if times else 0
        events = totals.pop("events", sum(int(run.engine.ticks[: run.engine.replicas].sum()) for run in cohorts))
        seconds = self._seconds()
        return Ensemble(
            attributes=given, times=cohorts[0].ts[:times], tail_mean=mean[:, 1:], tail_variance=variance[:, 1:],
            tail_stderr=error[:, 1:], mean_queue_length=mean[:, 0], mean_queue_length_variance=variance[:, 0],
            mean_queue_length_stderr=error[:, 0], T_mean=None if eta is None else eta * (1 - mean[:, 1:]),
            T_stderr=None if eta is None else eta * error[:, 1:], paths=paths, counters=totals, counter_paths=counter_paths,
            events=events, arrivals=arrivals, departures=arrivals - lost - change, replicas=replicas,
            seed=int(words[0]) << 32 | int(words[1]), seconds=seconds,
            compile_seconds=sum(run.engine.compile_seconds for run in cohorts), events_per_second=events / seconds,
            model=describe(exact_model(model)),
            **(step_error.over_time(model, apart, levels) if isinstance(model, Leap) else step_error.none(model)))


def _added(cohorts: list[list[Moments]]) -> list[Moments]:
    """Time by time, the moments of all cohorts."""
    return [functools.reduce(operator.add, several) for several in zip(*cohorts, strict=True)]


def progress_bar(total: int, progress: bool | None, unit: str = "tick") -> Any:
    """A progress bar with the time left; silent unless asked for, on a terminal or in a notebook."""
    from tqdm import tqdm

    wanted = (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else _check.flag("progress", progress)
    shown = hosts.first() and wanted
    return tqdm(total=total, unit=unit, unit_scale=True, disable=not shown, delay=0 if progress else 2, leave=False,
                file=sys.stderr)
