"""Figures: what is drawn is what the result holds."""

import dataclasses

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from results import made

import jaxq
from jaxq import plot
from jaxq.fit import ScalingFit
from jaxq.graph_study import GraphStudy
from jaxq.pull_study import PullStudy
from jaxq.steady_state import Stationary

mpl.use("Agg")


@pytest.fixture(scope="module")
def study():
    return jaxq.scaling_study(2, 1.0, n=[500, 1000], t_end=2.0, replicas=10, key=0, num_times=5)


def test_study_figure_shows_every_n_the_limit_and_both_errors(study, tmp_path):
    left, right = plot.study(study)
    drawn = [line.get_ydata() for line in left.get_lines()]
    for k in range(2):
        assert any(np.array_equal(y, study.T_mean[k, :, 0]) for y in drawn)
    assert any(np.array_equal(y, study.T_limit[-1, :, 3]) for y in drawn)
    labels = [text.get_text() for text in right.get_legend().get_texts()]
    assert any("slope" in text and "T" in text for text in labels)
    assert right.get_xscale() == right.get_yscale() == "log"
    plot.save((left, right), tmp_path / "study.pdf")
    assert (tmp_path / "study.pdf").read_bytes().startswith(b"%PDF")


def test_tails_take_an_axes_and_leave_the_settings_alone():
    before = dict(mpl.rcParams)
    result = jaxq.simulate(jaxq.Supermarket(50, 2, 0.8), [0.0, 1.0, 2.0], 0, replicas=10)
    axes = plt.subplots()[1]
    assert plot.tails(result, jaxq.mean_field(jaxq.Supermarket(50, 2, 0.8), [0.0, 2.0]), ax=axes) is axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), result.tail_mean[:, 0])
    assert dict(mpl.rcParams) == before
    plt.close("all")


def test_a_figure_that_cannot_be_written_is_one_sentence(study, tmp_path):
    with pytest.raises(ValueError, match="figure needs a path that can be written, ending in"):
        plot.save(plot.convergence(study), tmp_path / "x.nonsense")


def test_blocking_shows_the_laws_and_the_runs_with_their_errors():
    run = dataclasses.replace(made(Stationary), model={"name": "TwoQueues", "capacity": 3}, p_block=0.08, p_block_stderr=0.01)
    ax = plot.blocking(0.8, [1, 2, 3], [run])
    drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    for law, label in ((jaxq.exact.blocking, "join the shorter, exact"), (jaxq.exact.blocking_single, "two queues apart, M/M/1/$K$"),
                       (jaxq.exact.blocking_pooled, "one queue, M/M/2/$2K$")):
        assert list(drawn[label]) == [law(K, 0.8) for K in (1, 2, 3)]
    (low, high), = (segment[:, 1] for segment in ax.collections[0].get_segments())
    assert (low, high) == (pytest.approx(0.08 - 0.0196), pytest.approx(0.08 + 0.0196))
    with pytest.raises(ValueError, match="runs must be a list of results of stationary for TwoQueues; got one for Pull"):
        plot.blocking(0.8, [1], [dataclasses.replace(run, model={"name": "Pull"})])
    plt.close("all")


def test_a_stationary_tail_stands_beside_its_theory():
    model = jaxq.Supermarket(3, 2, 0.8, buffer=4)
    law, theory = jaxq.exact.stationary(model), jaxq.refined(model)
    run = dataclasses.replace(made(Stationary), tail=law.tail[:3] + 0.01, tail_stderr=np.full(3, 0.001))
    ax = plot.stationary(run, theory, law)
    drawn = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(drawn["exact"].get_ydata(), law.tail[:3])
    np.testing.assert_array_equal(drawn["mean field"].get_ydata(), theory.fixed_point[:3])
    np.testing.assert_array_equal(drawn["mean field and its $1/n$ term"].get_ydata(), theory.refined_tail[:3])
    assert [line.get_xdata().tolist() for line in drawn.values()] == [[1, 2, 3]] * len(drawn)
    np.testing.assert_allclose([bar[:, 1] for bar in ax.collections[0].get_segments()],
                               (law.tail[:3] + 0.01)[:, None] + [-0.00196, 0.00196], rtol=1e-12)
    plt.close("all")


def test_graph_gap_shows_the_complete_graph_with_its_band():
    """The clique is 0.05 above the mean field; the band is 1.96 standard errors to each side, or ends with the axis."""
    study = dataclasses.replace(
        made(GraphStudy), degree=np.array([2, 8]), mean_degree=np.array([2.0, 8.0]), gap=np.array([0.3, 0.02]),
        gap_stderr=np.full(2, 0.001), pair_approximation=np.full(2, np.nan), mean_field=1.0, clique=1.05, clique_stderr=0.01)
    for error in (0.01, 0.1):
        ax = plot.graph_gap(dataclasses.replace(study, clique_stderr=error))
        line = next(line for line in ax.get_lines() if "complete graph" in line.get_label())
        np.testing.assert_allclose(line.get_ydata(), 0.05)
        (band,) = ax.patches
        heights = band.get_path().transformed(band.get_patch_transform()).vertices[:, 1]
        assert heights.max() == pytest.approx(0.05 + 1.96 * error)
        assert heights.min() == pytest.approx(max(0.05 - 1.96 * error, ax.get_ylim()[0]))
    assert heights.min() > 0
    plt.close("all")


def test_a_line_does_not_fall_to_a_zero_on_a_logarithmic_axis():
    study = dataclasses.replace(made(PullStudy), p_wait=np.array([[0.1, 0.2], [0.0, 0.1]]), n=np.array([10, 100]))
    left, _ = plot.pull(study)
    drawn = left.get_lines()[0].get_ydata()
    assert drawn[0] == 0.1
    assert np.isnan(drawn[1])
    plt.close("all")


def test_residuals_of_one_size_stay_apart_from_those_of_the_next():
    n, level = np.repeat([100.0, 150.0], 5), np.tile(np.arange(1, 6), 2)
    rows = {"row_n": n, "row_level": level, "value": n, "value_stderr": n, "fitted": n, "n": np.array([100.0, 150.0])}
    fitted = dataclasses.replace(made(ScalingFit), gap=np.array([0.1, 0.05]), **rows)
    _, right = plot.fit(fitted)
    first, second = zip(*(line.get_xdata() for line in right.get_lines() if line.get_marker() in "os^Dv"), strict=True)
    assert max(first) < min(second)
    plt.close("all")
