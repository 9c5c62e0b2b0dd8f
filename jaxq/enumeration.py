"""Every state of a small chain and the rates between them, for the solvers of `jaxq.exact`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from . import _check
from .chain import PopulationModel
from .truncation import truncated

MOST_STATES = 200_000
_BATCH = 1024    # states whose rates are computed together
_ZERO = 1e-13    # rates below this share of the largest are rounding of 0: 3 * (1/7) is not 3/7


@runtime_checkable
class Enumerable(Protocol):
    """A model that lists its transitions itself (`TwoQueues`); a `PopulationModel` need not."""

    jumps: Any

    def event_rates(self, states: np.ndarray) -> np.ndarray:
        """(states, events) rates at which `jumps` (events, rows) happen in integer states (states, rows)."""

    def start(self, initial: Any) -> np.ndarray:
        """The state (rows,) of what `simulate` takes as `initial`."""

    def occupancy(self, states: np.ndarray) -> np.ndarray:
        """(states, levels): servers with at least i customers in each state."""


def enumerated(model: Any, initial: Any, *, fixed: bool) -> tuple[np.ndarray, Any, np.ndarray]:
    """States (state, row) from the start on, off-diagonal generator (csr), and S_i in each state (state, level)."""
    if isinstance(model, PopulationModel):
        start, rates, tail = _population(model, initial, fixed)
    elif isinstance(model, Enumerable):
        start, rates, tail = model.start(initial), model.event_rates, model.occupancy
    else:
        raise ValueError("an exact chain needs a model with jumps and rates; got "
                         f"{type(model).__name__}; use jaxq.Supermarket for the complete graph, or simulate")
    states, generator = _enumerate(np.asarray(model.jumps), start, rates, _check.shown(model))
    return states, generator, np.asarray(tail(states), np.float64) / model.n


def _population(model: PopulationModel, initial: Any, fixed: bool) -> tuple[
        np.ndarray, Callable[[np.ndarray], np.ndarray], Any]:
    nobody = np.arange(8, dtype=np.uint32)
    model, state = model.init(initial, (nobody, nobody))
    counts = np.asarray(model.counts(state), np.int64)
    if fixed and np.any(counts != counts[:, :1]):
        raise ValueError(f"transient needs one initial state; from {_check.shown(initial)} {type(model).__name__} starts at "
                         "random; give its counts")
    if truncated(model):
        raise ValueError(f"an exact chain needs finitely many states of its model; got {_check.shown(model)}; give it a buffer, "
                         "large enough that the tail there is negligible")
    n = int(model.n)

    @jax.jit
    def many(x: jax.Array) -> jax.Array:
        return jax.vmap(lambda density: model.rates(density, 1.0 / n))(x)

    def rates(states: np.ndarray) -> np.ndarray:
        padded = np.zeros((_BATCH, states.shape[1]))  # one shape, one compilation
        padded[: len(states)] = states / n
        with jax.enable_x64(True):
            return np.asarray(many(jnp.asarray(padded)))[: len(states)] * n

    return counts[:, 0], rates, lambda states: np.asarray(model.tail(states.T)).T


def _enumerate(jumps: np.ndarray, start: np.ndarray, rates: Callable[[np.ndarray], np.ndarray],
               name: str) -> tuple[np.ndarray, Any]:
    from scipy.sparse import csr_array

    known: dict[bytes, int] = {np.ascontiguousarray(start, np.int32).tobytes(): 0}
    states = [np.asarray(start, np.int32)]
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    done, largest = 0, 0.0
    while done < len(states):
        batch = np.array(states[done: done + _BATCH])
        rate = np.asarray(rates(batch), np.float64)
        largest = max(largest, float(rate.max()))
        if not rate.min() >= -_ZERO * largest:
            k, e = divmod(int(np.argmin(rate)), rate.shape[1])
            raise ValueError(f"rates must be >= 0; got {rate[k, e]:.3g} for jump {jumps[e].tolist()} "
                             f"in {batch[k].tolist()} of {name}")
        row, event = np.nonzero(rate > _ZERO * largest)
        targets = (batch[row] + jumps[event]).astype(np.int32)
        if targets.size and targets.min() < 0:
            k = int(np.argmax(targets.min(axis=1) < 0))
            raise ValueError(f"rates must vanish where a count would fall below 0; jump {jumps[event[k]].tolist()} "
                             f"is possible in {batch[row[k]].tolist()} of {name}")
        index = np.empty(len(targets), np.int64)
        for k, target in enumerate(targets):
            at = known.setdefault(target.tobytes(), len(states))
            if at == len(states):
                states.append(target)
            index[k] = at
        if len(states) > MOST_STATES:
            raise ValueError(f"an exact chain may have {MOST_STATES} states; got more, from {name}; use a smaller n or buffer, "
                             "or simulate")
        entries.append((row + done, index, rate[row, event]))
        done += len(batch)
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    moved = rows != columns
    return np.array(states), csr_array((values[moved], (rows[moved], columns[moved])), shape=(len(states),) * 2)
