"""The supermarket model exactly, about sqrt(n) ticks at a time.

Every server that a tick looks at is a slot: d for an arrival, one for a service, each uniform among n. Ticks whose slots are
pairwise distinct do not see each other, so all of them can be applied at once from counts; the first tick that meets a
server again ends the batch and is played by itself. In law this is the chain itself, tick by tick; the only rounding is that
of probabilities in float64 (each right to about 1e-14, each compared with a uniform of 52 bits).

A batch, in the order of the code:

- The number K of slots before the first repetition is a birthday problem that does not ask what the slots are for:
  P(K >= k) = (1 - 1/n) ... (1 - (k - 1)/n), inverted from a table.
- Ticks with d slots (arrivals, probability p) and one slot (services) are a renewal process, so the slots of the ticks that are
  complete before the repetition are s = K with probability u(K) and s = K - j, an arrival following of which j slots are new, with
  probability u(K - j) p; u(s) = (1 - p) u(s - 1) + p u(s - d). Given s, there are a arrivals with probability
  C(s - (d - 1) a, a) p**a (1 - p)**(s - d a) / u(s), and every order of the ticks is equally likely.
- A batch that would pass the next save time is cut there: of its ticks, in that random order, the first ones are taken, and what
  they hold is hypergeometric. The rest is forgotten; it is independent of what was kept.
- The servers that serve are a uniform sample: level by level, of those with at least i customers a hypergeometric number has
  i + 1. Of the M arrivals whose d servers all have at least i customers, f1 first servers have i + 1, of the partners of those f2
  have, and so on: d hypergeometric numbers a level, and M - f_d customers join a server with i. Which of the shortest servers is
  joined does not matter to the counts; here it is the first one found.
- The repeated server is a uniform one of the K, in its state after the batch. Servers that were not examined beyond "at least i"
  are exchangeable with all others like it, so its length follows from the counts that are left over at each level. The slots
  after it are uniform among n.

Without replacement an arrival that samples a server twice is no tick at all and arrivals are drawn that much more often.

Sources: Berenbrink, Hammer, Kaaser, Meyer, Penschuck and Tran 2020, arXiv:2005.03584 (the same for population protocols); Doty
and Severson 2021, arXiv:2105.04702 (ppsim).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .hypergeometric import binomial_probability, hypergeometric, invert
from .models.supermarket import Supermarket

_LEVEL = 64  # the uniforms of level i start at number 64 + i (d + 1), below are those of the batch as a whole


def batch(program: Supermarket, tables: Any, x: jax.Array, left: jax.Array, uniform: Any) -> Any:
    """Counts, arrivals and ticks after one batch of at most `left` ticks; all in float64 integers.

    x is the model's: row i has the servers with more than i customers, the last the arrivals at servers that hold no more.
    """
    n, d = tables["n"], program.d
    slots, whole, arrivals, ticks = run_length(tables, d, uniform(0), uniform(1), uniform(2))
    cut = jnp.minimum(ticks, left)
    arrivals = lax.cond(jnp.any(left < ticks), lambda: hypergeometric(uniform(3), ticks, arrivals, cut), lambda: arrivals)
    met = left > ticks
    services = cut - arrivals

    # rows 0..levels + 1: n, the servers with at least 1, 2, ..., levels customers, and none
    least = jnp.concatenate([jnp.full_like(x[:1], n), x[:-1], jnp.zeros_like(x[:1])])
    served, found = level_by_level(d, least, services, arrivals, uniform)
    groups = jnp.concatenate([arrivals[None], found[:, -1]])  # arrivals whose servers all have at least i customers
    x = x + groups[:-1] - groups[1:] - jnp.concatenate([served[1:-1] - served[2:], jnp.zeros_like(x[:1])])

    change, arrival, valid = collision(program, tables, x, least, served, groups, found, slots, whole, uniform)
    valid = valid & met
    return (x + jnp.where(valid[None], change, 0.0), arrivals + (valid & arrival), jnp.where(left > 0, cut + valid, 0.0))


def run_length(tables: Any, d: int, u: jax.Array, v: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
    """Slots before the first repetition, and the slots, arrivals and ticks of the ticks complete before it."""
    p, renewal = tables["arrival"], tables["renewal"]
    slots = jnp.searchsorted(-tables["distinct"], -u, side="left").astype(jnp.int32)
    whole, below = slots, renewal[d + slots]
    for j in range(1, d):  # the arrival that meets a server again had j servers of its own
        chance = p * renewal[d + slots - j]
        whole, below = jnp.where((v >= below) & (chance > 0), slots - j, whole), below + chance
    s = whole.astype(jnp.float64)
    start = jnp.minimum(jnp.round(s * p / (1 + (d - 1) * p)), jnp.floor(s / d))
    first = binomial_probability(start, s - (d - 1) * start, p) / renewal[d + whole]

    def ratio(k: jax.Array) -> tuple[Any, Any]:
        """P(k)/P(k - 1), with t ticks at k - 1 arrivals."""
        t = s - (d - 1) * (k - 1)
        above, below = p * jnp.ones_like(k), k
        for i in range(d):
            above = above * ((t - (k - 1) - i) / (1 - p))
        for i in range(d - 1):
            below = below * (t - i)
        return jnp.where(d * k <= s, above, 0.0), jnp.where(d * k <= s, below, 1.0)

    arrivals = invert(w, start, first, ratio, lambda k: ratio(k + 1)[::-1])
    return slots.astype(jnp.float64), s, arrivals, s - (d - 1) * arrivals


def level_by_level(d: int, least: jax.Array, services: jax.Array, arrivals: jax.Array, uniform: Any) -> tuple[jax.Array, jax.Array]:
    """Of the serving servers, those with at least i customers (levels + 2, lanes); and of the arrivals whose d servers all have at
    least i, those of which the first k + 1 have i + 1: (levels + 1, d, lanes)."""
    rows = least.shape[0] - 1

    def at(array: jax.Array, row: Any) -> jax.Array:
        return lax.dynamic_index_in_dim(array, row, 0, keepdims=False)

    def level(carry: Any) -> Any:
        i, served, found, group = carry
        h = jnp.maximum(i - 1, 0)  # the services are one level ahead: two independent numbers at once
        total, good = at(least, h) - at(served, h), at(least, i) - at(served, i)
        draws = jnp.where(i > 0, group, 0.0)
        first = _LEVEL + i * (d + 1)
        pair = hypergeometric(jnp.stack([uniform(first), uniform(first + 1)]), jnp.stack([at(least, i), total]),
                              jnp.stack([at(least, i + 1), good]), jnp.stack([at(served, i), draws]))
        served = lax.dynamic_update_index_in_dim(served, pair[0], i + 1, 0)

        def partners(carry: Any, k: Any) -> Any:
            total, good, draws, have = carry
            total, good = total - draws, good - have
            more = hypergeometric(uniform(first + 1 + k), total, good, have)
            return (total, good, have, more), more

        last, others = lax.scan(partners, (total, good, draws, pair[1]), np.arange(1, d, dtype=np.int32))
        found = lax.dynamic_update_index_in_dim(found, jnp.concatenate([pair[1:], others]), h, 0)
        return i + 1, served, found, jnp.where(i > 0, last[-1], group)

    def going(carry: Any) -> Any:
        i, served, _, group = carry
        return (i < rows) & jnp.any(at(served, i) + group > 0)

    served = jnp.zeros_like(least).at[0].set(services)
    found = jnp.zeros((rows, d, least.shape[1]), least.dtype)
    return lax.while_loop(going, level, (jnp.zeros((), jnp.int32), served, found, arrivals))[1:3]


def collision(program: Supermarket, tables: Any, x: jax.Array, least: jax.Array, served: jax.Array, groups: jax.Array,
              found: jax.Array, slots: jax.Array, whole: jax.Array, uniform: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The tick that meets a server again: what it adds to x, whether it is an arrival, and whether it is a tick at all.

    Its own `slots - whole` first servers are new, then comes one of the `slots` servers seen so far.
    """
    n, d, top = tables["n"], program.d, x.shape[0] - 1
    level = jnp.arange(top + 1, dtype=x.dtype)[:, None]
    # servers with at least i customers that were not examined further, and those of them that have i + 1
    pool = least[:-1] - served[:-1] - groups[:-1] - found[:, :-1].sum(1)
    higher = least[1:] - served[1:] - found.sum(1)

    def length(u: jax.Array, start: Any) -> jax.Array:
        stays = jnp.where(level < start, 1.0, higher / jnp.maximum(pool, 1.0))
        return jnp.sum(u[None] < jnp.cumprod(stays, axis=0), axis=0, dtype=x.dtype)

    own = slots - whole
    shortest, valid, mine = jnp.full_like(slots, top), slots > 0, jnp.zeros_like(x)
    for k in range(d - 1):
        new = own > k
        one = length(uniform(8 + k), 0)
        pool, higher = pool - (new[None] & (level <= one[None])), higher - (new[None] & (level < one[None]))
        shortest, mine = jnp.where(new, jnp.minimum(shortest, one), shortest), mine + (new[None] & (level <= one[None]))

    again = jnp.floor(uniform(5) * slots)
    group, member = jnp.divmod(again - served[0], d)
    end = jnp.sum(group[None] < groups[1:], axis=0, dtype=x.dtype)  # customers of the server that the arrival joined
    joined = jnp.sum(jnp.where(level[:, None] == end[None, None], group[None, None] < found, False), axis=(0, 1), dtype=x.dtype)
    examined = length(uniform(6), (end + (member < joined))[None])
    arrived = jnp.where(member == joined, jnp.minimum(end + 1, top), examined)
    one = jnp.where(again < served[0], jnp.maximum(jnp.sum(again[None] < served[1:], axis=0, dtype=x.dtype) - 1, 0.0), arrived)
    arrival, twice = (own > 0) | (uniform(4) < tables["arrival"]), again >= whole
    change = jnp.where(level == one[None] - 1, -1.0, 0.0)
    shortest, mine = jnp.where(twice, shortest, jnp.minimum(shortest, one)), mine + (level <= one[None])

    for k in range(1, d):
        later, rank = own < k, uniform(8 + d + k) * n
        if not program.replacement:  # k servers are taken; among the others the counts are x - mine
            twice, rank = twice | (later & (rank < k)), rank - k
        taken = 0.0 if program.replacement else mine[1:]
        one = jnp.sum(rank[None] < x[:-1] - taken, axis=0, dtype=x.dtype)
        shortest, mine = jnp.where(later, jnp.minimum(shortest, one), shortest), mine + (later[None] & (level <= one[None]))
    change = jnp.where(arrival[None], jnp.where(level == shortest[None], 1.0, 0.0), change)
    return change, arrival, valid if program.replacement else ~(arrival & twice)
