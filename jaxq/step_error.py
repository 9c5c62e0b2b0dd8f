"""What the steps of a leap add to means, from its path with steps of twice the length on the same randomness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .algorithms import algorithm_of
from .chain import Model
from .leap import Leap
from .moments import Moments

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


def over_time(leap: Leap, apart: list[Moments], levels: int) -> dict[str, Any]:
    """The entries of a result at all save times, with `levels` levels, from the moments of the same difference at each."""
    scale = (2**leap.order - 1) * int(leap.n)
    mean = np.array([one.mean(levels) for one in apart]).reshape(-1, 1 + levels) / scale
    error = np.sqrt(np.array([one.variance(levels) / one.replicas for one in apart]).reshape(-1, 1 + levels)) / scale
    return {"algorithm": "leap", "step": float(leap.step)} | dict(
        zip(NAMES, (mean[:, 1:], error[:, 1:], mean[:, 0], error[:, 0]), strict=True))
