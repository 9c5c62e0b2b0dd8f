"""Integrators of dx/dt = f(x, t, parameters) that either give the right answer or say that they could not.

`jax.experimental.ode.odeint` (Dormand-Prince 5(4), reverse mode) returns garbage beyond `mxstep` steps, nan for times that
do not increase, and wrong gradients when its output times are far apart: its adjoint integrates a contracting system
backwards. So it only ever sees an internal grid that starts at 0, increases strictly and has spacing * ||J|| <= 1, from
which the caller's times are picked. `rk4`, a fixed-step scan on the same grid, has forward and reverse mode.

f is a function defined once at module level; what varies goes in `parameters` (a pytree of floats), so that a new value does
not compile again. `solve` is for numbers (float64, NumPy in and out, guarded, the global x64 flag untouched); `path` is pure
JAX, for those who differentiate inside `with jax.enable_x64(True):`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.ode import odeint

from . import _check

RightHandSide = Callable[[jax.Array, Any, Any], jax.Array]
Forcing = Callable[[np.ndarray, int], np.ndarray]  # (times,), levels -> (times, levels)

METHODS = ("odeint", "rk4")
#: Internal spacing times ||J||: reverse mode of odeint needs <= 2, RK4 is stable to 2.78; the rest is for a poor bound on J.
SPACING = {"odeint": 0.5, "rk4": 0.25}
MXSTEP = 1000  # steps within one internal interval, where a handful is enough
_CHUNKS = (64, 1024)  # intervals solved by one compiled call; two lengths, since each takes seconds to compile
_MOST = 10**7  # intervals in all


def rk4_step(f: RightHandSide, x: jax.Array, inputs: tuple[Any, Any, Any], h: Any, parameters: Any) -> jax.Array:
    """One classical Runge-Kutta step of length h; `inputs` are f's second argument at the start, the middle and the end."""
    start, middle, end = inputs
    k1 = f(x, start, parameters)
    k2 = f(x + h / 2 * k1, middle, parameters)
    k3 = f(x + h / 2 * k2, middle, parameters)
    k4 = f(x + h * k3, end, parameters)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rk4(f: RightHandSide, initial: jax.Array, inputs: tuple[Any, Any, Any], steps: jax.Array, parameters: Any) -> jax.Array:
    """Fixed steps of fourth order in one scan, with forward and reverse mode.

    Args:
      initial: state (states,) before the first step.
      inputs: f's second argument (the time, or a forcing) at the start, middle and end of every step, each (steps, ...).
      steps: step lengths (steps,). On a linear system one step errs by (h ||J||)**5/120 relative, so a horizon t by about
        t ||J|| (h ||J||)**4/120 at most: t ||J|| * 3e-5 at the spacing used here, less where the system contracts.

    Returns states (steps + 1, states), `initial` first.
    """
    def body(x: jax.Array, step: Any) -> tuple[jax.Array, jax.Array]:
        after = rk4_step(f, x, step[0], step[1], parameters)
        return after, after

    initial = jnp.asarray(initial)
    _, states = jax.lax.scan(body, initial, (inputs, jnp.asarray(steps)))
    return jnp.concatenate([initial[None], states])


def fine_grid(ts: np.ndarray, step: float, breaks: np.ndarray | tuple[()] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Internal times from 0 with spacing at most `step` that contain `ts` and `breaks`, and where `ts` stand in them (host).

    Raises ValueError where that takes more than 10**7 intervals.
    """
    breaks = np.asarray(breaks, np.float64)
    knots = np.unique(np.concatenate([[0.0], ts, breaks[(breaks > 0) & (breaks < ts[-1])]]))
    gaps = np.diff(knots)
    counts = np.ceil(gaps / step)
    if counts.sum() > _MOST:
        raise ValueError(f"the last time must be at most {_MOST * step:g} (10**7 steps of {step:g}); got {ts[-1]:g}; "
                         "use fixed_point for the far future, an earlier end of ts, or a larger step")
    counts = counts.astype(np.int64)
    places = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(places[-1]) - np.repeat(places[:-1], counts)
    grid = np.append(np.repeat(knots[:-1], counts) + within * np.repeat(gaps / np.maximum(counts, 1), counts), knots[-1])
    return grid, places[np.searchsorted(knots, ts)]


def read_forcing(forcing: Any, end: float) -> tuple[np.ndarray, int, Forcing]:
    """The times where a forcing y has kinks, its levels, and y at any times on any number of levels, 0 above its own (host).

    `forcing` is None, a pair (times, values (time, level)) that is linear between its times and reaches `end`, or a function
    of t that returns (level,); y(0) = 0. Raises ValueError otherwise.
    """
    if forcing is None:
        return np.zeros(0), 0, lambda t, levels: np.zeros((t.size, levels))
    if callable(forcing):
        knots, value = np.zeros(0), forcing(0.0)
        first = _check.vector("forcing(0)", value).astype(np.float64)

        def sample(t: np.ndarray) -> np.ndarray:
            return np.stack([np.asarray(forcing(float(s)), np.float64) for s in t])
    else:
        if not isinstance(forcing, (list, tuple)) or len(forcing) != 2:
            raise ValueError(f"forcing must be a pair (times, values) or a function of t; got {_check.shown(forcing)}")
        knots, values = _check.times(forcing[0], "the times of forcing"), _check.reals(forcing[1])
        if values is None:
            raise ValueError(f"forcing must have finite values (time, level); got {_check.shown(forcing[1])}")
        values = values.astype(np.float64)
        if values.ndim != 2 or values.shape[0] != knots.size or not np.all(np.isfinite(values)) or knots[-1] < end:
            raise ValueError(f"forcing must be (times, values), values finite (time, level), up to the last time {end:g}; "
                             f"got {knots.size} times to {knots[-1]:g} and shape {values.shape}")
        first = values[0]

        def sample(t: np.ndarray) -> np.ndarray:
            return np.stack([np.interp(t, knots, column) for column in values.T], axis=1)
    if first.ndim != 1 or np.any(first != 0) or (knots.size and knots[0] != 0):
        raise ValueError(f"forcing must start with y(0) = 0, (level,), at time 0; got {_check.shown(first)}; "
                         "subtract its first value")
    return knots, first.size, lambda t, levels: np.pad(sample(t), ((0, 0), (0, levels - first.size)))


def path(f: RightHandSide, initial: Any, ts: Any, parameters: Any, *, step: float, method: str = "odeint",
         rtol: float = 1e-10, atol: float = 1e-12, mxstep: int = MXSTEP) -> jax.Array:
    """States (time, states) at the times `ts`, pure JAX: differentiable in `initial` and `parameters`, not checked.

    Args:
      initial: state (states,) at time 0.
      ts: concrete times, strictly increasing, >= 0, any spacing, 0 not needed.
      parameters: pytree of floats (an integer leaf has no adjoint).
      step: internal spacing, at most 0.5/||J|| for "odeint" and 0.25/||J|| for "rk4"; far above, the result is wrong.
      method: "odeint" (reverse mode) or "rk4" (both modes; error as `rk4` states).

    Raises ValueError outside `with jax.enable_x64(True):`; in float32 the tolerances mean nothing.
    """
    if jnp.zeros(()).dtype != jnp.float64:
        raise ValueError("an ODE path needs float64; x64 is off; call it inside `with jax.enable_x64(True):`")
    _check.choice("method", method, METHODS)
    grid, picked = fine_grid(_check.times(ts), _check.real("step", step, 0.0, open_low=True))
    initial = jnp.asarray(initial, jnp.float64)
    if grid.size == 1:
        return initial[None]
    parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), parameters)
    return _trajectory(f, initial, jnp.asarray(grid), parameters, method, rtol, atol, mxstep)[picked]


def solve(f: RightHandSide, initial: Any, ts: np.ndarray, parameters: Any, *, step: float, method: str = "odeint",
          check: Callable[[np.ndarray], str | None] | None = None, rtol: float = 1e-10, atol: float = 1e-12,
          mxstep: int = MXSTEP) -> np.ndarray:
    """States (time, states) at the times `ts` as float64 NumPy, guarded; arguments as in `path`.

    Every internal interval is retraced by two RK4 half-steps from its start; a solution that left the equation (too many
    steps, too coarse a step) disagrees with them by far more than their error and is refused. `check` looks at the states
    (time, states) and returns what is wrong with them, or None.

    Raises ValueError naming the step and the step limit when a guard fails.
    """
    _check.choice("method", method, METHODS)
    mxstep = _check.integer("mxstep", mxstep, 1)
    grid, picked = fine_grid(ts, _check.real("step", step, 0.0, open_low=True))
    state = np.asarray(initial, np.float64)
    if not np.all(np.isfinite(state)):
        raise ValueError(f"initial must be finite; got {state[~np.isfinite(state)][0]:g} in one of {state.size} states; "
                         "give numbers")
    out = np.empty((ts.size, *state.shape))
    out[picked == 0] = state
    intervals = grid.size - 1
    chunk = _CHUNKS[intervals > _CHUNKS[0]]
    for first in range(0, intervals, chunk):
        times = grid[first: first + chunk + 1]
        # a short last chunk goes on in tiny intervals, so that it has the compiled length and ends within one step
        times = np.append(times, times[-1] + step / _CHUNKS[1] * np.arange(1, chunk + 2 - times.size))
        with jax.enable_x64(True):
            states, defect = map(np.asarray, _guarded(f, state, times, _floats(parameters), method, rtol, atol, mxstep))
        if not (np.all(np.isfinite(states)) and defect <= 1):
            why = check(states[np.all(np.isfinite(states), axis=1)]) if check is not None else None
            raise ValueError(f"the ODE must be solved by {method} with at most {mxstep} steps in each interval of {step:g}; "
                             f"it left its equation between t = {times[0]:g} and {min(times[chunk], ts[-1]):g}"
                             f"{f', where {why}' if why else ''}; use a smaller step or a larger mxstep, or an earlier end")
        inside = (picked > first) & (picked <= first + chunk)
        out[inside] = states[picked[inside] - first]
        state = states[-1]
    complaint = check(out) if check is not None else None
    if complaint:
        raise ValueError(f"the ODE's solution must keep its bounds; by {method} with step {step:g} and at most {mxstep} "
                         f"steps an interval {complaint}; use a smaller step or a larger mxstep")
    return out


def jacobian_norm(f: RightHandSide, states: np.ndarray, parameters: Any) -> float:
    """The largest ||df/dx|| (largest absolute row sum, per unit time) at the given states (points, states) (host).

    Raises ValueError where it is not finite: no step follows from it.
    """
    with jax.enable_x64(True):
        norm = float(_norms(f, np.asarray(states, np.float64), _floats(parameters)))
    if not math.isfinite(norm):
        raise ValueError(f"an ODE needs a finite Jacobian where it starts and where it is expected to go; got {norm:g}; check the "
                         "model's rates there, or start elsewhere")
    return norm


def _floats(parameters: Any) -> Any:
    return jax.tree.map(np.float64, parameters)


@partial(jax.jit, static_argnames=("f", "method", "rtol", "atol", "mxstep"))
def _trajectory(f: RightHandSide, initial: jax.Array, grid: jax.Array, parameters: Any, method: str, rtol: float,
                atol: float, mxstep: int) -> jax.Array:
    if method == "odeint":
        return odeint(f, initial, grid, parameters, rtol=rtol, atol=atol, mxstep=mxstep)
    return rk4(f, initial, (grid[:-1], (grid[:-1] + grid[1:]) / 2, grid[1:]), jnp.diff(grid), parameters)


@partial(jax.jit, static_argnames=("f", "method", "rtol", "atol", "mxstep"))
def _guarded(f: RightHandSide, initial: jax.Array, grid: jax.Array, parameters: Any, method: str, rtol: float, atol: float,
             mxstep: int) -> tuple[jax.Array, jax.Array]:
    """States on the grid and their largest defect, in units of what is tolerated."""
    states = _trajectory(f, initial, grid, parameters, method, rtol, atol, mxstep)

    def retrace(x: jax.Array, t: jax.Array, h: jax.Array) -> jax.Array:
        def half(x: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
            return rk4_step(f, x, (start, start + h / 4, start + h / 2), h / 2, parameters), None

        return jax.lax.scan(half, x, jnp.stack([t, t + h / 2]))[0]

    again = jax.vmap(retrace)(states[:-1], grid[:-1], jnp.diff(grid))
    size = partial(jnp.max, axis=tuple(range(1, states.ndim)))
    moved, scale = size(jnp.abs(states[1:] - states[:-1])), size(jnp.abs(states[1:]))
    tolerated = 0.01 * moved + 1000 * (atol + rtol * scale)
    return states, jnp.max(size(jnp.abs(states[1:] - again)) / tolerated)


@partial(jax.jit, static_argnames=("f",))
def _norms(f: RightHandSide, states: jax.Array, parameters: Any) -> jax.Array:
    jacobians = jax.vmap(jax.jacfwd(lambda x: f(x, jnp.zeros(()), parameters)))(states)
    return jnp.max(jnp.sum(jnp.abs(jacobians), axis=-1))
