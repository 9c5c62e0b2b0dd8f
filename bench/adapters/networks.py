"""The supermarket model as a reaction network in its tail counts X_1 >= X_2 >= ...: what the chemical simulators take.

An arrival raises X_i at rate lambda (X_{i-1}^2 - X_i^2) / n, X_0 = n; a service lowers it at rate X_i - X_{i+1}. Each reaction
changes one species and the rates of four reactions, which packages with a dependency graph use.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def names(levels: int) -> list[str]:
    """X01, X02, ...: as many digits each, so that any order of names is the order of levels."""
    return [f"X{i:02}" for i in range(1, levels + 1)]


def arrival(i: int, species: list[str], n: int, arrival_rate: float, power: str = "{0} * {0}") -> str:
    """The rate at which an arrival raises level i, as text; `power`: how the square of a species is written."""
    below = repr(float(n) ** 2) if i == 1 else power.format(species[i - 2])
    return f"{arrival_rate / n!r} * ({below} - {power.format(species[i - 1])})"


def service(i: int, species: list[str]) -> str:
    """The rate at which a service lowers level i, as text."""
    return f"{species[i - 1]} - {species[i]}" if i < len(species) else species[i - 1]


def rates(x: Any, n: int, arrival_rate: float) -> Any:
    """All rates at once for JAX, arrivals first; x (levels,)."""
    import jax.numpy as jnp

    above = jnp.append(x[1:], 0.0)
    square = jnp.concatenate([jnp.array([float(n) ** 2]), x * x])
    return jnp.concatenate([(square[:-1] - square[1:]) * (arrival_rate / n), x - above])


def stoichiometry(levels: int) -> np.ndarray:
    """(reactions, species) changes, arrivals first."""
    return np.concatenate([np.eye(levels, dtype=int), -np.eye(levels, dtype=int)])


def lengths_to_tail(lengths: Any, levels: int) -> list[int]:
    """Tail counts of a list of queue lengths."""
    counts = np.bincount(np.asarray(lengths, dtype=int), minlength=levels + 1)
    return counts[::-1].cumsum()[::-1][1:levels + 1].tolist()
