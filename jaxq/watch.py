"""Watching an engine: looks at fixed tick numbers, summed, and remembered so that a run can go on from a checkpoint.

What a run does next depends on nothing but what its watches have answered. A watch that has its engine and its answers back
therefore takes the run to where it was: the run is called again and gets the answers that are known at once.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .chain import Model
from .engine import Engine
from .time_average import SEGMENTS, Sums, balance, beside, look_at, nothing


@dataclass(frozen=True)
class _Look:
    """One call of `look`: the tick at which it began, its gaps, and the sums over the looks done so far."""

    start: int
    gaps: np.ndarray
    sums: Sums | None = None

    @property
    def done(self) -> int:
        """Looks done."""
        return 0 if self.sums is None else self.sums.looks


class Watch:
    """An engine that is looked at.

    Args:
      make: makes the engine, at tick 0.
      passed: hears of the ticks done, at points to go on from.
      keep: remember what was seen, so that another watch can be `restore`d from the `arrays` of this one. It answers the same
        calls from there; where it is called otherwise, it begins again at tick 0, and `again` is True.
    """

    def __init__(self, make: Callable[[], Engine], passed: Callable[[int], None], *, keep: bool = False) -> None:
        self._make, self._passed, self._remembers = make, passed, keep
        self.engine = make()
        self.again = False
        self._balanced: Model | None = None
        self._at = 0                               # tick where the caller is; after `restore` the engine may be ahead
        self._looks: list[_Look] = []              # what was seen, the last perhaps not to its end
        self._answered = 0                         # of these, by this watch
        self._before: dict[str, np.ndarray] = {}   # counters' totals at the last look
        self._mark: Any = None

    def skip(self, ticks: int) -> None:
        """Let the replicas have so many ticks."""
        self._at += ticks
        self._be_there()

    def look(self, gaps: np.ndarray, *, controls: bool = True) -> Sums:
        """Sums over one look after gaps[0] ticks, one after gaps[1] more, and so on; flow and second are 0 without `controls`."""
        gaps = np.asarray(gaps, np.int64)
        call = self._recalled(gaps) or _Look(self._at, gaps)
        ends = call.start + np.cumsum(gaps)
        if self._ticks == call.start + int(gaps[: call.done].sum()):  # an engine that began again comes here with none
            self._before = self.engine.totals
        if self._answered >= len(self._looks) - 1:
            self._looks[self._answered:] = [call]
        while call.done < gaps.size:
            first = int(ends[call.done])
            self._reach(first - self._most)
            rows = [first - self._ticks]
            for gap in map(int, gaps[call.done + 1: call.done + SEGMENTS]):
                if sum(rows) + gap > self._most:
                    break
                rows.append(gap)
            saved, totals = self._advance(rows)
            model, sums, before = self.engine.model, call.sums, self._before
            if model is not self._balanced:  # it has grown, or is new
                self._balance, self._balanced = balance(model), model
            for k, counts in enumerate(saved):
                after = {name: total[k] for name, total in totals.items()}
                counted = {name: total - before[name][: total.size] if name in before else total for name, total in after.items()}
                one = look_at(model, self._balance if controls else nothing, counts, int(gaps[call.done + k]), counted)
                sums, before = one if sums is None else sums + one, after
            call, self._before = _Look(call.start, gaps, sums), before
            self._looks[-1] = call
            self._seen(sum(rows))
        self._at = int(ends[-1])
        if self._remembers:
            self._answered += 1
        else:
            self._looks = []
        assert call.sums is not None  # at least one gap
        return call.sums

    def agree(self, decision: bool) -> bool:
        """As the engine's."""
        return self.engine.agree(decision)

    def arrays(self) -> dict[str, np.ndarray] | None:
        """What `restore` needs to go on from where `passed` last heard of; None before that."""
        if self._mark is None:
            return None
        mark, looks, before = self._mark
        arrays = self.engine.arrays(mark) | {f"before {name}": total[: self.engine.replicas] for name, total in before.items()}
        note = []
        for k, look in enumerate(looks):
            fields = {} if look.sums is None else vars(look.sums)
            arrays |= {f"look{k} {name}": value for name, value in fields.items() if isinstance(value, np.ndarray)}
            arrays |= {f"look{k} counter {name}": value for name, value in fields.get("counters", {}).items()}
            note.append({"start": look.start, "gaps": look.gaps.tolist(), "looks": look.done, "ticks": fields.get("ticks", 0)})
        return arrays | {"note": np.frombuffer(json.dumps(note).encode(), np.uint8)}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Be where the watch was whose `arrays` these are, and know what it has seen."""
        self.engine.restore(arrays)
        self._before = {name.removeprefix("before "): total for name, total in arrays.items() if name.startswith("before ")}
        for k, look in enumerate(json.loads(bytes(arrays["note"]))):
            own = {name.removeprefix(f"look{k} "): value for name, value in arrays.items() if name.startswith(f"look{k} ")}
            counters = {name.removeprefix("counter "): own.pop(name) for name in list(own) if name.startswith("counter ")}
            sums = Sums(look["looks"], look["ticks"], counters=counters, **own) if own else None
            self._looks.append(_Look(look["start"], np.array(look["gaps"], np.int64), sums))
        self._mark = (self.engine.mark(), tuple(self._looks), self._before)

    @property
    def _ticks(self) -> int:
        return int(self.engine.ticks[0])

    @property
    def _most(self) -> int:
        return self.engine.call

    def _recalled(self, gaps: np.ndarray) -> _Look | None:
        """What is known of a call, with these gaps; None for a call that is new."""
        if self._answered == len(self._looks):
            self._be_there()
            return None
        known = self._looks[self._answered]
        done, last = known.done, self._answered == len(self._looks) - 1
        fits = known.start == self._at and np.array_equal(known.gaps[:done], gaps[:done])
        if last:
            behind, ahead = (self._at + int(gaps[:looks].sum()) for looks in (done, done + 1))  # the last look, the next if any
            fits = fits and (done == gaps.size or behind <= self._ticks <= ahead)
        else:
            fits = fits and done == gaps.size
        if fits:
            return _Look(known.start, gaps, known.sums)
        self._looks = self._looks[: self._answered]
        self._begin_again(self._at)
        return None

    def _be_there(self) -> None:
        """Have the engine where the caller is, unless it is known what was seen from there."""
        if self._answered == len(self._looks):
            if self._ticks > self._at:
                self._begin_again(self._at)
            self._reach(self._at)

    def _begin_again(self, tick: int) -> None:
        """A new engine, at this tick: the one there is has been elsewhere."""
        self.engine, self.again = self._make(), True
        self._reach(tick)

    def _reach(self, tick: int) -> None:
        """Advance to this tick, if it is ahead."""
        while (left := tick - self._ticks) > 0:
            part = min(left, self._most)
            self._advance([part])
            self._seen(part)

    def _advance(self, rows: list[int]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return self.engine.advance(np.repeat(np.array(rows)[:, None], self.engine.replicas, axis=1))

    def _seen(self, ticks: int) -> None:
        if self._remembers:
            self._mark = (self.engine.mark(), tuple(self._looks), self._before)
        self._passed(ticks * self.engine.replicas)


class Watches:
    """Watches of replicas of one model and start as one: all but the first are of replicas that a run went on with."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self.watches = watches

    def skip(self, ticks: int) -> None:
        """As `Watch.skip`."""
        for watch in self.watches:
            watch.skip(ticks)

    def look(self, gaps: np.ndarray, *, controls: bool = True) -> Sums:
        """As `Watch.look`, of all replicas."""
        first, *others = (watch.look(gaps, controls=controls) for watch in self.watches)
        return functools.reduce(beside, others, first)

    def agree(self, decision: bool) -> bool:
        """As the engine's."""
        return self.watches[0].agree(decision)
