"""What `heavy_traffic` integrates: the right-hand sides of the limit (10) and of (7), and the starts they need.

Equation numbers are those of Eschenfeldt and Gamarnik, arXiv:1610.03522.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _check, ode
from .rescaling import profile, rate

MOST_LEVELS = 2**13


def linear(w: jax.Array, t: Any, parameters: tuple[Any, Any, Any]) -> jax.Array:
    """(10), of w (level,), with parameters d, the value above the last level, and `free` (level,).

    `free` is 1 on the levels that move, 0 on those held at their edge value: a truncation and its double compile once.
    """
    d, edge, free = parameters
    return free * (jnp.append(w[1:], edge) - (d + 1) * w + d * _below(w))


def nonlinear(T: jax.Array, t: Any, parameters: tuple[Any, Any, Any, Any]) -> jax.Array:
    """(7) without forcing, of T (level,), with parameters d, lambda, eta and `free`."""
    d, rate, eta, free = parameters
    full = eta <= T  # log1p(-1): keep it out of both branches, or its derivative is nan
    H = jnp.where(full, jnp.where(d == 1, T, eta), -eta * jnp.expm1(d * jnp.log1p(-jnp.where(full, 0.0, T) / eta)))
    return free * (rate * (_below(H) - H) + jnp.append(T[1:], eta) - T)


def _below(x: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


@partial(jax.jit, static_argnames=("rhs",))
def driven(rhs: ode.RightHandSide, X: Any, y: Any, steps: Any, parameters: Any) -> jax.Array:
    """X' = rhs(X + y) by RK4, (steps + 1, level); y at the start, middle and end of every step."""
    return ode.rk4(lambda X, y, parameters: rhs(X + y, 0.0, parameters), X, y, steps, parameters)


def system(initial: Any, d: int, eta: float, beta: Any, arrival_rate: Any, above: str,
            levels: int | None) -> tuple[np.ndarray, np.ndarray, ode.RightHandSide, tuple[Any, ...], float]:
    """Start, the fixed part to add at the printed levels, right-hand side, parameters, and the value above the start."""
    if not (isinstance(eta, float) and eta == math.inf):
        start, load = profile("initial", initial, eta), rate(beta, arrival_rate, eta)
        printed = start.size if levels is None else _check.integer("levels", levels, 1, MOST_LEVELS)
        return start, np.zeros(printed), nonlinear, (d, load, eta), eta
    if beta is not None or not (arrival_rate is None or (type(arrival_rate) in (int, float) and arrival_rate == 1)):
        raise ValueError(f"beta and arrival_rate need a finite eta, lambda is 1 in the limit; got beta={_check.shown(beta)} and "
                         f"arrival_rate={_check.shown(arrival_rate)}; give eta, or leave them out")
    start, fixed, c = split(initial, d, above, levels)
    return start, fixed, linear, (d, c), c


def split(initial: Any, d: int, above: str, levels: int | None) -> tuple[np.ndarray, np.ndarray, float]:
    """T(0) = fixed + w: w (level,) on the data's levels, c above them; and the fixed part at the printed levels."""
    T = _check.vector("initial", initial).astype(np.float64)
    size, printed = T.size, T.size if levels is None else _check.integer("levels", levels, 1, MOST_LEVELS)
    if _check.choice("above", above, ("fixed-point", "zero")) == "zero":
        return T, np.zeros(printed), 0.0
    rise = T[-1] - (T[-2] if size > 1 else 0.0)
    with np.errstate(over="ignore"):  # b (d**i - 1)/(d - 1) with b d**(size - 1) = rise, written without d**size
        i = np.arange(1.0, max(size, printed) + 1)
        fixed = rise * (i if d == 1 else (float(d) ** (i - size + 1) - float(d) ** (1 - size)) / (d - 1))
    if not np.all(np.isfinite(fixed)):
        raise ValueError(f"levels must keep d**levels within the floats; got {printed} with d={d}; "
                         "use fewer, or above='zero'")
    return T - fixed[:size], fixed[:printed], float(T[-1] - fixed[size - 1])
