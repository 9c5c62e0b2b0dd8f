"""One tick of a leap: the numbers of all events in its steps, and what a step does in the mean. `leap.py` says what they are."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bits
from .binomial import binomial, normal, poisson
from .leap_events import Events, events_of

_LIMIT = 1 / 2   # departures per server in a step at which a replica halves its own
_HARDLY = 1 / 64  # servers expected to come in a step, below which an empty class may be fast
_DEPTH = 30      # halvings of a tick at most


def tick(model: Any, order: int, tables: Any, counts: jax.Array, key: Any, active: jax.Array, depth: np.ndarray) -> Any:
    """Counts (states, lanes) after a tick in 2**depth steps or more, depth (lanes,), what happened (3, lanes), and whether
    levels ran out."""
    events, end = events_of(model), np.int32(1 << _DEPTH)

    def goes_on(carry: Any) -> Any:
        return jnp.any(carry[1] < end)

    def step(carry: Any) -> Any:
        x, at, happened, out = carry
        servers, each = _servers(model, tables, x), _each(model, events, tables, x)
        whole = tables["tick"] * 2.0**-depth
        wanted = depth + _halvings(model, events, tables, x, servers, each, whole, (2.0 - depth) * _LIMIT)
        aligned = jnp.where(at == 0, 0, _DEPTH - lax.population_count((at & -at) - 1))
        halvings = jnp.maximum(jnp.clip(wanted, depth, _DEPTH), aligned)
        running = at < end
        span = jnp.where(running, tables["tick"] * jnp.exp2(-halvings.astype(jnp.float64)), 0.0)
        g = _normals(key, np.concatenate([events.names, events.names | np.uint32(1 << 31)]), halvings, at)
        numbers = _numbers(model, order, events, tables, x, servers, each, span[None], g)
        x = x + events.jumps.T @ numbers
        at = at + jnp.where(running, np.int32(1) << (_DEPTH - halvings), 0)
        beyond = tables["truncated"] & (model.tail(x)[-1] > 0.5)
        return x, at, happened + events.counted @ numbers, out | beyond

    lanes = counts.shape[1]
    start = (counts.astype(jnp.float64), jnp.where(active, np.int32(0), end), jnp.zeros((3, lanes)), jnp.zeros(lanes, jnp.bool_))
    x, _, happened, out = lax.while_loop(goes_on, step, start)
    return x.astype(np.int32), happened.astype(np.int64), out


def _halvings(model: Any, events: Events, tables: Any, x: Any, servers: Any, each: Any, span: Any, limit: Any) -> Any:
    """How often a replica halves a step `span`, (lanes,) int32: until no server leaves its class more than `limit` times in it.

    A class that is empty at first counts too, at its rates in the middle of the step, unless hardly anybody comes. Where those
    grow as fast as the step shrinks (all arrivals want the few who come), only that ends the halving.
    """
    def over(values: Any, bound: Any) -> Any:
        return jnp.ceil(jnp.log2(jnp.maximum(values / bound, 1.0)))

    filled = servers > 0.5
    wanted = over(jnp.max(jnp.where(filled, events.source.T @ each, 0.0), axis=0) * span, limit)
    rates = _in_all(events, servers, each)

    come = jnp.where(filled, 0.0, events.goal.T @ rates)

    def more(wanted: Any) -> Any:
        """Halvings that the classes that were empty ask for beyond those `wanted`."""
        part = (span * jnp.exp2(-wanted))[None]
        fast = events.source.T @ _each(model, events, tables, _middle(events, x, rates, part)) * part
        return over(jnp.max(jnp.where(come * part < _HARDLY, 0.0, fast), axis=0), limit)

    # at most a few rounds: each halves once at least
    return lax.while_loop(lambda pair: jnp.any((pair[1] > 0) & (pair[0] < _DEPTH)),
                          lambda pair: (pair[0] + pair[1], more(pair[0] + pair[1])), (wanted, more(wanted)))[0].astype(np.int32)


def _numbers(model: Any, order: int, events: Events, tables: Any, x: Any, servers: Any, each: Any, span: Any,
             g: jax.Array) -> jax.Array:
    """How often each event happens in the time `span`, (events, lanes), from the normals g (twice events, lanes)."""

    def draw(trials: jax.Array, chance: jax.Array, rows: np.ndarray) -> jax.Array:
        return binomial(trials, chance, g[rows])

    def outside(rates: jax.Array, rows: np.ndarray) -> jax.Array:
        return poisson(rates * span, g[rows])

    each, once, again, _ = _chances(model, order, events, tables, x, servers, each, span)
    numbers = events.split(servers, once, each, draw, outside)
    if order == 1:
        return numbers
    return numbers + events.split(events.goal.T @ numbers, again, each,
                                  lambda trials, chance, rows: draw(trials, chance, rows + events.count), None)


def _chances(model: Any, order: int, events: Events, tables: Any, x: Any, servers: Any, each: Any, span: Any) -> Any:
    """Rates per server in the step, the chance of a server of each class to leave it, that of one who comes to leave again,
    and the mean numbers of the events (events, lanes), in all `rates * span` at the density of the step.
    """
    if order == 1:
        once = events.source.T @ each * span
        return each, once, jnp.zeros_like(once), _mean(events, servers, once, each, span)
    middle = _middle(events, x, _in_all(events, servers, each), span)
    each = _each(model, events, tables, middle)
    y = events.source.T @ each * span
    once = -jnp.expm1(-y)
    first = _mean(events, servers, once, each, span)
    # who comes leaves again so often that every event has its rate at the middle in the mean: about half as often as the others
    came = events.goal.T @ first
    due = y * _servers(model, tables, middle) - servers * once
    again = jnp.clip(due / jnp.where(came > 0, came, 1.0), 0.0, 1.0)
    return each, once, again, first + _mean(events, came, again, each, 0.0)


def _mean(events: Events, servers: Any, chance: Any, each: Any, span: Any) -> Any:
    return events.split(servers, chance, each, lambda trials, p, rows: trials * p, lambda rates, rows: rates * span)


@functools.partial(jax.jit, static_argnums=(0, 1))
def mean_changes(model: Any, order: int, tables: Any, span: Any, steps: Any, x: Any) -> tuple[jax.Array, jax.Array]:
    """Mean change per unit time in a step `span` of the fractions that events change by `steps` / n, and of the square of their
    sum. Servers move independently of each other in a step: the variance of the sum is that of one server, class by class."""
    events, n = events_of(model), tables["n"]
    servers, each = _servers(model, tables, x), _each(model, events, tables, x)
    whole = _halvings(model, events, tables, x, servers, each, span, _LIMIT) == 0
    each, once, again, mean = _chances(model, order, events, tables, x, servers, each, span)
    steps = jnp.concatenate([steps, jnp.zeros((*steps.shape[:-1], 1))], axis=-1)
    weight = jnp.sum(steps, axis=tuple(range(steps.ndim - 1)))[:, None]
    # of one server: the chance of each event as its first, and the mean and the mean square of what a second adds
    alone = jnp.ones_like(servers)
    first, second = (_mean(events, alone, chance, each, 0.0) for chance in (once, again))
    more, square = events.source.T @ (weight * second), events.source.T @ (weight**2 * second)
    goal_more = events.goal @ more
    each_square = weight**2 + 2 * weight * goal_more + events.goal @ (square - more**2) + goal_more**2
    outside = jnp.where(events.inside, 0.0, each * span)
    alike = events.source.T @ (first * each_square) - (events.source.T @ (first * (weight + goal_more)))**2
    spread = jnp.sum(servers * alike, axis=0) + jnp.sum(outside * each_square, axis=0)
    drift = jnp.sum(weight * mean, axis=0)
    total = jnp.sum(model.tail(x), axis=0)
    change = (2 * total * drift + drift**2 + spread) / (span * n**2)
    return jnp.tensordot(steps, mean, 1) / (span * n), jnp.where(whole, change, jnp.nan)


def _in_all(events: Events, servers: Any, each: Any) -> Any:
    """Rates (events, lanes) in all, from those per server."""
    return each * jnp.where(events.inside, events.source @ servers, 1.0)


def _middle(events: Events, x: Any, rates: Any, span: Any) -> Any:
    """Counts expected in the middle of a step."""
    return x + events.jumps.T @ rates * (0.5 * span)


def _servers(model: Any, tables: Any, x: jax.Array) -> Any:
    """Servers of each class, (classes, lanes)."""
    return jnp.asarray(model.class_matrix, jnp.float64) @ x + tables["base"]


def _each(model: Any, events: Events, tables: Any, x: jax.Array) -> Any:
    """Rates (events, lanes) per server of the class that an event takes one from; in all, for one that takes none."""
    n = tables["n"]
    rates = n * jax.vmap(tables["model"].rates, in_axes=(1, None), out_axes=1)(x / n, 1 / n)
    everyone = n * tables["arrivals"]
    lost = everyone - events.counted[0, :-1] @ rates
    rates = jnp.concatenate([rates, jnp.where(lost > 1e-12 * everyone, lost, 0.0)[None]])  # else it is rounding
    there = events.source @ _servers(model, tables, x)
    there = jnp.where(events.inside, there, 1.0)
    # between whole numbers of servers a rate may dip below 0
    return jnp.where(there > 1e-9, jnp.maximum(rates, 0.0) / jnp.maximum(there, 1e-9), 0.0)


def _normals(key: Any, names: np.ndarray, halvings: jax.Array, at: jax.Array) -> jax.Array:
    """Standard normals (names, lanes) of the part of a tick that begins at `at`, a 2**halvings-th of it.

    The normal of the tick is split by a Brownian bridge: the halves have (g + b) / sqrt 2 and (g - b) / sqrt 2, b a normal of
    their own. So the sum over parts is, up to its scale, that over coarser parts.
    """

    def at_node(node: Any) -> jax.Array:
        return normal(*bits.threefry(key[0][None], key[1][None], jnp.asarray(names)[:, None], node[None]))

    def split(carry: Any) -> Any:
        g, level = carry
        node = (np.int32(1) << level) | lax.shift_right_logical(at, _DEPTH - level)  # heap number of the part to be split
        second = (lax.shift_right_logical(at, _DEPTH - 1 - level) & 1) == 1
        b = at_node(node.astype(np.uint32))
        return jnp.where((level < halvings)[None], (g + jnp.where(second[None], -b, b)) * np.sqrt(0.5), g), level + 1

    first = at_node(jnp.zeros_like(key[0]))
    return lax.while_loop(lambda carry: carry[1] < jnp.max(halvings), split, (first, np.int32(0)))[0]
