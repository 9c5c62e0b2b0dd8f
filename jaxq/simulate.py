"""`simulate`: an ensemble of the exact chain on a time grid, with moments over replicas and their errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np

from . import _check, bits, hosts, memory, step_error
from .algorithms import choose, exact_model
from .chain import Model
from .engine import CHUNK, SEGMENTS, Engine
from .ensemble import Ensemble, describe, provenance
from .leap import Leap
from .ticks import PoissonPath


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `partial` is the result of what was reached (`simulate`: an Ensemble), or None."""

    def __init__(self, partial: Any) -> None:
        super().__init__("interrupted")
        self.partial = partial


def simulate(model: Model, ts: Any, key: Any, *, replicas: int, initial: Any = None, save: str = "moments",
             algorithm: str = "exact", step: float | None = None, order: int | None = None,
             devices: Sequence[Any] | None = None, block: int | None = None, chunk: int = CHUNK, kernel: bool = False,
             progress: bool | None = None) -> Ensemble:
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
      progress: a bar with the time left on stderr; None shows it on a terminal or in a notebook.

    Returns: `Ensemble`. Raises ValueError for bad input, `Interrupted` (with what was done) on Ctrl-C.
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a jaxq model such as jaxq.Supermarket(...); got {type(model).__name__}")
    ts, words = _check.times(ts), bits.key_words(key)
    _check.choice("save", save, ("moments", "paths"))
    replicas = _check.integer("replicas", replicas, 1, 2**31 - 1, "give the number of independent copies")
    segments = min(SEGMENTS, 1 << (ts.size - 1).bit_length())
    chosen, on = choose(model, algorithm, step, order), jax.devices() if devices is None else list(devices)
    memory.check(memory.of_simulate(chosen, initial, replicas, ts.size, save, segments, on), on,
                 "use fewer replicas" if save == "moments" else 'use save="moments", fewer times or fewer replicas')
    engine = Engine(chosen, initial, words, replicas, devices=devices, block=block, chunk=chunk, segments=segments, kernel=kernel)
    run = _Run(engine, ts, save, words)
    total = int(engine.clock * ts[-1] * replicas)
    with progress_bar(total, progress, "step" if algorithm == "leap" else "tick") as bar:
        try:
            for ticks in run:
                bar.update(ticks)
        except KeyboardInterrupt:
            raise Interrupted(run.result() if run.saved else None) from None
    return run.result()


class _Run:
    """The driver loop: iterating over it advances the engine call by call and yields the ticks done."""

    def __init__(self, engine: Engine, ts: np.ndarray, save: str, words: np.ndarray) -> None:
        self.engine, self.ts, self.save, self.words = engine, ts, save, words
        self.saved: list[_Moments] = []
        self.step_errors: list[dict[str, np.ndarray]] = []
        self.counters: list[dict[str, Any]] = []
        self.paths: list[np.ndarray] = []
        self.started = time.perf_counter()

    def __iter__(self) -> Any:
        engine, replicas = self.engine, self.engine.replicas
        none = np.zeros((1, replicas), np.int64)
        self.first = self.last = self._tail(engine.advance(none)[0][0]).copy()
        longest = engine.call
        if isinstance(engine.model, Leap):
            yield from self._leaps(longest)
            return
        path = PoissonPath(engine.clock, (engine.keys[0][:replicas], engine.keys[1][:replicas]))
        reached, rows = engine.ticks[:replicas].copy(), []
        for t in self.ts:
            take = path.count(t) - reached
            reached += take
            rows.append(take)
            if sum(int(row.max()) for row in rows) > longest or len(rows) == engine.segments:
                yield from self._flush(rows, longest)
                rows = []
        yield from self._flush(rows, longest)

    def _leaps(self, longest: int) -> Any:
        """The same in steps of time: a save between two ticks looks at the beginning of the next, which is then done whole."""
        done, replicas = 0, self.engine.replicas
        for t in self.ts:
            ticks, rest = divmod(Fraction(t) * Fraction(self.engine.clock), 1)
            between = rest > 0
            yield from self._flush([np.full(replicas, int(ticks) - done)], longest, keep=not between)
            done = int(ticks)
            if between:
                self._keep(*self.engine.peek(float(rest)))

    def _flush(self, rows: list[np.ndarray], longest: int, *, keep: bool = True) -> Any:
        """Run the segments to their save times; a segment longer than one call is done in pieces."""
        short: list[np.ndarray] = []
        for row in rows:
            while row.max() > longest:
                yield from self._call(short)
                short, piece = [], np.minimum(row, longest)
                self.engine.advance(piece[None])
                yield int(piece.sum())
                row = row - piece
            if sum(int(other.max()) for other in short) + int(row.max()) > longest:
                yield from self._call(short)
                short = []
            short.append(row)
        yield from self._call(short, keep)

    def _call(self, rows: list[np.ndarray], keep: bool = True) -> Any:
        if not rows:
            return
        saved, counters = self.engine.advance(np.stack(rows))
        if keep:
            self._keep(saved, counters)
        yield int(sum(int(row.sum()) for row in rows))

    def _keep(self, saved: np.ndarray, counters: dict[str, np.ndarray]) -> None:
        """What the result needs of the counts (times, states, replicas) and the counters' totals (times, replicas)."""
        model = self.engine.model
        for k, counts in enumerate(saved):
            self.last = self._tail(counts)
            self.saved.append(_Moments(self.last))
            self.counters.append({name: total[k] for name, total in counters.items()} if self.save == "paths" else
                                 {name: int(total[k].sum()) for name, total in counters.items()})
            if self.save == "paths":
                self.paths.append(self.last.astype(np.int32))
            if isinstance(model, Leap):
                apart = np.asarray(model.coarse(counts)).astype(np.int64) - self.last
                self.step_errors.append(step_error.of_means(model, apart / model.n))
        self.last = self.last.copy()  # a view would keep the counts of all these times

    def _tail(self, counts: np.ndarray) -> np.ndarray:
        return np.asarray(self.engine.model.tail(counts))

    def result(self) -> Ensemble:
        engine, replicas = self.engine, self.engine.replicas
        seconds = time.perf_counter() - self.started - engine.compile_seconds
        model = engine.model
        n, eta = int(model.n), getattr(model, "eta", None)
        used = max((moments.used for moments in self.saved), default=0)
        levels = min(max(used, 8), model.tail(np.zeros((engine.counts_rows, 1))).shape[0])
        mean, variance = (np.array([moments.pad(which, levels) for moments in self.saved]) for which in ("mean", "variance"))
        q_mean = np.array([moments.queue_mean for moments in self.saved])
        q_variance = np.array([moments.queue_variance for moments in self.saved])
        mean, variance, q_mean, q_variance = mean / n, variance / n**2, q_mean / n, q_variance / n**2
        totals = {name: int(np.sum(value)) for name, value in (self.counters[-1] if self.counters else {}).items()}
        arrivals, lost = totals.get("arrivals", 0), totals.get("lost", 0)
        change = int(self.last.sum(dtype=np.int64)) - int(self.first.sum(dtype=np.int64))
        events = totals.pop("events", int(engine.ticks[:replicas].sum()))
        error = np.sqrt(variance / replicas)
        paths = _stack(self.paths, levels) if self.paths else None
        return Ensemble(
            attributes=provenance(), times=self.ts[: len(self.saved)], tail_mean=mean, tail_variance=variance,
            tail_stderr=error, mean_queue_length=q_mean, mean_queue_length_variance=q_variance,
            mean_queue_length_stderr=np.sqrt(q_variance / replicas), T_mean=None if eta is None else eta * (1 - mean),
            T_stderr=None if eta is None else eta * error, paths=paths, counters=totals,
            counter_paths=None if paths is None else {
                name: np.stack([saved[name] for saved in self.counters]) for name in totals},
            events=events, arrivals=arrivals, departures=arrivals - lost - change, replicas=replicas,
            seed=int(self.words[0]) << 32 | int(self.words[1]), seconds=seconds, compile_seconds=engine.compile_seconds,
            events_per_second=events / seconds, model=describe(exact_model(model)),
            **(step_error.over_time(model, self.step_errors, levels) if isinstance(model, Leap) else step_error.none(model)))


class _Moments:
    """Exact integer sums over replicas of one saved tail (levels, replicas); the only float step is one division each."""

    def __init__(self, tail: np.ndarray) -> None:
        replicas = tail.shape[1]
        sums, squares = _sums(tail)
        queue_sums, queue_squares = _sums(tail.sum(axis=0, dtype=np.int64)[None])
        self.used = max((i + 1 for i, total in enumerate(sums) if total), default=0)
        self.mean = [total / replicas for total in sums]
        self.variance = [_variance(*pair, replicas) for pair in zip(sums, squares, strict=True)]
        self.queue_mean = queue_sums[0] / replicas
        self.queue_variance = _variance(queue_sums[0], queue_squares[0], replicas)

    def pad(self, which: str, levels: int) -> list[float]:
        """`mean` or `variance` at exactly `levels` levels; levels never reached are zeros."""
        values: list[float] = getattr(self, which)[:levels]
        return values + [0.0 * self.queue_variance] * (levels - len(values))


def _sums(x: np.ndarray) -> tuple[list[int], list[int]]:
    """Exact sums over the last axis of x and of x**2, for 0 <= x < 2**40, by limbs of 20 bits."""
    sums, squares = [0] * x.shape[0], [0] * x.shape[0]
    for start in range(0, x.shape[1], 2**16):
        part = x[:, start:start + 2**16].astype(np.int64)
        high, low = part >> 20, part & 0xFFFFF
        products = [np.einsum("lr,lr->l", a, b) for a, b in ((low, low), (high, low), (high, high))]
        for i, total in enumerate(part.sum(axis=1)):
            sums[i] += int(total)
            squares[i] += int(products[0][i]) + (int(products[1][i]) << 21) + (int(products[2][i]) << 40)
    return sums, squares


def _variance(total: int, squares: int, count: int) -> float:
    return (count * squares - total * total) / (count * (count - 1)) if count > 1 else float("nan")


def _stack(tails: list[np.ndarray], levels: int) -> np.ndarray:
    """(times, levels, replicas) int32: rows 0..levels-1 of each tail, zeros where it has fewer."""
    paths = np.zeros((len(tails), levels, tails[0].shape[1]), np.int32)
    for path, tail in zip(paths, tails, strict=True):
        path[: tail.shape[0]] = tail[:levels]
    return paths


def progress_bar(total: int, progress: bool | None, unit: str = "tick") -> Any:
    """A progress bar with the time left; silent unless asked for, on a terminal or in a notebook."""
    from tqdm import tqdm

    shown = hosts.first() and ((sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress)
    return tqdm(total=total, unit=unit, unit_scale=True, disable=not shown, delay=0 if progress else 2, leave=False,
                file=sys.stderr)
