"""How long until the start is forgotten, where no theory says: two starts that must meet, and MSER-5.

The mean queue lengths of an ensemble that starts empty and of one that starts crowded are compared on a doubling schedule of
ticks. Once their difference is within 5 % of the first one, errors included, the start shows less than 5 % of itself and the
warm-up is three times as long: 5 % three times over is 1e-4. MSER-5 (White, Cobb and Spratt 2000,
doi:10.1109/WSC.2000.899790) on both paths must not ask for more than half of what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .time_average import Sums
from .watch import Watch, Watches

_LEFT = 0.05      # of the first difference
_TIMES = 3        # warm-up over the time at which so little is left
_LOOKS = 32       # in a doubling


def mser5(path: np.ndarray) -> int:
    """Values of `path` (looks,) to leave out at its start so that the marginal standard error of the rest is least.

    Means of five values, at most half of them left out.
    """
    means = path[: path.size // 5 * 5].reshape(-1, 5).mean(axis=1)
    if means.size < 2:
        return 0
    errors = [float(np.var(means[k:])) / (means.size - k) for k in range(means.size // 2 + 1)]
    return 5 * int(np.argmin(errors))


def settle(watches: Sequence[Watch | Watches], gap: int, most: int) -> tuple[int, int, bool]:
    """Advance until the start is forgotten: ticks of warm-up that are due, ticks passed already, and whether it was seen.

    The time that passed is doubled, each time with as many looks, `gap` ticks apart at first. With one start only MSER-5
    speaks. `most` ticks end the search.
    """
    begun = [float(watch.look(np.zeros(1, int), controls=False).path[0]) for watch in watches]
    paths = [np.zeros(0) for _ in watches]
    elapsed, ahead = 0, _LOOKS * gap
    while elapsed + ahead <= most:
        seen = [watch.look(np.full(_LOOKS, ahead // _LOOKS), controls=False) for watch in watches]
        elapsed += ahead
        paths = [extended(path, sums.path) for path, sums in zip(paths, seen, strict=True)]
        stable = all(mser5(path) < path.size // 2 - 5 for path in paths)
        if watches[0].agree(stable and (len(watches) == 1 or _met(seen, abs(begun[-1] - begun[0])))):
            return _TIMES * elapsed, elapsed, True
        ahead = elapsed
    return elapsed, elapsed, False


def extended(path: np.ndarray, following: np.ndarray) -> np.ndarray:
    """The path (looks,) of a doubling after the one of all before it, which is brought to the same spacing where it is finer."""
    if path.size > following.size:
        path = path.reshape(-1, 2).mean(axis=1)
    return np.append(path, following)


def _met(seen: list[Sums], first: float) -> bool:
    averages = [sums.queue / sums.looks for sums in seen]
    apart = abs(float(averages[1].mean() - averages[0].mean()))
    error = math.hypot(*(float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else math.inf
                         for values in averages))
    return apart + 2 * error <= _LEFT * first
