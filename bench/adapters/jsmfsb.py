"""jsmfsb: a stochastic Petri net, Gillespie's algorithm in JAX, replicas by vmap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import names, rates, stoichiometry

SETUP = "`Spn.step_gillespie` under `sim_sample` with all replicas in a batch, under `jit`; one process a core"
VERSION = "jsmfsb"
WORKERS = "cores"
TOGETHER = True


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import jax
    import jsmfsb

    change = stoichiometry(levels)
    net = jsmfsb.Spn(names(levels), [f"r{k}" for k in range(2 * levels)], np.maximum(-change, 0), np.maximum(change, 0),
                     lambda x, _: rates(x, n, arrival_rate), [0] * levels)
    step = net.step_gillespie()
    solve = jax.jit(lambda key: jsmfsb.sim_sample(key, replicas, net.m, 0.0, t, step, batch_size=replicas))
    return lambda seed: np.asarray(solve(jax.random.key(seed))).round().astype(int)
