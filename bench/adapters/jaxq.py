"""jaxq: `simulate`, all replicas at once, one device a core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SETUP = "`jaxq.simulate(model, [t], key, replicas=R)`, from the call to the result, one CPU device a core"
VERSION = "jaxq"
WORKERS = "one"
TOGETHER = True


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import jaxq

    model = jaxq.Supermarket(n, 2, arrival_rate)

    def run(seed: int) -> np.ndarray:
        paths = jaxq.simulate(model, [t], seed, replicas=replicas, save="paths").paths
        found = np.zeros((replicas, levels), int)
        found[:, :paths.shape[1]] = paths[0, :levels].T
        return found

    return run
