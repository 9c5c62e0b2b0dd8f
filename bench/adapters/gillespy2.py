"""GillesPy2: the compiled direct method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import arrival, names, service

SETUP = "`SSACSolver` (C++), compiled once, all replicas in one `run`, output at 0 and t; one process a core"
VERSION = "gillespy2"
WORKERS = "cores"
TOGETHER = False


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import gillespy2

    model, species = gillespy2.Model(name="supermarket"), names(levels)
    model.add_species([gillespy2.Species(name=name, initial_value=0, mode="discrete") for name in species])
    for i, name in enumerate(species, 1):
        model.add_reaction([
            gillespy2.Reaction(name=f"a{i}", reactants={}, products={name: 1},
                               propensity_function=arrival(i, species, n, arrival_rate)),
            gillespy2.Reaction(name=f"s{i}", reactants={name: 1}, products={}, propensity_function=service(i, species))])
    model.timespan(np.array([0.0, t]))
    solver = gillespy2.SSACSolver(model=model)

    def run(seed: int) -> np.ndarray:
        result = solver.run(number_of_trajectories=replicas, seed=seed + 1)
        return np.array([[round(path[name][-1]) for name in species] for path in result])

    return run
