"""Neighbour lists: their shape, the law of the random graphs, and what is refused."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

from jaxq import graphs


def matrix(graph):
    pointers = np.append(graph.start, graph.neighbours.size)
    return scipy.sparse.csr_array((np.ones(graph.neighbours.size, np.int8), graph.neighbours, pointers), (graph.n, graph.n))


def check_lists(graph):
    """Degrees, order, no loops, no parallel edges, symmetric."""
    assert graph.start.dtype == graph.degree.dtype == graph.neighbours.dtype == np.int32
    np.testing.assert_array_equal(graph.start, np.cumsum(graph.degree) - graph.degree)
    for vertex in range(min(graph.n, 200)):
        own = graph.neighbours_of(vertex)
        assert np.all(np.diff(own) > 0)
        assert vertex not in own
    assert (matrix(graph) != matrix(graph).T).nnz == 0


@pytest.mark.parametrize(("graph", "other"), [
    (graphs.ring(7), nx.cycle_graph(7)), (graphs.ring(9, 4), nx.circulant_graph(9, [1, 2])), (graphs.ring(5, 4), nx.complete_graph(5)),
    (graphs.torus(3, 5), nx.grid_2d_graph(3, 5, periodic=True)), (graphs.torus(4), nx.grid_2d_graph(4, 4, periodic=True))])
def test_lattices_are_those_of_networkx(graph, other):
    check_lists(graph)
    same = graphs.from_adjacency(other)
    np.testing.assert_array_equal(graph.neighbours, same.neighbours)
    np.testing.assert_array_equal(graph.degree, same.degree)
    assert graph.mean_degree == 2 * other.number_of_edges() / other.number_of_nodes()


@pytest.mark.parametrize(("n", "degree"), [(1, 0), (2, 1), (5, 2), (5, 4), (6, 3), (8, 5), (20, 9), (21, 10), (40, 30), (100, 49)])
def test_random_regular_graphs_are_regular_and_simple(n, degree):
    for seed in range(4):
        graph = graphs.random_regular(n, degree, seed)
        assert (graph.degree == degree).all()
        check_lists(graph)


def test_random_regular_graphs_come_in_all_shapes():
    """2-regular graphs on 6 vertices: 60 hexagons and 10 pairs of triangles. Here 2/3 of the pairings need no mending and the
    others few switches: the share of pairs of triangles is near 1/7, within 5 standard errors plus the stated inequality."""
    count, pairs, seen = 3000, 0, set()
    for seed in range(count):
        graph = graphs.random_regular(6, 2, seed)
        pairs += nx.number_connected_components(nx.from_scipy_sparse_array(matrix(graph))) == 2
        seen.add(graph.neighbours.tobytes())
    assert len(seen) == 70
    assert abs(pairs / count - 1 / 7) < 5 * (1 / 7 * 6 / 7 / count) ** 0.5 + 0.05


def test_a_seed_decides_the_graph():
    for make in (lambda seed: graphs.random_regular(50, 4, seed), lambda seed: graphs.erdos_renyi(50, 4.0, seed)):
        np.testing.assert_array_equal(make(3).neighbours, make(3).neighbours)
        assert make(3).neighbours.tobytes() != make(4).neighbours.tobytes()


@pytest.mark.parametrize(("n", "mean_degree"), [(5, 1.0), (5, 3.2)])
def test_erdos_renyi_draws_every_edge_independently(n, mean_degree):
    """Each pair, and each pair of pairs, as often as p and p**2 say, within 5 standard errors."""
    count, p = 4000, mean_degree / (n - 1)
    upper = np.triu_indices(n, 1)
    edges = np.array([matrix(graphs.erdos_renyi(n, mean_degree, seed)).toarray()[upper] for seed in range(count)], float)
    assert np.all(np.abs(edges.mean(axis=0) - p) < 5 * (p * (1 - p) / count) ** 0.5)
    together = (edges.T @ edges / count)[np.triu_indices(upper[0].size, 1)]
    assert np.all(np.abs(together - p**2) < 5 * (p**2 * (1 - p**2) / count) ** 0.5)
    number = edges.sum(axis=1)
    variance = upper[0].size * p * (1 - p)
    assert abs(number.var() / variance - 1) < 5 * (2 / count) ** 0.5 * 1.1


@pytest.mark.parametrize("mean_degree", [0.0, 2.5, 30.0, 49.0])
def test_erdos_renyi_lists(mean_degree):
    check_lists(graphs.erdos_renyi(50, mean_degree, 7))


def test_large_graphs_take_seconds_and_no_dense_matrix():
    regular, random = graphs.random_regular(100_000, 10, 1), graphs.erdos_renyi(100_000, 10, 1)
    for graph in (regular, random):
        check_lists(graph)
    assert (regular.degree == 10).all()
    assert abs(random.mean_degree - 10) < 5 * (2 * 10 / 100_000) ** 0.5
    assert abs(random.degree.var() / 10 - 1) < 5 * (2 / 100_000) ** 0.5 * 1.1


def test_adjacency_in_every_form(tmp_path):
    graph = graphs.erdos_renyi(30, 4.0, 2)
    scipy.sparse.save_npz(tmp_path / "graph.npz", matrix(graph))
    for other in (graphs.from_adjacency(matrix(graph)), graphs.from_adjacency(matrix(graph).tocoo()),
                  graphs.from_adjacency(matrix(graph).toarray()), graphs.from_adjacency(matrix(graph).toarray().astype(bool)),
                  graphs.from_adjacency(matrix(graph).toarray().astype(float)), graphs.load(tmp_path / "graph.npz"),
                  graphs.from_adjacency(scipy.sparse.csr_matrix(matrix(graph))),
                  graphs.from_adjacency(nx.from_scipy_sparse_array(matrix(graph)))):
        np.testing.assert_array_equal(other.neighbours, graph.neighbours)
        np.testing.assert_array_equal(other.start, graph.start)
        np.testing.assert_array_equal(other.degree, graph.degree)


def test_the_users_matrix_is_left_as_it_was():
    given = scipy.sparse.csr_array(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    given.data[0] = 0
    with pytest.raises(ValueError, match="symmetric"):
        graphs.from_adjacency(given)
    assert given.nnz == 4


def test_networkx_weights_are_ignored():
    network = nx.les_miserables_graph()
    graph = graphs.from_adjacency(network)
    check_lists(graph)
    assert (graph.n, graph.degree.sum()) == (77, 2 * 254)
    assert graph.largest_degree == 36
    assert graphs.from_adjacency(nx.karate_club_graph()).least_degree == 1


def directed():
    return nx.DiGraph([(0, 1), (1, 2), (2, 1)])


@pytest.mark.parametrize(("make", "message"), [
    (lambda: graphs.ring(2), "n must be an integer at least 3"), (lambda: graphs.ring(9, 3), "degree of a ring must be even"),
    (lambda: graphs.ring(9, 10), "degree must be an integer at least 2 and at most 8"),
    (lambda: graphs.torus(2), "rows must be an integer at least 3"), (lambda: graphs.torus(5, 2), "columns must be"),
    (lambda: graphs.random_regular(5, 3, 0), r"n \* degree must be even"),
    (lambda: graphs.random_regular(5, 5, 0), "degree must be an integer at least 0 and at most 4"),
    (lambda: graphs.random_regular(6, 3, -1), "seed must be an integer at least 0"),
    (lambda: graphs.erdos_renyi(10, 9.5, 0), "mean_degree must be a finite number at least 0 and at most 9"),
    (lambda: graphs.erdos_renyi(10**6, 10.0**5, 0), "fewer than 2\\*\\*30 edges"),
    (lambda: graphs.from_adjacency(np.ones((2, 3))), r"must be square.*shape \(2, 3\)"),
    (lambda: graphs.from_adjacency([[0, 1], [0, 0]]), "symmetric; got an edge in one direction only between vertices 0 and 1"),
    (lambda: graphs.from_adjacency(directed()), "symmetric.*vertices 0 and 1"),
    (lambda: graphs.from_adjacency([[1, 1], [1, 0]]), "empty diagonal.*loop at vertex 0"),
    (lambda: graphs.from_adjacency(nx.Graph([(0, 1), (1, 1)])), "loop at vertex 1"),
    (lambda: graphs.from_adjacency([[0, 2], [2, 0]]), "only 0 and 1; got 2"),
    (lambda: graphs.from_adjacency([[0, np.nan], [np.nan, 0]]), "only 0 and 1; got nan"),
    (lambda: graphs.from_adjacency(nx.MultiGraph([(0, 1)])), "must not be a multigraph"),
    (lambda: graphs.from_adjacency("ring"), "must be a scipy.sparse matrix, .*got str"),
    (lambda: graphs.from_adjacency(np.zeros((0, 0))), "at least one vertex"),
    (lambda: graphs.load("/nowhere/graph.npz"), "a graph file must be one written by scipy.sparse.save_npz"),
    (lambda: graphs.load(__file__), "a graph file must be one written"),
    (lambda: graphs.ring(5).neighbours_of(5), "vertex must be an integer at least 0 and at most 4")])
def test_bad_graphs_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
