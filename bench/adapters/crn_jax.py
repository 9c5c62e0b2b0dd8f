"""crn-jax: Gillespie's algorithm in JAX, replicas by vmap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import rates, stoichiometry

SETUP = "`simulate_trajectory` of one interval under `jit(vmap)`, its `State` and `make_apply_reaction`; one process a core"
VERSION = "crn-jax"
WORKERS = "cores"
TOGETHER = True


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import jax
    import jax.numpy as jnp
    from crn_jax.gillespie import simulate_trajectory
    from crn_jax.models import make_apply_reaction
    from crn_jax.types import State

    apply = make_apply_reaction(tuple(map(tuple, stoichiometry(levels).tolist())))

    @jax.jit
    def solve(keys: jax.Array) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            start = State(time=jnp.array(0.0), x=jnp.zeros(levels), next_reaction_time=jnp.array(jnp.inf))
            return simulate_trajectory(key, start, timestep=t, n_steps=1, max_steps=int(4 * n * t) + 1000, apply_reaction_fn=apply,
                                       compute_propensities_fn=lambda state, _: rates(state.x, n, arrival_rate)).x[-1]

        return jax.vmap(one)(keys)

    return lambda seed: np.asarray(solve(jax.random.split(jax.random.key(seed), replicas))).round().astype(int)
