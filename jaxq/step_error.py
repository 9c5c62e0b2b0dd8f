"""What the steps of a leap add to means, from its path with steps of twice the length on the same randomness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .algorithms import algorithm_of
from .chain import Model
from .leap import Leap

NAMES = tuple(f"{quantity}_step_error{suffix}" for quantity in ("tail", "mean_queue_length") for suffix in ("", "_stderr"))


def none(model: Model) -> dict[str, Any]:
    """The entries of a result whose algorithm is exact."""
    return {"algorithm": algorithm_of(model), "step": None} | dict.fromkeys(NAMES)


def of_means(leap: Leap, apart: np.ndarray) -> dict[str, np.ndarray]:
    """The entries `NAMES`, (levels,) and scalars, from the tail of the coarse path minus that of the fine one, (levels, samples).

    An error C step**order doubles its step to C 2**order step**order: the difference holds it 2**order - 1 times.
    """
    scale, samples = 2**leap.order - 1, apart.shape[1]
    found = []
    for part in (apart, apart.sum(axis=0)):
        spread = part.std(axis=-1, ddof=1) if samples > 1 else np.full(part.shape[:-1], math.nan)
        found += [part.mean(axis=-1) / scale, spread / math.sqrt(samples) / scale]
    return dict(zip(NAMES, found, strict=True))


def over_time(leap: Leap, entries: list[dict[str, np.ndarray]], levels: int) -> dict[str, Any]:
    """The entries of a result at all save times, with `levels` levels, from those of `of_means` at each."""
    def at(entry: np.ndarray) -> np.ndarray:
        return np.pad(entry[:levels], (0, max(0, levels - entry.size))) if entry.ndim else entry

    return {"algorithm": "leap", "step": float(leap.step)} | {
        name: np.array([at(np.asarray(entry[name])) for entry in entries]) for name in NAMES}
