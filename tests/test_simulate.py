"""`simulate`: moments in exact integers, save grids, starts, results and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxq
from jaxq.engine import Engine
from jaxq.moments import Moments

MODEL = jaxq.Supermarket(50, 2, 0.8)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-2**38, 2**38), min_size=3, max_size=3), min_size=2, max_size=9), st.integers(1, 8))
def test_moments_are_exact_integers(columns, split):
    x = np.array(columns, dtype=np.int64).T
    moments = Moments.of(x)
    every = [x.sum(axis=0).tolist(), *x.tolist()]
    assert moments.sums == [sum(row) for row in every]
    assert moments.squares == [sum(v * v for v in row) for row in every]
    if split < len(columns):
        assert Moments.of(x[:, :split]) + Moments.of(x[:2, split:]) == Moments.of(np.where(np.arange(3)[:, None] < 2, x, x * (
            np.arange(len(columns)) < split)))
    with pytest.raises(ValueError, match="fewer than 2\\*\\*40"):
        Moments.of(np.full((2, 2), 2**39))


def test_moments_are_right_at_a_billion_servers():
    """Hand-made states: 10**9 and 10**9 - 1 servers, where int32 sums and float squares fail."""
    tail = np.array([[10**9, 10**9 - 1] * 2048, [3, 5] * 2048], np.int32)
    moments = Moments.of(tail)
    assert moments.variance(3)[1] == float(Fraction(1, 4) * Fraction(4096, 4095))
    assert moments.mean(3).tolist() == [10**9 + Fraction(7, 2), 10**9 - Fraction(1, 2), 4, 0]
    assert moments.variance(0)[0] == pytest.approx(0.25 * 4096 / 4095, rel=1e-15)
    assert np.isnan(Moments.of(tail[:, :1]).variance(4)).all()


def test_moments_are_those_of_the_paths():
    result = jaxq.simulate(MODEL, [0.0, 1.0, 3.0], 5, replicas=200, save="paths")
    tail = result.paths / 50
    np.testing.assert_allclose(result.tail_mean, tail.mean(axis=2), rtol=1e-13)
    np.testing.assert_allclose(result.tail_variance, tail.var(axis=2, ddof=1), rtol=1e-11, atol=1e-16)
    np.testing.assert_allclose(result.tail_stderr, tail.std(axis=2, ddof=1) / 200**0.5, rtol=1e-11, atol=1e-16)
    queue = tail.sum(axis=1)
    np.testing.assert_allclose(result.mean_queue_length, queue.mean(axis=1), rtol=1e-13)
    np.testing.assert_allclose(result.mean_queue_length_stderr, queue.std(axis=1, ddof=1) / 200**0.5, rtol=1e-11)
    assert np.all(np.diff(result.paths, axis=1) <= 0)
    assert result.counter_paths["arrivals"][-1].sum() == result.arrivals == result.counters["arrivals"]
    assert np.all(np.diff(result.counter_paths["arrivals"], axis=0) >= 0)


def test_save_grids_and_horizons_do_not_change_the_path():
    coarse = jaxq.simulate(MODEL, [2.0, 7.3], 5, replicas=30, save="paths")
    fine = jaxq.simulate(MODEL, np.union1d(np.linspace(0, 9, 60), [2.0, 7.3]), 5, replicas=11, save="paths")
    at = np.searchsorted(fine.times, coarse.times)
    np.testing.assert_array_equal(coarse.paths[:, :, :11], fine.paths[at])


def test_long_segments_are_done_in_pieces(monkeypatch):
    whole = jaxq.simulate(MODEL, [1.0, 40.0, 41.0], 5, replicas=5, save="paths")
    monkeypatch.setattr("jaxq.engine._CALL", 1000.0)
    pieces = jaxq.simulate(MODEL, [1.0, 40.0, 41.0], 5, replicas=5, save="paths")
    np.testing.assert_array_equal(whole.paths, pieces.paths)
    assert whole.events == pieces.events


def test_customers_are_conserved():
    result = jaxq.simulate(jaxq.Supermarket(20, 2, 1.5, buffer=4), [3.0, 30.0], 1, replicas=40, initial=[20, 10])
    present = round(result.mean_queue_length[-1] * 20 * 40)
    lost = result.counters["lost"]
    assert result.arrivals - lost - result.departures == present - 30 * 40
    assert 0 < lost < result.arrivals
    mean = 20 * 1.5 * 30 * 40
    assert abs(result.arrivals - mean) < 5 * mean**0.5
    ticks = 20 * 2.5 * 30 * 40
    assert abs(result.events - ticks) < 5 * ticks**0.5


def test_time_zero_is_the_initial_state():
    result = jaxq.simulate(MODEL, [0.0], 0, replicas=3, initial=[0.5, 0.25])
    assert result.tail_mean[0, :3].tolist() == [0.5, 0.26, 0.0]  # 12.5 rounds up to 13 of 50
    assert not result.tail_stderr.any()


def test_one_replica_has_no_error_bar():
    result = jaxq.simulate(MODEL, [1.0], 0, replicas=1)
    assert np.isnan(result.tail_stderr).all()
    assert result.to_json()["mean_queue_length_stderr"] == [None]


def test_unbounded_levels_grow_without_a_trace():
    """Overloaded, from one level: customers pile up and none is lost."""
    result = jaxq.simulate(jaxq.Supermarket(5, 2, 3.0, levels=1), [20.0], 0, replicas=10)
    assert "lost" not in result.counters
    assert result.tail_mean.shape[1] > 30
    assert result.arrivals - result.departures == round(result.mean_queue_length[0] * 50)


def test_results_are_labelled_and_survive_a_file(tmp_path):
    model = jaxq.Supermarket.heavy_traffic(100, 2, 1.0)
    result = jaxq.simulate(model, [1.0, 2.0], 2**63 + 1, replicas=10)
    data = result.to_xarray()
    assert data.tail_mean.dims == ("time", "level")
    assert data.level.values[0] == 1
    np.testing.assert_allclose(data.T_mean, 10 * (1 - data.tail_mean))
    result.save(tmp_path / "run.nc")
    loaded = jaxq.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(loaded.tail_stderr, result.tail_stderr)
    assert loaded.attrs["seed"] == str(2**63 + 1)
    assert '"d": 2' in loaded.attrs["model"]
    assert {"jaxq_version", "jax_version", "device", "date", "seconds"} <= set(loaded.attrs)
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]


def test_files_that_are_none_of_ours_are_refused(tmp_path):
    (tmp_path / "bad.nc").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="load needs a netCDF file written by jaxq"):
        jaxq.load(tmp_path / "bad.nc")
    with pytest.raises(ValueError, match="could not be written to"):
        jaxq.simulate(MODEL, [1.0], 0, replicas=2).save(tmp_path / "missing" / "run.nc")


def test_an_interrupt_keeps_what_was_done(monkeypatch):
    advance, calls = Engine.advance, []

    def interrupted(self, takes):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return advance(self, takes)

    monkeypatch.setattr(Engine, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        jaxq.simulate(MODEL, np.arange(1.0, 40.0), 0, replicas=4)
    partial = caught.value.partial
    assert partial.times.tolist() == list(range(1, 17))
    assert partial.tail_mean.shape[0] == 16


def test_progress_shows_the_time_left_only_when_asked(capsys):
    jaxq.simulate(MODEL, [1.0, 5.0], 0, replicas=4)
    assert capsys.readouterr().err == ""
    jaxq.simulate(MODEL, [1.0, 5.0], 0, replicas=4, progress=True)
    assert "tick/s" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    ({"model": 3}, "model must be a jaxq model"), ({"ts": [2.0, 1.0]}, "strictly increasing; got 2 then 1"),
    ({"ts": [1.0, 1.0]}, "strictly increasing"), ({"ts": []}, "at least one time"), ({"ts": [-1.0]}, "finite times >= 0; got -1"),
    ({"ts": [np.nan]}, "finite times >= 0; got nan"), ({"ts": [np.inf]}, "finite times"), ({"ts": 3.0}, "one-dimensional list"),
    ({"ts": "soon"}, "list of numbers"), ({"ts": [[1.0]]}, "one-dimensional"), ({"replicas": 0}, "replicas must be an integer"),
    ({"replicas": 2.5}, "replicas must be an integer"), ({"save": "all"}, "save must be one of 'moments', 'paths'"),
    ({"key": -1}, "integer seed"), ({"block": 0}, "block must be an integer"), ({"chunk": 0}, "chunk must be an integer")])
def test_bad_input_is_refused_with_one_sentence(arguments, message):
    given_ = {"model": MODEL, "ts": [1.0], "key": 0, "replicas": 2} | arguments
    model, ts, key = given_.pop("model"), given_.pop("ts"), given_.pop("key")
    with pytest.raises(ValueError, match=message) as caught:
        jaxq.simulate(model, ts, key, **given_)
    assert "\n" not in str(caught.value)
