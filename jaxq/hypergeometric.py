"""Exact hypergeometric numbers, many at once, for samples from up to 2**31 servers.

A number inverts one 64-bit uniform: from the integer next to the mean outwards, both ways, subtracting probabilities until the
uniform is used up. That takes about as many steps as the farthest lane is away from its mean, three or four standard
deviations, so it is meant for samples whose standard deviation is at most a few hundred.

Differences of log-factorials would lose all digits here (log n! is 4e10 at n = 2**31). With k! = sqrt(2 pi k) (k/e)**k e**D(k) and
E the expectations of the four cells O of the two-by-two table (Loader 2000, "Fast and accurate computation of binomial
probabilities"),

    P(O) = sqrt(rows columns / (2 pi N cells)) exp(D(rows) + D(columns) - D(N) - D(cells)) prod (E/O)**O,

where O - E is the same number for all cells up to its sign, at most 1/2, and taken from integers: no digit is lost and no
logarithm is taken of a large number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_TERMS = 17         # of log(1 - t) = -2 artanh(t/(2 - t)) at |t| <= 1/2: the first left out is below 1e-17 relative
_UNROLL = 4         # steps both ways between two looks at whether all lanes are done
_SMALL = 64         # D(k) from a table below, from Stirling's series above: its first term left out is 5e-20
_NOTHING = 1e-25    # probabilities at which a search ends; what lies beyond them is far below the last bit of a uniform
_EMPTY = 0.5 / np.pi  # stands for k = 0 in the square root: 0! = 1


def _stirling_table() -> np.ndarray:
    """D(k) = log k! - log(sqrt(2 pi k) (k/e)**k) for k < 64, 0 at k = 0, from D(64) down: D(k - 1) - D(k) is
    (k - 1/2) log(k/(k - 1)) - 1."""
    table = np.zeros(_SMALL + 1, np.longdouble)
    table[_SMALL] = _series(np.longdouble(1) / _SMALL)
    for k in range(_SMALL, 1, -1):
        table[k - 1] = table[k] + (np.longdouble(k) - 0.5) * np.log1p(np.longdouble(1) / (k - 1)) - 1
    return table[:_SMALL].astype(np.float64)


def _series(inverse: Any) -> Any:
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680))))


_TABLE = _stirling_table()


def stirling(k: jax.Array) -> jax.Array:
    """D(k), the logarithm of k! over Stirling's formula, for float64 integers k >= 0; D(0) = 0."""
    small = jnp.asarray(_TABLE)[jnp.minimum(k, _SMALL - 1).astype(jnp.int32)]
    return jnp.where(k < _SMALL, small, _series(1 / jnp.maximum(k, 1.0)))


def invert(u: jax.Array, start: jax.Array, probability: jax.Array, up: Callable[[Any], tuple[Any, Any]],
           down: Callable[[Any], tuple[Any, Any]]) -> jax.Array:
    """The value at which the probabilities, summed from `start` outwards (start, +1, -1, +2, ...), exceed u.

    probability: that of `start`; up(k): numerator and denominator of P(k)/P(k - 1); down(k): of P(k)/P(k + 1). Numerators
    are 0 at the first value outside the support and denominators nowhere. Where rounding leaves a rest of u, `start` is returned.
    """

    def step(carry: Any) -> Any:
        offset, rest, above, below, found = carry
        for _ in range(_UNROLL):
            offset = offset + 1.0
            (n1, d1), (n2, d2) = up(start + offset), down(start - offset)
            inverse = 1 / (d1 * d2)  # one division for both
            above = jnp.where(above > 0, above * n1 * d2 * inverse, 0.0)
            below = jnp.where(below > 0, below * n2 * d1 * inverse, 0.0)
            after = rest - above
            found = jnp.where((rest >= 0) & (after < 0), start + offset, found)
            rest = after - below
            found = jnp.where((after >= 0) & (rest < 0), start - offset, found)
        return offset, rest, above, below, found

    def going(carry: Any) -> Any:
        _, rest, above, below, _ = carry
        return jnp.any((rest >= 0) & (above + below > _NOTHING))

    return lax.while_loop(going, step, (jnp.zeros((), u.dtype), u - probability, probability, probability, start))[-1]


def hypergeometric(u: jax.Array, total: jax.Array, good: jax.Array, draws: jax.Array) -> jax.Array:
    """Good ones among `draws` drawn from `total` without replacement of which `good` are good; float64 integers < 2**31."""
    start = jnp.clip(jnp.round(good * draws / jnp.maximum(total, 1.0)), jnp.maximum(0.0, draws + good - total),
                     jnp.minimum(draws, good))
    spare = total - good - draws  # of the bad ones when every draw is bad; negative when that cannot be
    return invert(u, start, table_probability(start, total, good, draws),
                  lambda k: ((good - k + 1) * (draws - k + 1), k * (spare + k)),
                  lambda k: ((k + 1) * (spare + k + 1), (good - k) * (draws - k)))


def table_probability(k: jax.Array, total: jax.Array, good: jax.Array, draws: jax.Array) -> jax.Array:
    """P(k) of the hypergeometric law for the integer k next to the mean, to about 1e-14 relative."""
    cells = jnp.stack([k, good - k, draws - k, total - good - draws + k])
    margins = jnp.stack([good, total - good, draws, total - draws, total])
    integers = [value.astype(jnp.int64) for value in (k, total, good, draws)]
    excess = (integers[0] * integers[1] - integers[2] * integers[3]).astype(jnp.float64) / jnp.maximum(total, 1.0)
    t = jnp.stack([excess, -excess, -excess, excess]) / jnp.maximum(cells, 1.0)
    s = t / (2 - t)
    square = s * s
    artanh = jnp.full_like(s, 1 / (2 * _TERMS - 1))
    for term in range(_TERMS - 1, 0, -1):
        artanh = artanh * square + 1 / (2 * term - 1)
    log = stirling(margins[:4]).sum(0) - stirling(margins[4]) - jnp.sum(stirling(cells) + 2 * cells * s * artanh, axis=0)
    sizes, weights = (jnp.where(value > 0, value, _EMPTY) for value in (margins, cells))
    return jnp.sqrt(jnp.prod(sizes[:4], axis=0) / (2 * np.pi * sizes[4] * jnp.prod(weights, axis=0))) * jnp.exp(log)


def binomial_probability(k: jax.Array, draws: jax.Array, p: jax.Array) -> jax.Array:
    """P(k) of the binomial law for an integer k near the mean, by the same formula."""
    cells = jnp.stack([k, draws - k])
    excess = k - draws * p
    ratio = jnp.log1p(jnp.stack([-excess, excess]) / jnp.maximum(cells, 1.0))
    log = stirling(draws) - jnp.sum(stirling(cells) - cells * ratio, axis=0)
    size, weights = (jnp.where(value > 0, value, _EMPTY) for value in (draws, cells))
    return jnp.sqrt(size / (2 * np.pi * jnp.prod(weights, axis=0))) * jnp.exp(log)
