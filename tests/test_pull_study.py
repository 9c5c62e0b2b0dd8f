"""The study of PULL: exact small systems, identities, files and refusals."""

import csv

import numpy as np
import pytest

import jaxq
from jaxq.pull_study import pull_study

POOLS = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]


@pytest.fixture(scope="module")
def study():
    return pull_study([jaxq.Pool(1.0)], 0.8, n=[10, 40], routers=[1, 2], replicas=64, key=1)


def test_an_exact_case_is_met(reference):
    """Two pools, one router, n = 4: P(wait), P(block) and the response time within 5 standard errors."""
    case = reference("pull")[0]
    found = pull_study(POOLS, 0.8, n=[4], routers=[1], replicas=4000, key=2, warmup=40.0, horizon=120.0)
    served = 0.8 * (1 - case["p_block"])
    for name, exact in (("p_wait", case["p_wait"]), ("p_block", case["p_block"]),
                        ("mean_response_time", case["mean_queue_length"] / served)):
        value, error = getattr(found, name)[0, 0], getattr(found, f"{name}_stderr")[0, 0]
        assert error < 1e-2 * exact
        assert abs(value - exact) < 5 * error
    law = jaxq.exact.stationary(jaxq.SupermarketClasses(4, POOLS, 2, 0.8))
    served = 0.8 * (1 - found.supermarket_p_block[0])
    assert abs(found.supermarket_response_time[0] * served - law.mean_queue_length) < 5 * found.supermarket_response_time_stderr[0]


def test_withdrawn_messages_count_the_customers_that_do_not_wait(study):
    """messages per customer = 1 - P(wait) - P(block), up to what the two ends of the window differ by."""
    gap = study.messages_per_customer - (1 - study.p_wait - study.p_block)
    assert np.all(np.abs(gap) < 5 * study.messages_per_customer_stderr)
    assert np.all(np.diff(study.p_wait, axis=0) < 0)  # fewer wait at larger n
    assert np.all(np.diff(study.p_wait, axis=1) > 0)  # more routers know less


def test_the_supermarket_beside_it_meets_published_theory(study):
    """n = 40, d = 2, lambda = .8: response time by Little from the mean field plus its 1/n term, V/n with V near 1.9."""
    fixed = jaxq.fixed_point(jaxq.Supermarket(40, 2, 0.8)).mean_queue_length
    response = study.supermarket_response_time[1]
    assert fixed / 0.8 < response < (fixed + 4 / 40) / 0.8
    assert abs(study.supermarket_p_wait[1] - 0.8**2) < 0.05


def test_it_is_saved(study, tmp_path):
    study.save(tmp_path / "pull.nc")
    study.save_csv(tmp_path / "pull.csv")
    assert jaxq.load(tmp_path / "pull.nc").p_wait.sel(n=40, routers=2) == study.p_wait[1, 1]
    rows = list(csv.DictReader((tmp_path / "pull.csv").read_text().splitlines()))
    assert [(row["n"], row["routers"]) for row in rows] == [("10", "1"), ("10", "2"), ("40", "1"), ("40", "2")]


def test_the_figure_shows_every_curve(study):
    axes = jaxq.plot.pull(study)
    assert len(axes[1].get_legend().get_texts()) == 3
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"arrival_rate": 1.0}, "below the servers' capacity 1, or buffers"), ({"n": [20, 10]}, "n must be an increasing list"),
    ({"routers": []}, "routers must be an increasing list"), ({"replicas": 1}, "replicas must be an integer at least 2"),
    ({"warmup": 0.0}, "warmup must be a finite number above 0"), ({"horizon": float("nan")}, "horizon must be")])
def test_bad_input_is_refused(arguments, message):
    settings = {"pools": [jaxq.Pool(1.0)], "arrival_rate": 0.5, "n": [10], "routers": [1], "replicas": 2, "key": 0} | arguments
    with pytest.raises(ValueError, match=message):
        pull_study(settings.pop("pools"), settings.pop("arrival_rate"), **settings)
