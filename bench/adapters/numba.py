"""numba: a loop over ticks and a list of lengths, as one writes it by hand for this one system."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SETUP = "`@njit` loop over the uniformised chain, one length a server, numba's own `np.random`; one process a core"
VERSION = "numba"
WORKERS = "cores"
TOGETHER = False


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import numba

    @numba.njit
    def simulate(seed: int) -> np.ndarray:
        np.random.seed(seed)
        found = np.zeros((replicas, levels), np.int64)
        for r in range(replicas):
            lengths = np.zeros(n, np.int32)
            for _ in range(np.random.poisson((1.0 + arrival_rate) * n * t)):
                u = np.random.random() * (1.0 + arrival_rate)
                first = int(np.random.random() * n)
                if u < 1.0:
                    if lengths[first] > 0:
                        lengths[first] -= 1
                else:
                    second = int(np.random.random() * n)
                    lengths[second if lengths[second] < lengths[first] else first] += 1
            for length in lengths:
                found[r, :length] += 1
        return found

    return simulate
