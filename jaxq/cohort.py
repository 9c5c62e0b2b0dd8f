"""A cohort: replicas that `simulate` advances together from save time to save time, and what is kept of them.

An ensemble is one cohort, but for a run that goes on from a checkpoint with more replicas: the new ones are a cohort that starts
at time 0. Moments are sums over replicas of integers, so that cohorts add.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .bulk import Bulk
from .engine import Engine
from .leap import Leap
from .moments import Moments
from .ticks import PoissonPath

_MOST_TICKS = 2**42  # of `PoissonPath`


class Cohort:
    """The replicas of an engine at the save times `ts`; iterating advances them call by call and yields the ticks done.

    Of every save time reached so far: moments of the tail (`save="paths"`: the tails (levels, replicas) too, in `paths`),
    `apart`, moments of a leap's coarse tail minus it, and the counters' totals, summed over replicas unless paths are kept.
    first: customers in all replicas at time 0.
    """

    def __init__(self, engine: Engine, ts: np.ndarray, save: str) -> None:
        if ts[-1] * engine.clock >= _MOST_TICKS:
            raise ValueError(f"ts must end before a replica has had 2**42 ticks, at about {_MOST_TICKS / engine.clock:.3g}; got "
                             f"{ts[-1]:g}; use a shorter horizon")
        self.engine, self.ts, self._keeps_paths = engine, ts, save == "paths"
        self.moments: list[Moments] = []
        self.apart: list[Moments] = []
        self.counters: list[dict[str, Any]] = []
        self.paths: list[np.ndarray] = []
        self.first = -1
        self._mark: Any = None

    def __iter__(self) -> Iterator[int]:
        if self._mark is None:
            none = np.zeros((1, self.engine.replicas), np.int64)
            self.first = int(self._tail(self.engine.advance(none)[0][0]).sum(dtype=np.int64))
        for ticks in self._leaps() if isinstance(self.engine.model, Leap) else self._ticks():
            saved = len(self.moments)
            between = saved == (self._mark[1] if self._mark else 0)  # on the way to a save time, that decides where batches end
            aim = float(self.ts[saved]) if between and isinstance(self.engine.model, Bulk) else None
            self._mark = (self.engine.mark(), saved, aim)
            yield ticks

    def arrays(self) -> dict[str, np.ndarray] | None:
        """What `restore` needs to go on from the last yield; None before the first."""
        if self._mark is None:
            return None
        mark, saved, aim = self._mark
        note: dict[str, Any] = {"times": self.ts[:saved].tolist(), "aim": aim, "first": self.first,
                                "moments": [list(vars(one).values()) for one in self.moments[:saved]],
                                "apart": [list(vars(one).values()) for one in self.apart[:saved]]}
        arrays = self.engine.arrays(mark)
        if self._keeps_paths:
            arrays["paths"] = stack(self.paths[:saved], self.engine.replicas)
            names = self.counters[0] if saved else {}
            arrays |= {f"counter {name}": np.stack([counters[name] for counters in self.counters[:saved]]) for name in names}
        else:
            note["counters"] = self.counters[:saved]
        return arrays | {"note": np.frombuffer(json.dumps(note).encode(), np.uint8)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Be where the cohort was whose `arrays` these are. Raises ValueError where `ts` does not begin as its times did."""
        note = json.loads(bytes(arrays["note"]))
        times = np.array(note["times"])
        if not np.array_equal(self.ts[: times.size], times):
            raise ValueError(f"ts must begin with the {times.size} save times that the checkpoint has reached, up to "
                             f"{times[-1]:g}, and then go on; got {_some(self.ts)} where it has {_some(times)}; use those, or "
                             "start again without it")
        if (aim := note["aim"]) is not None and aim not in self.ts[times.size: times.size + 1]:
            raise ValueError(f"in bulk, save times decide the path: the next after {times.size} must stay {aim:g}, to which the "
                             f"checkpoint is on the way; got {_some(self.ts[times.size:])} from there on; use it, or start again "
                             "without it")
        self.engine.restore(arrays)
        self.first = note["first"]
        self.moments, self.apart = ([Moments(*one) for one in note[name]] for name in ("moments", "apart"))
        if self._keeps_paths:
            self.paths = list(arrays["paths"])
            names = [name for name in arrays if name.startswith("counter ")]
            self.counters = [{name.removeprefix("counter "): arrays[name][k] for name in names} for k in range(times.size)]
        else:
            self.counters = note["counters"]
        self._mark = (self.engine.mark(), times.size, aim)

    def _ticks(self) -> Iterator[int]:
        engine, replicas = self.engine, self.engine.replicas
        longest = engine.call
        path = PoissonPath(engine.clock, (engine.keys[0][:replicas], engine.keys[1][:replicas]))
        reached, rows = engine.ticks[:replicas].copy(), []
        for t in self.ts[len(self.moments):]:
            take = path.count(t) - reached
            self._refuse_past(take.min(), t)
            reached += take
            rows.append(take)
            if sum(int(row.max()) for row in rows) > longest or len(rows) == engine.segments:
                yield from self._flush(rows, longest)
                rows = []
        yield from self._flush(rows, longest)

    def _leaps(self) -> Iterator[int]:
        """The same in steps of time: a save between two ticks looks at the beginning of the next, which is then done whole."""
        replicas, longest = self.engine.replicas, self.engine.call
        done = int(self.engine.ticks[0])
        for t in self.ts[len(self.moments):]:
            ticks, rest = divmod(Fraction(t) * Fraction(self.engine.clock), 1)
            self._refuse_past(int(ticks) - done, t)
            between = rest > 0
            yield from self._flush([np.full(replicas, int(ticks) - done)], longest, keep=not between)
            done = int(ticks)
            if between:
                self._keep(*self.engine.peek(float(rest)))

    def _refuse_past(self, ahead: int, t: float) -> None:
        if ahead < 0:
            raise ValueError("save times after those that the checkpoint has reached must lie ahead of its replicas; got "
                             f"{t:g}, behind some; use the times it was written with, or start again without it")

    def _flush(self, rows: list[np.ndarray], longest: int, *, keep: bool = True) -> Iterator[int]:
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

    def _call(self, rows: list[np.ndarray], keep: bool = True) -> Iterator[int]:
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
            tail = self._tail(counts)
            self.counters.append({name: total[k] for name, total in counters.items()} if self._keeps_paths else
                                 {name: int(total[k].sum()) for name, total in counters.items()})
            if self._keeps_paths:
                self.paths.append(tail.astype(np.int32))
            if isinstance(model, Leap):
                self.apart.append(Moments.of(np.asarray(model.coarse(counts)).astype(np.int64) - tail))
            self.moments.append(Moments.of(tail))  # last: they say how many times are there, after an interrupt too

    def _tail(self, counts: np.ndarray) -> np.ndarray:
        return np.asarray(self.engine.model.tail(counts))


def stack(tails: list[np.ndarray], replicas: int, levels: int | None = None) -> np.ndarray:
    """(times, levels, replicas) int32: the first rows of each tail, zeros where it has fewer; None: those of the highest."""
    levels = max((tail.shape[0] for tail in tails), default=0) if levels is None else levels
    paths = np.zeros((len(tails), levels, replicas), np.int32)
    for path, tail in zip(paths, tails, strict=True):
        path[: tail.shape[0]] = tail[:levels]
    return paths


def _some(times: np.ndarray) -> str:
    shown = ", ".join(f"{t:g}" for t in times[:4])
    return f"[{shown}{', ...' if times.size > 4 else ''}]"
