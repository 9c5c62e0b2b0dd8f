"""Graphs for `GraphSupermarket`: who a vertex may ask, as neighbour lists; the complete graph stays a rule.

A graph seed is apart from the seed of a run: it feeds a NumPy generator here, on the host, before anything is simulated.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _check
from .pairing import paired

_MOST = 2**31 - 1  # vertices, and entries of the flat list


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on n vertices without loops or parallel edges.

    The neighbours of vertex v are neighbours[start[v] : start[v] + degree[v]], in increasing order: start and degree are
    (n,) int32, neighbours is (sum of degrees,) int32. The complete graph has none of the three: it is a rule.

    `least_degree`, `largest_degree` and `mean_degree` are numbers; `neighbours_of(vertex)`, (degree,), raises ValueError
    unless 0 <= vertex < n.

    Example::

        >>> graph = jaxq.graphs.ring(6)
        >>> graph.n, graph.mean_degree, graph.neighbours_of(0).tolist()
        (6, 2.0, [1, 5])
    """

    n: int
    name: str
    start: np.ndarray | None = field(default=None, repr=False)
    degree: np.ndarray | None = field(default=None, repr=False)
    neighbours: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_complete(self) -> bool:
        """Every vertex may ask every other, by rule."""
        return self.neighbours is None

    @property
    def least_degree(self) -> int:
        """The least number of neighbours of a vertex."""
        return self.n - 1 if self.degree is None else int(self.degree.min())

    @property
    def largest_degree(self) -> int:
        """The largest number of neighbours of a vertex."""
        return self.n - 1 if self.degree is None else int(self.degree.max())

    @property
    def mean_degree(self) -> float:
        """Twice the number of edges, per vertex."""
        return float(self.n - 1) if self.degree is None else float(self.degree.sum(dtype=np.int64)) / self.n

    def neighbours_of(self, vertex: int) -> np.ndarray:
        """The neighbours of one vertex, in increasing order."""
        vertex = _check.integer("vertex", vertex, 0, self.n - 1)
        if self.start is None or self.degree is None or self.neighbours is None:
            return np.delete(np.arange(self.n), vertex)
        first = int(self.start[vertex])
        return self.neighbours[first: first + int(self.degree[vertex])]


def complete(n: int) -> Graph:
    """The complete graph on n vertices: every vertex may ask every other (the clique of the mean-field theory).

    Raises ValueError unless 1 <= n < 2**31.

    Example::

        >>> jaxq.graphs.complete(100).mean_degree
        99.0
    """
    return Graph(_check.integer("n", n, 1, _MOST), "complete")


def ring(n: int, degree: int = 2) -> Graph:
    """The ring of n vertices, each tied to its `degree` nearest ones (half on either side): a circulant graph.

    Raises ValueError unless degree is even, positive and below n, and n >= 3.

    Example::

        >>> jaxq.graphs.ring(8, degree=4).neighbours_of(0).tolist()
        [1, 2, 6, 7]
    """
    n = _check.integer("n", n, 3, _MOST, "a ring has at least 3 vertices")
    degree = _check.integer("degree", degree, 2, n - 1, "it is the number of nearest neighbours on the ring")
    if degree % 2:
        raise ValueError(f"degree of a ring must be even, half on either side; got {degree}; use {degree + 1} or {degree - 1}")
    _room(n * degree)
    steps = np.arange(1, degree // 2 + 1)
    lists = (np.arange(n)[:, None] + np.concatenate([-steps[::-1], steps])) % n
    return _regular(np.sort(lists, axis=1), "ring" if degree == 2 else f"ring of degree {degree}")


def torus(rows: int, columns: int | None = None) -> Graph:
    """The rows x columns square lattice with its edges glued, degree 4; square unless `columns` is given.

    Vertex row * columns + column stands at (row, column). Raises ValueError unless both are at least 3.

    Example::

        >>> jaxq.graphs.torus(3, 4).neighbours_of(0).tolist()
        [1, 3, 4, 8]
    """
    hint = "below 3 two neighbours would be the same vertex"
    rows = _check.integer("rows", rows, 3, _MOST, hint)
    columns = rows if columns is None else _check.integer("columns", columns, 3, _MOST, hint)
    _room(4 * rows * columns)
    row, column = (part.ravel() for part in np.indices((rows, columns)))
    lists = [((row + i) % rows) * columns + (column + j) % columns for i, j in ((-1, 0), (0, -1), (0, 1), (1, 0))]
    return _regular(np.sort(np.stack(lists, axis=1), axis=1), f"torus {rows} x {columns}")


def random_regular(n: int, degree: int, seed: int) -> Graph:
    """A random graph with `degree` neighbours at every one of n vertices.

    Half-edges are paired at random; loops and parallel edges are then mended one by one, each by a switch with a random
    edge, u-v and x-y becoming u-x and v-y. Every simple regular graph can come out, at a fixed degree with
    probabilities that become equal as n grows (a fixed number of switches among many edges), not exactly equal at finite n.
    Above degree (n - 1)/2 it is the complement of such a graph.

    Raises ValueError if n * degree is odd, degree is not below n, or seed is below 0. Source: Bollobas 1980,
    doi:10.1016/S0195-6698(80)80030-8 (pairing); McKay and Wormald 1990, doi:10.1016/0196-6774(90)90029-E (switches).

    Example::

        >>> graph = jaxq.graphs.random_regular(100, 3, seed=0)
        >>> graph.least_degree, graph.largest_degree
        (3, 3)
    """
    n = _check.integer("n", n, 1, _MOST)
    degree = _check.integer("degree", degree, 0, n - 1, "a vertex has at most n - 1 neighbours")
    seed = _check.integer("seed", seed, 0)
    if n * degree % 2:
        raise ValueError(f"n * degree must be even, twice the number of edges; got n={n} with degree={degree}; "
                         "change one of them by 1")
    _room(n * degree)
    rng, name = np.random.default_rng(seed), f"random regular of degree {degree}, seed {seed}"
    if 2 * degree > n - 1:
        absent = np.ones((n, n), bool)
        absent[tuple(paired(n, n - 1 - degree, rng).T)] = False
        return _from_pairs(n, np.argwhere(np.triu(absent & absent.T, 1)), name)
    return _from_pairs(n, paired(n, degree, rng), name)


def erdos_renyi(n: int, mean_degree: float, seed: int) -> Graph:
    """The random graph G(n, p) with p = mean_degree/(n - 1), exactly: each pair of vertices is an edge independently.

    The number of edges is binomial and the edges are a uniform set of that many pairs. Isolated vertices occur.
    Raises ValueError unless n >= 2, 0 <= mean_degree <= n - 1 and seed >= 0. Source: Gilbert 1959,
    doi:10.1214/aoms/1177706098.

    Example::

        >>> graph = jaxq.graphs.erdos_renyi(1000, mean_degree=4.0, seed=0)
        >>> round(graph.mean_degree), graph.least_degree  # about exp(-4) of the vertices are isolated
        (4, 0)
    """
    n = _check.integer("n", n, 2, _MOST)
    mean_degree = _check.real("mean_degree", mean_degree, 0.0, n - 1.0, hint="a vertex has at most n - 1 neighbours")
    seed = _check.integer("seed", seed, 0)
    rng, pairs = np.random.default_rng(seed), n * (n - 1) // 2
    _room(round(n * mean_degree + 10 * (n * mean_degree) ** 0.5))
    count = int(rng.binomial(pairs, mean_degree / (n - 1)))
    few = min(count, pairs - count)  # draw the edges or the pairs that are none, whichever are fewer
    codes = np.zeros(0, np.int64)
    while codes.size < few:
        one, other = rng.integers(0, n, (2, few - codes.size + few // 8 + 8))
        low, high = np.minimum(one, other), np.maximum(one, other)
        codes = np.sort(np.concatenate([codes, (low * n + high)[low < high]]))
        codes = codes[np.append(True, codes[1:] != codes[:-1])]
    if codes.size > few:  # a uniform part of a uniform set of distinct pairs
        codes = np.delete(codes, rng.choice(codes.size, codes.size - few, replace=False))
    if few < count:
        everything = np.ravel_multi_index(np.triu_indices(n, 1), (n, n))
        codes = np.setdiff1d(everything, codes, assume_unique=True)
    return _from_pairs(n, np.stack([codes // n, codes % n], axis=1), f"Erdos-Renyi of mean degree {mean_degree:g}, seed {seed}")


def from_adjacency(adjacency: Any, name: str = "adjacency") -> Graph:
    """The graph of an adjacency matrix (scipy.sparse, or a dense NumPy array) or of a networkx graph.

    A matrix must be square, symmetric, 0 or 1, with an empty diagonal. A networkx graph (its vertices numbered in the
    order of its nodes) gives its edges; their weights are ignored. Raises ValueError for anything else.

    Example::

        >>> jaxq.graphs.from_adjacency(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])).degree.tolist()
        [1, 2, 1]
    """
    import scipy.sparse

    _check.instance("name", name, str, "text")
    matrix: Any
    if any(base.__module__.split(".")[0] == "networkx" for base in type(adjacency).__mro__):  # without importing it
        if adjacency.is_multigraph():
            raise ValueError("a networkx graph must not be a multigraph, whose edges may be parallel; "
                             f"got {type(adjacency).__name__}; merge them with networkx.Graph(graph)")
        nodes = {node: index for index, node in enumerate(adjacency.nodes)}
        ends = np.array([(nodes[u], nodes[v]) for u, v in adjacency.edges], np.int64).reshape(-1, 2)
        if not adjacency.is_directed():
            ends = np.concatenate([ends, ends[ends[:, 0] != ends[:, 1]][:, ::-1]])
        matrix = scipy.sparse.coo_array((np.ones(len(ends), np.int8), tuple(ends.T)), (len(nodes), len(nodes)))
        name = name if name != "adjacency" else adjacency.name or "networkx graph"
    elif scipy.sparse.issparse(adjacency):
        matrix = adjacency
    else:
        try:
            dense = np.asarray(adjacency)
        except ValueError:
            dense = np.asarray(None)
        if dense.dtype.kind not in "biuf" or dense.ndim != 2:
            raise ValueError("an adjacency must be a scipy.sparse matrix, a two-dimensional NumPy array or a networkx graph; "
                             f"got {type(adjacency).__name__} {_check.shown(adjacency)}")
        matrix = scipy.sparse.coo_array(dense)
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise ValueError(f"an adjacency must be square with at least one vertex; got shape {matrix.shape}")
    lists: Any = scipy.sparse.csr_array(matrix, copy=True)
    lists.sum_duplicates()
    lists.eliminate_zeros()
    if not np.all(lists.data == 1):
        wrong = lists.data[np.argmax(lists.data != 1)]
        raise ValueError(f"an adjacency must hold only 0 and 1; got {wrong:g}; the model has no weights: "
                         "pass (adjacency != 0) to ignore them")
    if np.any(lists.diagonal() != 0):
        raise ValueError("an adjacency must have an empty diagonal, a vertex is not its own neighbour; "
                         f"got a loop at vertex {int(np.argmax(lists.diagonal() != 0))}; remove it")
    lists.data = np.ones(lists.nnz, np.int8)
    uneven = (lists != lists.T).tocoo()
    if uneven.nnz:
        raise ValueError("an adjacency must be symmetric; got an edge in one direction only between vertices "
                         f"{int(uneven.coords[0][0])} and {int(uneven.coords[1][0])}; use (A + A.T) != 0")
    return _from_csr(lists, name)


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph of an adjacency matrix, (n, n), saved with `scipy.sparse.save_npz(path, matrix)`.

    Raises ValueError if the file cannot be read, or for a matrix that `from_adjacency` refuses.

    Example::

        >>> from scipy import sparse
        >>> sparse.save_npz("pair.npz", sparse.csr_array([[0, 1], [1, 0]]))
        >>> jaxq.graphs.load("pair.npz").degree.tolist()
        [1, 1]
    """
    import scipy.sparse

    path = _check.path("path", path)
    try:
        with open(path, "rb") as file:  # NumPy does not close a damaged one
            matrix = scipy.sparse.load_npz(file)
        if hasattr(matrix, "check_format"):  # indices out of range would crash the process
            matrix.check_format(full_check=True)
    except Exception as error:  # zip, npy and sparse readers raise nearly anything on a damaged file
        raise ValueError("a graph file must be one written by scipy.sparse.save_npz; got "
                         f"{_check.shown(str(path))} ({_check.reason(error)})") from error
    return from_adjacency(matrix, path.name)


def _room(entries: int) -> None:
    if entries > _MOST:
        raise ValueError(f"a graph must have fewer than 2**30 edges; got about {entries // 2}; use a smaller n (rows, "
                         "columns) or degree, or graphs.complete, which is a rule")


def _regular(lists: np.ndarray, name: str) -> Graph:
    """The graph with these neighbours, (n, degree), sorted along the rows."""
    n, degree = lists.shape
    return Graph(n, name, np.arange(n, dtype=np.int32) * np.int32(degree), np.full(n, degree, np.int32),
                 lists.astype(np.int32).ravel())


def _from_pairs(n: int, pairs: np.ndarray, name: str) -> Graph:
    """The graph with these edges, (edges, 2), each once."""
    import scipy.sparse

    ends = np.concatenate([pairs, pairs[:, ::-1]])
    return _from_csr(scipy.sparse.csr_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), (n, n)), name)


def _from_csr(lists: Any, name: str) -> Graph:
    lists.sort_indices()
    _room(lists.nnz)
    start = lists.indptr.astype(np.int32)
    return Graph(lists.shape[0], name, start[:-1], np.diff(start), lists.indices.astype(np.int32))
