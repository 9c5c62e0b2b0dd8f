"""How the words of a tick are shared out among its marks."""

import jax
import jax.numpy as jnp
import numpy as np


def mark(model, words):
    """What `model.draw` makes of these words, as integers."""
    drawn = model.draw(model.tables(model.clock()), tuple(jnp.asarray([w], jnp.uint32) for w in words))
    return [int(np.asarray(part)[0]) for part in jax.tree.leaves(drawn)]


def count_words(event):
    """How many 64-bit words come before `event(w)` first holds, for an event that then stays, by bisection."""
    low, high = 0, 2**64
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if event(middle) else (middle + 1, high)
    return low
