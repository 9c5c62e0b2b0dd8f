"""stochastix: the direct method in JAX, replicas by vmap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import names

SETUP = "`faststochsimsolve` with `DirectMethod` under `jit(vmap)`, own kinetics by subclassing; one process a core"
VERSION = "stochastix"
WORKERS = "cores"
TOGETHER = True


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import equinox
    import jax
    import jax.numpy as jnp
    import stochastix
    from stochastix.kinetics import AbstractKinetics

    class Arrival(AbstractKinetics):
        level: int = equinox.field(static=True)

        def propensity_fn(self, x, reactants, t=None, volume=1.0):  # type: ignore[no-untyped-def]
            below = float(n) if self.level == 0 else x[self.level - 1]
            return (arrival_rate / n) * (below * below - x[self.level] * x[self.level])

        ode_rate_fn = propensity_fn

    class Service(AbstractKinetics):
        level: int = equinox.field(static=True)

        def propensity_fn(self, x, reactants, t=None, volume=1.0):  # type: ignore[no-untyped-def]
            return x[self.level] - (x[self.level + 1] if self.level + 1 < levels else 0.0)

        ode_rate_fn = propensity_fn

    network = stochastix.ReactionNetwork(
        [stochastix.Reaction(f"0 -> {name}", Arrival(_requires_species=(), level=i)) for i, name in enumerate(names(levels))]
        + [stochastix.Reaction(f"{name} -> 0", Service(_requires_species=(), level=i)) for i, name in enumerate(names(levels))])
    most = int(4 * n * t) + 1000

    @jax.jit
    def solve(keys: jax.Array) -> jax.Array:
        def one(key: jax.Array) -> jax.Array:
            return stochastix.faststochsimsolve(key, network, jnp.zeros(levels), T=t, max_steps=most,
                                                solver=stochastix.DirectMethod(), save_propensities=False).x[-1]

        return jax.vmap(one)(keys)

    return lambda seed: np.asarray(solve(jax.random.split(jax.random.key(seed), replicas))).round().astype(int)
