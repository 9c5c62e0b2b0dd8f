"""One tick of a leap: the numbers of all events in its steps, and what a step does in the mean. `leap.py` says what they are."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bits
from .binomial import normal
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
        servers, each = _classes(model, events, tables, x)
        aligned = jnp.where(at == 0, 0, _DEPTH - lax.population_count((at & -at) - 1))
        halvings, there, middle = _halvings(model, events, tables, x, servers, each, tables["tick"], depth, aligned)
        running = at < end
        span = jnp.where(running, _part(tables["tick"], halvings), 0.0)
        g = _normals(key, np.concatenate([events.names, events.names | np.uint32(1 << 31)]), halvings, at)
        numbers = _numbers(order, events, servers, each, there, middle, span[None], g.reshape(2, events.count, -1))
        x = x + events.jumps.T @ numbers
        at = at + jnp.where(running, np.int32(1) << (_DEPTH - halvings), 0)
        beyond = tables["truncated"] & (model.tail(x)[-1] > 0.5)
        return x, at, happened + events.counted @ numbers, out | beyond

    lanes = counts.shape[1]
    start = (counts.astype(jnp.float64), jnp.where(active, np.int32(0), end), jnp.zeros((3, lanes)), jnp.zeros(lanes, jnp.bool_))
    x, _, happened, out = lax.while_loop(goes_on, step, start)
    return x.astype(np.int32), happened.astype(np.int64), out


def _halvings(model: Any, events: Events, tables: Any, x: Any, servers: Any, each: Any, span: Any, depth: Any, least: Any) -> Any:
    """How often a replica halves `span`, (lanes,) int32, and `_classes` in the middle of its step.

    It begins with `depth` and halves until no server leaves its class more than 1 - depth / 2 times in the step, and `least`
    times. A class that is empty at first counts too, at its rates in the middle of the step, unless hardly anybody comes. Where
    those grow as fast as the step shrinks (all arrivals want the few who come), only that ends the halving.
    """
    def over(often: Any) -> Any:
        return jnp.ceil(jnp.log2(jnp.maximum(jnp.max(often, axis=0) / ((2.0 - depth) * _LIMIT), 1.0))).astype(np.int32)

    filled = servers > 0.5
    rates = _in_all(events, servers, each)
    come = jnp.where(filled, 0.0, events.goal.T @ rates)

    def look(carry: Any) -> Any:
        halvings, settled, *_ = carry
        part = _part(span, halvings)[None]
        there, each = _classes(model, events, tables, x + events.jumps.T @ rates * (0.5 * part))
        more = jnp.where(settled, 0, over(jnp.where(come * part < _HARDLY, 0.0, events.source.T @ each * part)))
        after = jnp.where(more > 0, jnp.minimum(halvings + more, _DEPTH), jnp.maximum(halvings, least))
        return after, settled | (more == 0) | (after == _DEPTH), jnp.any(after != halvings), there, each

    first = depth + over(jnp.where(filled, events.source.T @ each, 0.0) * _part(span, depth)[None])
    # at most a few rounds: each halves once at least
    halvings, _, _, there, each = lax.while_loop(lambda carry: carry[2], look, (
        jnp.minimum(first, _DEPTH), jnp.full(first.shape, False), True, servers, each))
    return halvings, there, each


def _numbers(order: int, events: Events, servers: Any, each: Any, there: Any, middle: Any, span: Any, g: jax.Array) -> jax.Array:
    """How often each event happens in the time `span`, (events, lanes), from the normals g (2, events, lanes)."""

    def departures(carry: Any, ahead: Any) -> Any:
        (servers, before), (chance, g) = carry, ahead
        numbers = events.split(servers, chance, each, g)
        return (events.goal.T @ numbers, before + numbers), None

    each, once, again, _ = _chances(order, events, servers, each, there, middle, span)
    return lax.scan(departures, (servers, jnp.zeros_like(each)), (jnp.stack([once, again][:order]), g[:order]))[0][1]


def _chances(order: int, events: Events, servers: Any, each: Any, there: Any, middle: Any, span: Any) -> Any:
    """Rates per server in the step, the chance of a server of each class to leave it, that of one who comes to leave again,
    and the mean numbers of the events (events, lanes), in all `rates * span` at the density of the step.

    servers, each: `_classes` at the start of the step; there, middle: in its middle."""
    if order == 1:
        once = events.source.T @ each * span
        return each, once, jnp.zeros_like(once), events.mean(servers, once, each)
    y = events.source.T @ middle * span
    once = jnp.where(events.reservoirs, y, -jnp.expm1(-y))
    first = events.mean(servers, once, middle)
    # who comes leaves again so often that every event has its rate at the middle in the mean: about half as often as the others
    came = events.goal.T @ first
    due = y * there - servers * once
    again = jnp.clip(due / jnp.where(came > 0, came, 1.0), 0.0, 1.0)
    return middle, once, again, first + events.mean(came, again, middle)


@functools.partial(jax.jit, static_argnums=(0, 1))
def mean_changes(model: Any, order: int, tables: Any, span: Any, steps: Any, x: Any) -> tuple[jax.Array, jax.Array]:
    """Mean change per unit time in a step `span` of the fractions that events change by `steps` / n, and of the square of their
    sum. Servers move independently of each other in a step: the variance of the sum is that of one server, class by class."""
    events, n = events_of(model), tables["n"]
    servers, each = _classes(model, events, tables, x)
    fine = np.ones(x.shape[1], np.int32)  # halvings of a tick that make a step
    halvings, there, middle = _halvings(model, events, tables, x, servers, each, 2 * span, fine, fine)
    each, once, again, mean = _chances(order, events, servers, each, there, middle, span)
    steps = jnp.concatenate([steps[..., events.order], jnp.zeros((*steps.shape[:-1], 1))], axis=-1)
    weight = jnp.sum(steps, axis=tuple(range(steps.ndim - 1)))[:, None]
    # of one server: the chance of each event as its first, and the mean and the mean square of what a second adds
    alone = jnp.ones_like(servers)
    first, second = (events.mean(alone, chance, each) for chance in (once, again))
    more, square = events.source.T @ (weight * second), events.source.T @ (weight**2 * second)
    goal_more = events.goal @ more
    each_square = weight**2 + 2 * weight * goal_more + events.goal @ (square - more**2) + goal_more**2
    alike = events.source.T @ (first * each_square) - (events.source.T @ (first * (weight + goal_more)))**2
    spread = jnp.sum(servers * alike, axis=0)
    drift = jnp.sum(weight * mean, axis=0)
    total = jnp.sum(model.tail(x), axis=0)
    change = (2 * total * drift + drift**2 + spread) / (span * n**2)
    return jnp.tensordot(steps, mean, 1) / (span * n), jnp.where(halvings == fine, change, jnp.nan)


def _in_all(events: Events, servers: Any, each: Any) -> Any:
    """Rates (events, lanes) in all, from those per server."""
    return each * (events.source @ servers)


def _part(span: Any, halvings: Any) -> Any:
    """A 2**halvings-th of `span`."""
    return span / (np.int32(1) << halvings).astype(jnp.float64)


def _classes(model: Any, events: Events, tables: Any, x: jax.Array) -> tuple[Any, Any]:
    """Servers of each class (classes, lanes), and rates (events, lanes) per server of the class that an event takes one from."""
    n = tables["n"]
    rates = n * jax.vmap(tables["model"].rates, in_axes=(1, None), out_axes=1)(x / n, 1 / n)[events.order]
    everyone = n * tables["arrivals"]
    lost = everyone - events.counted[0, :-1] @ rates
    rates = jnp.concatenate([rates, jnp.where(lost > 1e-12 * everyone, lost, 0.0)[None]])  # else it is rounding
    servers = events.matrix @ x + tables["base"]
    there = events.source @ servers
    # between whole numbers of servers a rate may dip below 0
    return servers, jnp.where(there > 1e-9, jnp.maximum(rates, 0.0) / jnp.maximum(there, 1e-9), 0.0)


def _normals(key: Any, names: np.ndarray, halvings: jax.Array, at: jax.Array) -> jax.Array:
    """Standard normals (names, lanes) of the part of a tick that begins at `at`, a 2**halvings-th of it.

    The normal of the tick is split by a Brownian bridge: the halves have (g + b) / sqrt 2 and (g - b) / sqrt 2, b a normal of
    their own. So the sum over parts is, up to its scale, that over coarser parts.
    """

    def split(carry: Any) -> Any:
        g, level = carry
        node = (np.int32(1) << level) >> 1 | lax.shift_right_logical(at, _DEPTH + 1 - level)  # heap number of the part to be split
        second = (lax.shift_right_logical(at, _DEPTH - level) & 1) == 1
        b = normal(*bits.threefry(key[0][None], key[1][None], jnp.asarray(names)[:, None], node.astype(np.uint32)[None]))
        half = jnp.where(level == 0, b, (g + jnp.where(second[None], -b, b)) * np.sqrt(0.5))
        return jnp.where((level <= halvings)[None], half, g), level + 1

    start = (jnp.zeros((names.size, at.size)), np.int32(0))
    return lax.while_loop(lambda carry: carry[1] <= jnp.max(halvings), split, start)[0]
