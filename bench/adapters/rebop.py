"""rebop: the direct method in Rust."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import arrival, names, service

SETUP = "`Gillespie.run` of each replica, rates as text (no law of mass action has them), output at t only; one process a core"
VERSION = "rebop"
WORKERS = "cores"
TOGETHER = False


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import rebop

    system, species = rebop.Gillespie(), names(levels)
    for i, name in enumerate(species, 1):
        system.add_reaction(arrival(i, species, n, arrival_rate), [], [name])
        system.add_reaction(service(i, species), [name], [])

    def one(seed: int) -> list[int]:
        path = system.run({name: 0 for name in species}, t, 1, rng=seed)
        return [int(path[name].values[-1]) for name in species]

    return lambda seed: np.array([one(seed * replicas + r) for r in range(replicas)])
