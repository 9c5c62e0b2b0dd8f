"""The one-tick contract: a model's `draw` and `apply` against its rates, or against its law written by hand."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _check, bits
from .chain import Model, PopulationModel, tick_words
from .engine import Engine

Law = Callable[[np.ndarray], Mapping[tuple[int, ...], float]]


@dataclass(frozen=True)
class Contract:
    """What `check_model` found: numbers of `states` and `lanes` tried, and `least_p`, the least chi-square p-value of a state.

    Example::

        >>> contract = jaxq.testing.check_model(jaxq.Supermarket(10, 2, 0.9), [[5, 2], [10]], lanes=2**14)
        >>> contract.states, contract.lanes, contract.least_p > 1e-6
        (2, 16384, True)
    """

    states: int
    lanes: int
    least_p: float


def check_model(model: Model, states: Sequence[Any] | None = None, *, law: Law | None = None,
                view: Callable[[Any], Any] | None = None, lanes: int = 2**20, seed: int = 0, level: float = 1e-6) -> Contract:
    """Run one tick from many states in `lanes` lanes and compare the transitions with the exact law.

    The law is `rates / clock` for a `PopulationModel`, else `law(state) -> {next state: probability}` on what `view` shows
    of the state, (rows, replicas) integers (default: `model.counts`): `law` takes an array (rows,), next states are tuples.
    Cells with an expected count below 20 are pooled; a transition of probability 0 must not occur at all. With 2**20 lanes
    it sees errors of a rate above about 2 per cent: thresholds and ranks need tests of their own.

    Args:
      states: what `model.init` takes, one entry a state; None takes 20 states that a run from empty passes through.
      seed, level: of the random words; a state fails below this p-value.

    Returns: `Contract`. Raises AssertionError naming the state and the transition, ValueError without a law and for bad
    arguments.

    Example::

        >>> jaxq.testing.check_model(jaxq.Supermarket(10, 2, 0.9), [[5, 2], [10]], lanes=2**14).states
        2
    """
    _check.instance("model", model, Model, "a jaxq model such as jaxq.Supermarket(...)")
    _check.integer("lanes", lanes, 1000, 2**28)
    level = _check.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    for name, given in (("law", law), ("view", view)):
        if given is not None and not callable(given):
            raise ValueError(f"{name} must be a function of a state; got {_check.shown(given)}")
    if states is not None and (not isinstance(states, (list, tuple, np.ndarray)) or len(states) == 0):
        raise ValueError(f"states must be a list of at least one state, as model.init takes them; got {_check.shown(states)}")
    if law is None and not isinstance(model, PopulationModel):
        raise ValueError(f"check_model needs law=... for {type(model).__name__}, which has no rates; "
                         "give law(state) -> {next state: probability}")
    if states is None:
        states = _visited(model, seed)
    keys = bits.fold_in(bits.key_words(seed), np.arange(lanes, dtype=np.uint32))
    least = 1.0
    for index, initial in enumerate(states):
        grown, state = model.init(initial, (keys[0][:1], keys[1][:1]))
        start, after = _one_tick(grown, state, keys, index, view)
        expected = dict(law(start)) if law is not None else _from_rates(grown, start)
        least = min(least, _compare(start, after, expected, lanes, level))
    return Contract(len(states), lanes, least)


def _visited(model: Model, seed: int) -> list[np.ndarray]:
    engine = Engine(model, None, bits.key_words(seed), 20)
    takes = (np.arange(20) ** 2 * max(1, min(int(model.n), 4000) // 20))[None]
    counts = engine.advance(takes)[0][0]
    return list(counts.T.astype(np.int64))


def _one_tick(model: Model, state: Any, keys: Any, index: int, view: Callable[[Any], Any] | None) -> tuple[np.ndarray, ...]:
    """What `view` shows before, (rows,), and after one tick, (rows, lanes); tick `index`, so that states share no words."""
    tables = model.tables(model.clock())
    with jax.enable_x64(True) if model.float64 else contextlib.nullcontext():
        before, after = _tick(model.program(), view, tables, state, *keys, np.uint32(index))
        return np.asarray(before)[:, 0].astype(np.int64), np.asarray(after)


@functools.partial(jax.jit, static_argnames=("program", "view"))
def _tick(program: Model, view: Callable[[Any], Any] | None, tables: Any, state: Any, k0: Any, k1: Any, index: Any) -> Any:
    show = view or program.counts
    words = tick_words(program, k0, k1, jnp.full_like(k0, index), jnp.zeros_like(k0))
    lanes = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*leaf.shape[:-1], k0.size)), state)
    return show(state), show(program.apply(tables, lanes, program.draw(tables, words)))


def _from_rates(model: Any, start: np.ndarray) -> dict[tuple[int, ...], float]:
    """Transition probabilities rates/clock from integer counts, (states,)."""
    with jax.enable_x64(True):
        rates = np.asarray(model.rates(jnp.asarray(start / model.n), 1.0 / model.n)) * model.n / model.clock()
    law: dict[tuple[int, ...], float] = {}
    for jump, probability in zip(model.jumps, rates, strict=True):
        if probability < -1e-12:
            raise AssertionError(f"rates must be >= 0; got {probability} for jump {jump.tolist()} at counts {start.tolist()}")
        target = tuple((start + jump).tolist())
        law[target] = law.get(target, 0.0) + max(float(probability), 0.0)
    stay = tuple(start.tolist())
    law[stay] = law.get(stay, 0.0) + 1.0 - sum(law.values())
    return law


def _compare(start: np.ndarray, after: np.ndarray, expected: dict[tuple[int, ...], float], lanes: int, level: float) -> float:
    from scipy.stats import chi2

    seen = _tally(after)
    for target in seen:
        if expected.get(target, 0.0) <= 1e-15:
            raise AssertionError(f"a transition of probability 0 occurred {seen[target]} times in {lanes} ticks: "
                                 f"{start.tolist()} -> {list(target)}")
    counts = np.array([seen.get(target, 0) for target in expected], float)
    means = np.array(list(expected.values())) * lanes
    rare = means < 20
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        means = np.append(means[~rare], means[rare].sum())
    used = means > 0
    counts, means = counts[used], means[used]
    if means.size < 2:
        return 1.0
    statistic = (counts - means) ** 2 / means
    p = float(chi2.sf(statistic.sum(), means.size - 1))
    if p < level:
        worst = int(np.argmax(statistic))
        raise AssertionError(f"one tick from {start.tolist()} does not follow the law: chi-square p = {p:.2g}; the worst "
                             f"transition occurred {counts[worst]:.0f} times where {means[worst]:.1f} were expected")
    return p


def _tally(after: np.ndarray) -> dict[tuple[int, ...], int]:
    """How often each column occurs; columns are told apart by a random 64-bit linear hash."""
    rng = np.random.default_rng(0)
    hashes = np.zeros(after.shape[1], np.uint64)
    for row in after:
        hashes += row.astype(np.uint64) * np.uint64(int(rng.integers(2**63)) * 2 + 1)
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    return {tuple(after[:, column].tolist()): int(count) for column, count in zip(first, counts, strict=True)}
