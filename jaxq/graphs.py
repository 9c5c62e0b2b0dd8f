"""Graphs for `GraphSupermarket`: who a vertex may ask."""

from __future__ import annotations

from dataclasses import dataclass

from . import _check


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on n vertices without loops; the complete graph is a rule, not a list of neighbours."""

    n: int
    name: str


def complete(n: int) -> Graph:
    """The complete graph on n >= 1 vertices: every vertex may ask every other (the clique of the mean-field theory)."""
    return Graph(_check.integer("n", n, 1, 2**31 - 1), "complete")
