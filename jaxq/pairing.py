"""Edges of random regular graphs: half-edges paired at random, then mended by switches (`graphs.random_regular`)."""

from __future__ import annotations

from typing import Any

import numpy as np


def paired(n: int, degree: int, rng: np.random.Generator) -> np.ndarray:
    """Edges (edges, 2) of a random regular graph, degree <= (n - 1)/2: half-edges paired, then mended by switches."""
    while True:
        pairs = rng.permutation(np.repeat(np.arange(n), degree)).reshape(-1, 2)
        codes = _code(pairs.min(axis=1), pairs.max(axis=1), n)
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        again = np.zeros(codes.size, bool)
        again[order[1:]] = ordered[1:] == ordered[:-1]
        changed: dict[int, int] = {}  # edges more or fewer than in the first pairing

        def number(code: int, ordered: Any = ordered, changed: Any = changed) -> int:
            first, last = np.searchsorted(ordered, [code, code + 1])
            return int(last - first) + int(changed.get(code, 0))

        if all(_mend(pairs, int(bad), n, number, changed, rng) for bad in np.flatnonzero(again | (pairs[:, 0] == pairs[:, 1]))):
            return pairs


def _mend(pairs: np.ndarray, bad: int, n: int, number: Any, changed: dict[int, int], rng: np.random.Generator) -> bool:
    """Replace a loop or a parallel edge by a switch that makes neither; False if none was found."""
    for _ in range(1000 + 10 * len(pairs)):
        (u, v), other = map(int, pairs[bad]), int(rng.integers(len(pairs)))
        x, y = (int(end) for end in rng.permutation(pairs[other]))
        new = [_code(min(ends), max(ends), n) for ends in ((u, x), (v, y))]
        if other == bad or u == x or v == y or new[0] == new[1] or number(new[0]) or number(new[1]):
            continue
        for ends, step in (((u, v), -1), ((x, y), -1), ((u, x), 1), ((v, y), 1)):
            code = _code(min(ends), max(ends), n)
            changed[code] = changed.get(code, 0) + step
        pairs[bad], pairs[other] = (u, x), (v, y)
        return True
    return False


def _code(low: Any, high: Any, n: int) -> Any:
    return low * n + high
