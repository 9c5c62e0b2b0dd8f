"""Where `GraphSupermarket` starts: queue lengths at the vertices from what the user gave."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _check, bits
from ..graphs import Graph


def lengths(graph: Graph, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Queue lengths (n, 1), or (n, replicas) where each replica with key words `keys` (replicas,) has its own.

    `initial`: None, n integer lengths, or float fractions S_1 >= S_2 >= ... Raises ValueError for anything else.
    """
    n = graph.n
    if initial is None:
        return np.zeros((n, 1), np.int64)
    given = _check.vector("initial", initial)
    if given.dtype.kind != "f":
        if given.shape != (n,) or given.min() < 0 or given.max() > 2**14:
            raise ValueError(f"initial must be n = {n} queue lengths between 0 and {2**14}; got shape {given.shape} "
                             f"with values {int(given.min())} to {int(given.max())}")
        return given.astype(np.int64)[:, None]
    if given.max() > 1 or given.min() < 0 or np.any(np.diff(given) > 0):
        raise ValueError(f"initial given as floats must be fractions 1 >= S_1 >= S_2 >= ... >= 0; got {initial!r}")
    tail = np.floor(n * given + 0.5).astype(np.int64)
    ordered = np.zeros(n, np.int16)
    for count in tail:
        ordered[:count] += 1
    if graph.is_complete:
        return ordered[:, None].astype(np.int64)
    vertex, out = np.arange(n, dtype=np.uint32), np.empty((n, keys[0].size), np.int16)
    for replica in range(keys[0].size):
        hi, lo = bits.threefry(keys[0][replica: replica + 1], keys[1][replica: replica + 1], vertex, np.zeros_like(vertex))
        words = hi.astype(np.uint64) << np.uint64(32) | lo.astype(np.uint64)
        out[np.argsort(words, kind="stable"), replica] = ordered
    return out
