"""The study of graphs against the mean field of the clique, and means vertex by vertex."""

import csv

import numpy as np
import pytest

import jaxq
from jaxq import graphs
from jaxq.graph_study import graph_study, vertex_means


@pytest.mark.slow
def test_the_gap_falls_with_the_degree_and_meets_the_pair_approximation(tmp_path):
    study = graph_study(["ring", "regular", "erdos-renyi"], [2, 8], 100, 2, 0.7, 48, 3, warmup=60.0, horizon=250.0)
    assert study.kind.tolist() == ["ring", "ring", "regular", "regular", "erdos-renyi", "erdos-renyi"]
    assert study.degree.tolist() == [2, 8] * 3
    for first in (0, 2, 4):
        assert study.gap[first] - study.gap[first + 1] > 5 * np.hypot(*study.gap_stderr[first: first + 2])
    assert abs(study.mean_queue_length[0] - 1.25545) < 5 * study.mean_queue_length_stderr[0]  # an independent program's
    assert abs(study.mean_queue_length[3] - study.pair_approximation[3]) < 0.05
    assert np.isnan(study.pair_approximation[4:]).all()
    assert np.all(np.abs(study.drift) < 5)
    assert abs(study.clique - study.mean_field) < 5 * study.clique_stderr + 1 / (2 * 100 * 0.3)
    np.testing.assert_allclose(study.gap, study.mean_queue_length - study.mean_field)
    study.save_csv(tmp_path / "graph.csv")
    with open(tmp_path / "graph.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["gap"]) for row in rows] == study.gap.tolist()
    study.save(tmp_path / "graph.nc")
    assert jaxq.load(tmp_path / "graph.nc").gap.shape == (6,)
    assert len(study.to_json()["rows"]) == 6


def test_vertex_means_of_a_lone_vertex_and_a_pair_with_unequal_rates():
    """An isolated vertex is M/M/1, rho/(1 - rho) customers; its neighbours do not matter at d = 1."""
    rates = np.array([1.0, 2.0, 0.8])
    model = jaxq.GraphSupermarket(graphs.from_adjacency([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), 1, 0.5, service_rates=rates)
    found = vertex_means(model, 1, replicas=2000, warmup=100.0, horizon=400.0, samples=40)
    exact = 0.5 / (rates - 0.5)
    assert np.all(np.abs(found.mean_queue_length - exact) < 5 * found.mean_queue_length_stderr)
    assert np.all(found.mean_queue_length_stderr / exact < 0.01)
    assert abs(found.tail.sum() - found.mean_queue_length.mean()) < 1e-12
    assert found.to_json()["events"] == found.events


@pytest.mark.parametrize(("call", "message"), [
    (lambda: graph_study(["star"], [2], 10, 2, 0.5, 4, 0), "kinds must be one of 'ring', 'regular', 'erdos-renyi'"),
    (lambda: graph_study(["ring"], [3], 10, 2, 0.5, 4, 0), "degree of a ring must be even"),
    (lambda: graph_study([], [3], 10, 2, 0.5, 4, 0), "at least one kind and one degree"),
    (lambda: graph_study("ring", [12], 10, 2, 0.5, 4, 0), "degrees must be an integer at least 1 and at most 9"),
    (lambda: graph_study("ring", 2, 10, 2, 1.5, 4, 0), "arrival_rate must be a finite number above 0 and below 1"),
    (lambda: graph_study("ring", 2, 10, 2, 0.5, 1, 0), "replicas must be an integer at least 2"),
    (lambda: graph_study("ring", 2, 10, 2, 0.5, 4, 0, horizon=0), "horizon must be a finite number above 0"),
    (lambda: vertex_means(jaxq.Supermarket(5, 2, 0.5), 0, replicas=2, warmup=1, horizon=1), "needs a jaxq.GraphSupermarket")])
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
