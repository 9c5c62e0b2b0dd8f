"""Binomial and Poisson numbers as increasing functions of one normal each, in lanes and in float64.

The same normal gives close numbers for close parameters, so that two step lengths can be compared on common randomness, and
no draw is rejected, so that lanes stay in step. Where the variance is small the distribution function is inverted exactly;
elsewhere the quantile is the rounded Cornish-Fisher expansion, its cumulants less those of the rounding: the mean is off by
less than 1e-6 standard deviations, the variance by less than 1e-4 of itself and the distribution function by less than 2e-5,
all less the larger the variance (`tests/test_binomial.py`). float32 would not hold counts above 2**24.

Sources: Cornish and Fisher 1937; Abramowitz and Stegun, 26.2.49; Sheppard's corrections.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr, ndtri

SMALL = 12.0        # variance below which the distribution function is inverted
RESERVOIR = 2.0**52  # trials that make a binomial number Poisson to 2**-52 of its mean


def normal(hi: Any, lo: Any) -> jax.Array:
    """A standard normal (float64) from two uint32 words, by inversion of 52 bits: with one more the largest would round to 1."""
    word = hi.astype(jnp.float64) * 2.0**20 + (lo >> 12).astype(jnp.float64)
    return ndtri((word + 0.5) * 2.0**-52)


def binomial(trials: jax.Array, p: jax.Array, g: jax.Array) -> jax.Array:
    """The quantile of Binomial(trials, p) at the probability Phi(g); all (lanes,) float64, trials whole numbers.

    With `RESERVOIR` trials it is that of Poisson(RESERVOIR p)."""
    fails = p > 0.5  # count what fails instead: the expansion and the search want p <= 1/2
    q, g = jnp.where(fails, 1 - p, p), jnp.where(fails, -g, g)
    variance = trials * q * (1 - q)
    count = lax.cond(jnp.any(variance > 0), lambda: _quantile(trials, q, variance, g), lambda: jnp.zeros_like(q))
    return jnp.where(fails, trials - count, count)


def _quantile(trials: jax.Array, q: jax.Array, variance: jax.Array, g: jax.Array) -> jax.Array:
    """That for q <= 1/2 failures or successes."""
    small = variance < SMALL
    count = jnp.clip(_expansion(trials, q, variance, g), 0.0, trials)
    return lax.cond(jnp.any(small & (variance > 0)), lambda: jnp.where(small, _search(trials, q, g, small), count),
                    lambda: jnp.where(small, 0.0, count))


def _expansion(trials: jax.Array, q: jax.Array, variance: jax.Array, g: jax.Array) -> jax.Array:
    """Rounded expansion up to the fourth standardised cumulant of a smooth variable that rounds to the binomial one."""
    second = jnp.maximum(variance, 1.0) - 1 / 12
    inverse = 1 / jnp.sqrt(second)
    pq = q * (1 - q)
    third = variance * (1 - 2 * q) * inverse**3
    fourth = (variance * (1 - 6 * pq) + 1 / 120) * inverse**4
    fifth = variance * (1 - 2 * q) * (1 - 12 * pq) * inverse**5
    h2, h3, h4 = g * g - 1, g * (g * g - 3), (g * g - 6) * g * g + 3
    smooth = (g + third * h2 / 6 + fourth * h3 / 24 - third**2 * (2 * h3 + g) / 36
              + fifth * h4 / 120 - third * fourth * (h4 + h2) / 24 + third**3 * (12 * h4 + 19 * h2) / 324)
    return jnp.floor(trials * q + second * inverse * smooth + 0.5)


def _search(trials: jax.Array, q: jax.Array, g: jax.Array, small: jax.Array) -> jax.Array:
    """Inversion from 0 up, in the lanes that are `small`."""
    u = ndtr(g)
    odds = q / (1 - q)
    first = jnp.exp(trials * jnp.log1p(-q))

    def goes_on(state: Any) -> Any:
        return jnp.any(state[3])

    def step(state: Any) -> Any:
        count, below, chance, active = state
        chance = jnp.where(active, chance * (trials - count) / (count + 1) * odds, chance)
        count = jnp.where(active, count + 1, count)
        below = jnp.where(active, below + chance, below)
        return count, below, chance, active & (below <= u) & (count < trials) & (chance > 1e-30)

    zero = jnp.zeros_like(q)
    return lax.while_loop(goes_on, step, (zero, first, first, small & (first <= u) & (trials > 0)))[0]
