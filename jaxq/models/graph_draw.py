"""The marks of `GraphSupermarket`: a vertex, whom it asks, a word for ties and one for the type, from few random words."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import bits

#: Ways to draw. All numbers of a tick from one 64-bit word, each from the fraction the one before left: n <= 65536, and
#: larger n. Else 64 bits for the type, a word for ties, and 32 ("narrow") or 64 bits ("wide") for a vertex or neighbour.
PACKED = ("packed", "packed large")
#: Instead of a place in the list: the vertex itself; a neighbour that a vertex of low degree lacks.
OWN, ABSENT = np.int32(-1), np.int32(-2)


def word_size(n: int, degree: int, d: int, rate: float) -> str:
    """The way to draw on n vertices of at most `degree` neighbours; packed ones leave the type at least 32 bits."""
    used = math.log2(n) + (d - 1) * math.log2(degree + 1) + math.log2(math.lcm(*range(1, d + 1)))
    if d <= 10 and used + 32 <= 64 and degree < 2**16 and abs(1 - rate) >= 1e-4:
        return "packed" if n <= 2**16 else "packed large"
    return "wide" if n > 10**6 or abs(1 - rate) < 1e-4 else "narrow"


def words(size: str, d: int) -> int:
    """32-bit words a tick takes."""
    return 2 if size in PACKED else 2 + (2 if size == "wide" else 1) * d + 1


class Numbers:
    """The numbers of one tick, to be taken in order: ranks (`below`), the word for ties, the word of the type."""

    def __init__(self, size: str, d: int, words: tuple[Any, ...]) -> None:
        self._size, self._d, self._large = size, d, size == "packed large"
        self._hi, self._lo, *self._rest = words

    def below(self, bound: Any) -> Any:
        """A uniform rank below `bound` > 0, uint32."""
        if self._large:  # n itself, by 32-bit limbs; what follows is small
            self._large = False
            rank, hi = bits.rank64(self._hi, self._lo, bound)
            self._hi, self._lo = hi, self._lo * bound
            return rank
        if self._size in PACKED:
            rank, self._hi, self._lo = bits.next_rank(self._hi, self._lo, bound)
            return rank
        if self._size == "wide":
            return bits.mulhi64(self._rest.pop(0), self._rest.pop(0), bound)
        return bits.mulhi32(self._rest.pop(0), bound)

    def tie(self) -> Any:
        """A word w for which mulhi32(w, m) is uniform below m, for every m <= d."""
        if self._size not in PACKED:
            return self._rest[-1]
        multiple = math.lcm(*range(1, self._d + 1))  # m divides it, so that ranks below m are equally likely, exactly
        return self.below(np.uint32(multiple)) * np.uint32(-(-(2**32) // multiple) % 2**32)

    def kind(self) -> tuple[Any, Any]:
        """64 bits for the type of the tick, the low ones 0 where it is read off the high ones alone."""
        return self._hi, jnp.zeros_like(self._hi) if self._size in PACKED else self._lo


def candidates(numbers: Numbers, tables: Any, d: int, replacement: bool, size: Any) -> tuple[Any, list[Any]]:
    """A uniform vertex, int32, and where to look up the d - 1 others it asks: places for `look_up`, OWN or ABSENT.

    The list itself is read in `apply`: read here, XLA would hash the words anew for every number that depends on it.
    """
    n = tables["n"]
    vertex = numbers.below(n)
    own = vertex.astype(np.int32)
    if size.complete:
        picks = [numbers.below(n - np.uint32(0 if replacement else k)) for k in range(1, d)]
        others = picks if replacement else _distinct(picks, [vertex])
        return own, [other.astype(np.int32) for other in others]
    degree = tables["degree"] if size.regular else tables["degree"][own]
    start = vertex * degree if size.regular else tables["start"][own]
    if replacement:
        slots = [numbers.below(degree + np.uint32(1)) for _ in range(1, d)]
        return own, [jnp.where(slot == degree, OWN, (start + slot).astype(np.int32)) for slot in slots]
    slots = [numbers.below(jnp.maximum(degree, np.uint32(k + 1)) - np.uint32(k)) for k in range(d - 1)]
    places = [(start + slot).astype(np.int32) for slot in _distinct(slots, [])]
    if size.absent:
        places = [jnp.where(degree > np.uint32(k), place, ABSENT) for k, place in enumerate(places)]
    return own, places


def look_up(tables: Any, size: Any, place: Any, own: Any) -> Any:
    """The vertex at a place of the list; the vertex itself where there is none to ask."""
    if size.complete:
        return place
    neighbour = take(tables["neighbours"], jnp.maximum(place, 0))
    return jnp.where(place >= 0, neighbour, own)


def take(entries: Any, index: Any) -> Any:
    """entries[index], for a vector of indices (replicas,)."""
    if index.size == 1:
        return lax.dynamic_slice(entries, (index[0],), (1,))
    return entries.at[index].get(mode="promise_in_bounds")


def take_each(entries: Any, indices: list[Any]) -> list[Any]:
    """entries[index] for each vector of indices; at least two of them.

    For one replica the entries are read in a loop of their own: what is computed from them then uses the values read, not
    the entries again, so that XLA can write the next entry in place. Reads fused elsewhere make it copy all n at every tick.
    """
    if indices[0].size > 1:
        return [take(entries, index) for index in indices]
    where = jnp.concatenate(indices)
    found = lax.fori_loop(0, len(indices), lambda k, found: lax.dynamic_update_slice(
        found, lax.dynamic_slice(entries, (where[k],), (1,)), (k,)), jnp.zeros(len(indices), entries.dtype))
    return [found[k:k + 1] for k in range(len(indices))]


def put(entries: Any, index: Any, values: Any) -> Any:
    """The entries with `values` (replicas,) at distinct indices."""
    if index.size == 1:
        return lax.dynamic_update_slice(entries, values, (index[0],))
    return entries.at[index].set(values, unique_indices=True, mode="promise_in_bounds")


def alias(rates: np.ndarray, service: int) -> tuple[np.ndarray, np.ndarray]:
    """Walker's alias tables: a word of the services, `service` <= word < 2**32, at column v serves v below own[v], else alias[v].

    In integers: column v holds 2**32 units, and the units given to a vertex are its rate's share of n 2**32, rounded.
    """
    n, unit = rates.size, 2**32
    shares = np.floor(rates * (n / math.fsum(rates)) * unit).astype(np.int64)
    short = n * unit - int(shares.sum())  # what rounding left out, less than a unit each: to those with most
    shares[np.argsort(-shares, kind="stable")[: abs(short)]] += np.sign(short)
    units, alias = shares.tolist(), np.arange(n, dtype=np.int32)
    own = [unit] * n
    small, large = [v for v in range(n) if units[v] < unit], [v for v in range(n) if units[v] >= unit]
    while small and large:
        low, high = small.pop(), large[-1]
        own[low], alias[low] = units[low], high
        units[high] -= unit - units[low]
        if units[high] < unit:
            small.append(large.pop())
    bounds = [service + ((unit - service) * share >> 32) for share in own]
    return np.array([min(bound, unit - 1) for bound in bounds], np.uint32), alias


def _distinct(picks: list[Any], taken: list[Any]) -> list[Any]:
    """An ordered sample without replacement: a pick counts, in order, what `taken` and the earlier picks left."""
    found = list(taken)
    for pick in picks:
        for other in _ascending(found):
            pick = pick + (pick >= other).astype(np.uint32)
        found.append(pick)
    return found[len(taken):]


def _ascending(values: list[Any]) -> list[Any]:
    """The values in increasing order, by insertion with min and max."""
    ordered: list[Any] = []
    for value in values:
        for k, other in enumerate(ordered):
            ordered[k], value = jnp.minimum(other, value), jnp.maximum(other, value)
        ordered.append(value)
    return ordered
