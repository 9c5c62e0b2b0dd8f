"""The pair approximation: values of an independent program, exact special cases, limits and refusals."""

import numpy as np
import pytest

import jaxq
from jaxq.pair_approximation import pair_approximation


@pytest.mark.parametrize(("k", "rate", "value"), [(2, 0.7, 1.255324), (4, 0.9, 2.542394)])
def test_values_of_an_independent_program(k, rate, value):
    found = pair_approximation(k, rate)
    assert abs(found.mean_queue_length - value) < 1e-6
    assert abs(found.tail[0] - rate) < 1e-10  # every customer is served once
    assert np.all(np.diff(found.tail) < 0)
    assert found.edge < 1e-12


@pytest.mark.parametrize(("k", "rate"), [(3, 0.99), (4, 0.95), (12, 0.99), (80, 0.95), (2, 0.95)])
def test_near_full_load_the_root_is_the_one_of_fractions(k, rate):
    """From the empty system Newton's method alone ends at roots with negative fractions, or at none."""
    found = pair_approximation(k, rate)
    assert abs(found.tail[0] - rate) < 1e-11
    assert np.all(found.tail > 0)
    assert np.all(np.diff(found.tail) < 0)
    assert found.mean_queue_length > sum(rate ** (2**i - 1) for i in range(1, 20))  # that of the complete graph


@pytest.mark.slow
def test_one_neighbour_is_the_exact_chain_of_two_queues():
    """At k = 1 a pair is the whole system: join the shorter of two queues, arrivals 2 lambda, exact at any lambda."""
    buffer = 12
    found = pair_approximation(1, 0.5, levels=buffer + 1)
    size = buffer + 1
    generator = np.zeros((size * size, size * size))
    for i in range(size):
        for j in range(size):
            for di, dj, rate in ((1, 0, 1.0 * ((i < j) + 0.5 * (i == j))), (0, 1, 1.0 * ((j < i) + 0.5 * (i == j))),
                                 (-1, 0, i > 0), (0, -1, j > 0)):
                if rate and max(i + di, j + dj) < size:
                    generator[i * size + j, (i + di) * size + j + dj] += rate
                    generator[i * size + j, i * size + j] -= rate
    generator[:, 0] = 1.0
    exact = np.linalg.solve(generator.T, np.eye(size * size)[0]).reshape(size, size)
    np.testing.assert_allclose(found.tail, [exact[i:].sum() for i in range(1, size)], rtol=0, atol=1e-11)


def test_many_neighbours_tend_to_the_mean_field_of_the_clique():
    limit = jaxq.fixed_point(jaxq.Supermarket(10, 2, 0.8)).mean_queue_length
    gaps = [pair_approximation(k, 0.8).mean_queue_length - limit for k in (20, 40, 80)]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert abs(gaps[1] / gaps[2] - 2) < 0.1  # of order 1/k


@pytest.mark.slow
def test_the_path_starts_empty_and_ends_at_the_fixed_point():
    path, end = pair_approximation(3, 0.6, [1e-3, 1.0, 200.0]), pair_approximation(3, 0.6)
    assert abs(path.tail[0, 0] - 0.6e-3) < 1e-6  # lambda t, less what left
    assert path.mean_queue_length[0] < path.mean_queue_length[1] < path.mean_queue_length[2]
    np.testing.assert_allclose(path.tail[-1], end.tail, atol=1e-8)
    assert pair_approximation(3, 1.4, [2.0]).mean_queue_length[0] > 1
    assert path.to_xarray()["tail"].shape == (3, 15)
    assert end.to_xarray()["mean_queue_length"].shape == (1,)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: pair_approximation(0, 0.5), "k must be an integer at least 1"),
    (lambda: pair_approximation(2, 1.0), "needs arrival_rate < 1; got 1"),
    (lambda: pair_approximation(2, -1), "arrival_rate must be a finite number above 0"),
    (lambda: pair_approximation(2, 0.5, [1.0, 0.5]), "strictly increasing"),
    (lambda: pair_approximation(2, 0.5, levels=100), "levels must be an integer at least 2 and at most 64")])
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_too_few_levels_are_told(monkeypatch):
    monkeypatch.setitem(pair_approximation.__globals__, "_MOST", 16)
    with pytest.raises(ValueError, match=r"must fit in 16 levels; got .* of the vertices at the last one for k=1"):
        pair_approximation(1, 3.0, [20.0])
