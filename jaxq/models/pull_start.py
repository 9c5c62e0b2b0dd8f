"""Where a PULL system starts: tail counts of each pool, and the first messages of its idle servers at random routers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _check, bits, pull_theory
from ..chain import Steady
from .pools import tails

_DIRECT = 2**14     # messages up to which each draws its own router


def start(model: Any, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    """The model, with levels enough, and the state of the replicas with these key words; `initial` as `Pull` documents it."""
    if isinstance(initial, (list, tuple, np.ndarray)) and len(initial) and not any(map(np.ndim, initial)):
        return _from_counts(model, _check.vector("initial", initial), keys[0].size)
    given = tails(initial, model.servers, model.buffers)
    while any(tail.size > depth for tail, depth in zip(given, model.depths, strict=True)):
        model = model.at_levels(2 * model.levels)
    classes = model.classes
    servers = np.zeros((classes.size, keys[0].size), np.int32)
    for pool, (tail, total) in enumerate(zip(given, model.servers, strict=True)):
        last = classes.first(pool) + 1  # of the servers without a message, longest first
        servers[last - tail.size: last] = (tail - np.append(tail[1:], 0))[::-1, None]
        idle = int(total) - int(tail[:1].sum())
        servers[(classes.pool == pool) & (classes.length == 0)] = split(idle, model.routers, keys, pool)
    return model, model.state_of(servers[classes.kept])


def _from_counts(model: Any, counts: np.ndarray, replicas: int) -> tuple[Any, Any]:
    while None in model.buffers and counts.size > model.classes.kept.size:
        model = model.at_levels(2 * model.levels)
    states = model.classes.kept
    if counts.size == states.size and counts.dtype.kind != "f" and counts.min() >= 0:
        sums = np.bincount(model.classes.pool[states], counts, model.servers.size)
        if np.all(sums <= model.servers):
            return model, model.state_of(np.repeat(counts.astype(np.int32)[:, None], replicas, axis=1))
    raise ValueError(f"initial given as counts must be {states.size} integers >= 0 with at most {model.servers.tolist()} servers "
                     f"in the pools; got {counts.tolist()}; for tail counts give one list for each pool")


def split(idle: int, routers: int, keys: tuple[np.ndarray, np.ndarray], pool: int) -> np.ndarray:
    """(routers, replicas): the messages of `idle` servers at uniform routers, from each replica's own words.

    Up to 2**14 messages draw one by one. More are split in two again and again by binomials, each the inverse of its exact
    law at one 64-bit word.
    """
    replicas = keys[0].size
    rows = np.zeros((routers, replicas), np.int32)
    if routers == 1 or idle == 0:
        rows[0] = idle
    elif idle <= _DIRECT:
        server = np.arange(idle, dtype=np.uint32)
        for first in range(0, replicas, batch := max(1, 2**22 // idle)):
            k0, k1 = (part[first: first + batch, None] for part in keys)
            chosen = bits.mulhi64(*bits.threefry(k0, k1, server, np.uint32(pool)), np.uint32(routers))
            flat = chosen.astype(np.int64) + np.arange(k0.size)[:, None] * routers
            rows[:, first: first + batch] = np.bincount(flat.ravel(), minlength=k0.size * routers).reshape(-1, routers).T
    else:
        rows[0] = idle
        _halve(rows, keys, pool)
    return rows


def _halve(rows: np.ndarray, keys: tuple[np.ndarray, np.ndarray], pool: int, node: int = 1) -> None:
    """Divide the total in row 0 over all rows: those for the upper half are binomial, then each half in turn."""
    from scipy.special import betainc

    count = rows.shape[0]
    if count == 1:
        return
    upper, p = count // 2, count // 2 / count
    total = rows[0].astype(np.int64)
    hi, lo = bits.threefry(*keys, np.full(total.size, node, np.uint32), np.uint32(pool))
    word = (hi.astype(np.float64) * 2.0**32 + lo) * 2.0**-64
    low, high = np.full_like(total, -1), total.copy()  # P(X <= low) <= word < P(X <= high)
    while np.any(high - low > 1):
        middle = np.clip((low + high) // 2, 0, total)
        inside = np.where(middle < total, betainc(np.maximum(total - middle, 1), middle + 1.0, 1 - p), 1.0) > word
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    rows[count - upper] = high
    rows[0] -= high.astype(np.int32)
    _halve(rows[: count - upper], keys, pool, 2 * node)
    _halve(rows[count - upper:], keys, pool, 2 * node + 1)


def split_idle(model: Any, idle: np.ndarray, busy: np.ndarray) -> np.ndarray:
    """Densities (states,) with these idle servers of each pool, their messages split equally, and these serving one."""
    classes = model.classes
    density = np.where(classes.length == 0, idle[classes.pool] / model.routers, np.where(classes.sends, busy[classes.pool], 0.0))
    return density[classes.kept]


def steady(model: Any) -> Steady:
    """What is known of the steady state. Raises ValueError at a load that some pool without a buffer cannot hold."""
    capacity, arrivals = math.fsum(pool.fraction * pool.rate for pool in model.pools), model.n * model.arrival_rate
    rates, fractions = (tuple(getattr(pool, name) for pool in model.pools) for name in ("rate", "fraction"))
    slack = 1 - model.arrival_rate / capacity
    if slack <= 0:
        if None in model.buffers:
            raise ValueError(f"a steady state needs arrival_rate below the servers' capacity {capacity:g}, or buffers; got "
                             f"{model.arrival_rate:g}; lower it or give every pool a buffer")
        full = [[int(servers)] * buffer for servers, buffer in zip(model.servers, model.buffers, strict=True) if buffer]
        return Steady(arrivals, rates, fractions, starts=(None, full))
    busy = np.round(model.n * pull_theory.equilibrium(model.pools, model.arrival_rate).nu).astype(int)
    # the queues; the split of the messages over the routers, which relaxes over a time of order n slack**2
    slow = 2 / slack + (0.3 * model.n * slack**2 if model.routers > 1 else 0.0)
    crowd = 2
    if min(model.n * slack / model.routers, model.n * slack**2) < 10:  # often no message: no worse than lone queues then
        crowd += math.ceil((1 - slack) / slack)
    if None not in model.buffers:
        slow = min(slow, float(max(model.depths) + 1) ** 2)
    crowded = [[int(servers)] * min(crowd, buffer or crowd) for servers, buffer in zip(model.servers, model.buffers, strict=True)]
    return Steady(arrivals, rates, fractions, set(model.buffers) == {None}, slow / min(rates),
                  ([[int(servers)] for servers in busy], crowded))
