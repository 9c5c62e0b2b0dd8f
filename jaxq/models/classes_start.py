"""Where `SupermarketClasses` starts: counts of each pool from what the user gave, and what is known of its steady state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..chain import Steady
from .pools import tails


def start(model: Any, initial: Any, replicas: int) -> tuple[Any, Any]:
    """The model, with levels enough, and its state; `initial` as `SupermarketClasses` documents it."""
    if isinstance(initial, (list, tuple, np.ndarray)) and len(initial) and not any(map(np.ndim, initial)):
        while None in model.buffers and sum(model.depths) < len(initial):
            model = model.at_levels(2 * model.levels)
        if len(initial) != sum(model.depths):
            raise ValueError(f"initial given as counts must be {sum(model.depths)} integers, the tail counts of one pool after "
                             f"the other; got {len(initial)}; for shorter tails give one list for each pool")
        initial = model.split(initial)
    given = tails(initial, model.servers.tolist(), model.buffers)
    while any(tail.size > depth for tail, depth in zip(given, model.depths, strict=True)):
        model = model.at_levels(2 * model.levels)
    counts = np.concatenate([np.pad(tail, (0, depth - tail.size)) for tail, depth in zip(given, model.depths, strict=True)])
    return model, model.state_of(np.repeat(counts[:, None], replicas, axis=1))


def steady(model: Any) -> Steady:
    """What is known of the steady state. Raises ValueError at a load that some pools without buffers cannot hold."""
    if overloaded(model, 1 / model.n):
        raise ValueError("a steady state needs every set of pools without buffers to serve the customers who sample only it; "
                         f"got arrival_rate = {model.arrival_rate:g}, d = {model.d} and {model.pools!r}; lower arrival_rate or "
                         "give buffers")
    like = model.at_levels(8)  # a start must not depend on `levels`
    crowd = 2 + math.ceil(2 * float(np.sum(like.tail(like.guess()))))
    crowded = [[int(servers)] * min(crowd, buffer or crowd) for servers, buffer in zip(model.servers, model.buffers, strict=True)]
    rates, fractions = (tuple(getattr(pool, name) for pool in model.pools) for name in ("rate", "fraction"))
    return Steady(model.n * model.arrival_rate, rates, fractions, set(model.buffers) == {None}, starts=(None, crowded))


def overloaded(model: Any, inverse_n: float = 0.0) -> bool:
    """The queues of a set of pools grow if the customers who sample it only are too many; its slowest pools decide."""
    pools = sorted((pool for pool in model.pools if pool.buffer is None), key=lambda pool: float(pool.rate))
    share = np.cumsum([float(pool.fraction) for pool in pools])
    taken = np.zeros(model.d) if model.replacement else np.arange(model.d) * inverse_n
    only = np.prod(np.maximum(share[:, None] - taken, 0.0) / (1 - taken), axis=1)
    return bool(np.any(model.arrival_rate * only >= np.cumsum([float(pool.fraction * pool.rate) for pool in pools])))
