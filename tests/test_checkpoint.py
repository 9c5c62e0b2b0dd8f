"""Checkpoints: a run that goes on is the run that was never ended, and a file that is not its own is refused."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxq
from jaxq.bulk import Bulk
from jaxq.cohort import Cohort
from jaxq.engine import Engine
from jaxq.simulate import Interrupted

SMALL = jaxq.Supermarket(40, 2, 0.8)
TS = np.linspace(0.0, 20.0, 6)
POOLS = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]
RUNS = {
    "grows": (jaxq.Supermarket(40, 2, 1.5), {}),
    "pull": (jaxq.Pull(40, POOLS, 2, 0.7), {}),
    "graph": (jaxq.GraphSupermarket(jaxq.graphs.ring(40), 2, 0.7), {}),
    "leap": (SMALL, {"algorithm": "leap", "step": 0.0625}),
    "bulk": (jaxq.Supermarket(10**5, 2, 0.8), {"algorithm": "bulk"}),
}

BENCH = Path(__file__).parents[1] / "bench"


def same(one, other):
    """Two results agree in every number but times and dates; in floats of stationary's controls up to `tolerance`."""
    for field in dataclasses.fields(one):
        mine, its = getattr(one, field.name), getattr(other, field.name)
        if field.name not in ("attributes", "seconds", "compile_seconds", "events_per_second"):
            np.testing.assert_equal(mine, its, err_msg=field.name)


@pytest.fixture
def ends(monkeypatch):
    """`ends(k)`: the k-th call of the engine from now is interrupted after it was made; calls are short."""
    monkeypatch.setattr("jaxq.engine._CALL", 4000.0)
    advance, left = Engine.advance, []

    def interrupted(self, takes):
        found = advance(self, takes)
        if left:
            left[0] -= 1
            if left[0] == 0:
                left.clear()
                raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Engine, "advance", interrupted)
    return left.append


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "grows" else pytest.mark.slow) for name in RUNS])
def test_an_ended_run_goes_on_bit_for_bit(tmp_path, ends, name):
    """On one device, then on two; for longer and with more replicas than it began with; a graph's as moments."""
    model, how = RUNS[name]
    ts, more = (TS, 16) if not how else (TS / 100 if name == "bulk" else TS, 8)  # leaps and bulk take long to compile
    one, other = jax.devices()[:1], None if not how else jax.devices()[:1]
    how = how | {"save": "moments" if name == "graph" else "paths"}
    whole = jaxq.simulate(model, ts, 3, replicas=more, devices=other, **how)
    file, left = tmp_path / "run.npz", []
    kept = {"checkpoint": file, "every": 0.0, "resume": True, **how}
    for call, times, replicas, devices in ((3, ts[:5], 8, one), (2, ts[:5], 8, other), (2, ts, 8, one), (4, ts, more, other)):
        ends(call)
        with contextlib.suppress(Interrupted):
            jaxq.simulate(model, times, 3, replicas=replicas, devices=devices, **kept)
        left.append(file.read_bytes())
    assert len(set(left)) > 2
    same(jaxq.simulate(model, ts, 3, replicas=more, devices=other, **kept), whole)


def test_a_finished_run_is_read_not_run(tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    first = jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file)
    tall = {"ts": [0.0, 200.0], "key": 3, "replicas": 4, "checkpoint": tmp_path / "tall.npz"}  # levels that show in no shape
    taller = jaxq.simulate(jaxq.TwoQueues(None, 2.2), **tall)
    assert taller.tail_mean.shape[1] > 2 * jaxq.TwoQueues(None, 2.2).levels
    monkeypatch.setattr(Engine, "advance", lambda *_: pytest.fail("nothing was left to do"))
    kept = json.loads(bytes(np.load(file)["checkpoint"]))
    again = jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file, resume=True)
    same(again, first)
    assert again.seconds > kept["parts"]["simulate.run."]["note"]["seconds"] > 0  # its time goes on from the file's
    same(jaxq.simulate(jaxq.TwoQueues(None, 2.2), resume=True, **tall), taller)


STEADY = {"doubling": {"replicas": 70, "rel_error": 0.02}, "batches": {"replicas": 9, "rel_error": 0.04},
          "horizon": {"replicas": 70, "horizon": 93.7, "warmup": 10.0}}


@pytest.mark.parametrize(("model", "name"), [*((SMALL, name) for name in STEADY),
                                             pytest.param(RUNS["pull"][0], "doubling", marks=pytest.mark.slow)])
def test_an_ended_estimate_goes_on_bit_for_bit(tmp_path, ends, model, name):
    """Wherever it ends: in the warm-up, in the window, in the midst of a look."""
    whole = jaxq.stationary(model, 3, **STEADY[name])
    file = tmp_path / "run.npz"
    for call in (1, 2, 1, 9, 30, 31):
        ends(call)
        with pytest.raises(Interrupted):
            jaxq.stationary(model, 3, checkpoint=file, every=3600.0, resume=True, **STEADY[name])
    same(jaxq.stationary(model, 3, checkpoint=file, resume=True, **STEADY[name]), whole)


@pytest.mark.parametrize(("before", "after"), [
    ({"rel_error": 0.05}, {"rel_error": 0.02}), ({"horizon": 40.0}, {"horizon": 93.7}), ({"horizon": 40.0}, {"horizon": 41.0})])
def test_a_longer_window_and_more_replicas(tmp_path, before, after):
    file = tmp_path / "run.npz"
    jaxq.stationary(SMALL, 3, replicas=70, checkpoint=file, **before)
    events = jaxq.stationary(SMALL, 3, replicas=70, checkpoint=file, resume=True, **before).events
    same(jaxq.stationary(SMALL, 3, replicas=80, checkpoint=file, resume=True, **after), jaxq.stationary(SMALL, 3, replicas=80, **after))
    assert events > 0


def test_replicas_that_were_looked_at_elsewhere_begin_again(tmp_path):
    """From 9 to 70 replicas the window is no longer cut in batches."""
    file = tmp_path / "run.npz"
    jaxq.stationary(SMALL, 3, replicas=9, rel_error=0.1, checkpoint=file)
    with pytest.warns(UserWarning, match="9 replicas of the checkpoint began again from time 0"):
        found = jaxq.stationary(SMALL, 3, replicas=70, rel_error=0.05, checkpoint=file, resume=True)
    same(found, jaxq.stationary(SMALL, 3, replicas=70, rel_error=0.05))


@pytest.mark.parametrize("call", [4, 20])
def test_replicas_that_begin_again_may_be_ended_there(tmp_path, ends, call):
    """A shorter window: on their way back to a look that was answered, and beyond it."""
    file, short = tmp_path / "run.npz", STEADY["horizon"] | {"horizon": 60.0}
    jaxq.stationary(SMALL, 3, checkpoint=file, **STEADY["horizon"])
    ends(call)
    with pytest.raises(Interrupted):
        jaxq.stationary(SMALL, 3, checkpoint=file, every=0.0, resume=True, **short)
    same(jaxq.stationary(SMALL, 3, checkpoint=file, resume=True, **short), jaxq.stationary(SMALL, 3, **short))


def test_in_bulk_the_next_save_time_stays(monkeypatch):
    """Batches of a replica that was there already ended at it. Nothing is run."""
    def still(engine, takes):
        return engine.state, np.zeros((len(takes), engine.counts_rows, engine.lanes), np.int32), {}

    monkeypatch.setattr(Engine, "_try", still)

    def cohort(ts):
        return Cohort(Engine(Bulk(SMALL), None, np.zeros(2, np.uint32), 2), np.array(ts), "moments")

    run = cohort([0.0, 900.0, 1000.0])
    next(left for left in iter(run) if run.moments and left > 2**15)
    for ts in ([0.0, 1000.0], [0.0]):
        with pytest.raises(ValueError, match="the next after 1 must stay 900"):
            cohort(ts).restore(run.arrays())
    cohort([0.0, 900.0]).restore(run.arrays())


@pytest.mark.slow
def test_a_study_goes_on_with_more_sizes_and_replicas(tmp_path, ends):
    file = tmp_path / "study.npz"
    run = {"t_end": 2.0, "num_times": 5, "key": 1}
    whole = jaxq.scaling_study(2, 1.0, n=[70, 100, 200], replicas=12, **run)
    ends(3)
    with pytest.raises(Interrupted):
        jaxq.scaling_study(2, 1.0, n=[70, 100], replicas=8, checkpoint=file, every=0.0, **run)
    jaxq.scaling_study(2, 1.0, n=[70, 100], replicas=8, checkpoint=file, resume=True, **run)
    same(jaxq.scaling_study(2, 1.0, n=[70, 100, 200], replicas=12, checkpoint=file, resume=True, **run), whole)


# the command line

WORDS = ["simulate", "supermarket", "--n", "40", "--d", "2", "--arrival-rate", "0.8", "--t-end", "20", "--num-times", "6", "--replicas", "16"]


@pytest.mark.parametrize("words", [
    WORDS, ["stationary", *WORDS[1:8], "--replicas", "80", "--rel-error", "0.05"],
    pytest.param(["study", "graph", "--n", "12", "--d", "2", "--arrival-rate", "0.6", "--degrees", "2", "--kinds", "ring", "--replicas", "16", "--horizon", "9"], marks=pytest.mark.slow),
    pytest.param(["study", "pull", "--n", "12", "--routers", "1", "--arrival-rate", "0.6", "--replicas", "16", "--horizon", "9", "--warmup", "9"], marks=pytest.mark.slow),
])
def test_ctrl_c_writes_and_exits_130_and_resume_goes_on(tmp_path, ends, say, words):
    def numbers(out):
        return {name: value for name, value in json.loads(out).items() if "second" not in name}

    whole = numbers(say(*words, "--json")[1])
    file = str(tmp_path / "run.npz")
    ends(4)
    assert say(*words, "--checkpoint", file) == (130, "", f"jaxq: interrupted; --checkpoint {file} --resume goes on\n")
    status, out, err = say(*words, "--json", "--checkpoint", file, "--resume", "--every", "10m")
    assert (status, err) == (0, "")
    assert numbers(out) == whole


@pytest.mark.parametrize(("words", "message"), [
    (["--resume"], "--resume needs --checkpoint FILE; got none"),
    (["--every", "9s"], "--every needs --checkpoint FILE; got none"),
    (["--checkpoint", "x.npz", "--every", "9 days"], "--every must be a time such as 30s, 10m or 2h; got '9 days'"),
    (["--checkpoint", "x.npz", "--every", "-1"], "--every must be a time such as 30s, 10m or 2h; got '-1'"),
    (["--checkpoint", "x.npz", "--every", "ms"], "--every must be a time such as 30s, 10m or 2h; got 'ms'"),
    (["--checkpoint", "/nowhere/x.npz"], "'/nowhere/x.npz'"),
])
def test_mistakes_are_one_sentence(say, words, message):
    status, out, err = say(*WORDS, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.slow
def test_a_study_of_two_processes_survives_kills():
    """The script compares all data variables byte for byte, and fails where one differs."""
    done = subprocess.run([sys.executable, BENCH / "kills.py", "--kills", "1", "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_twenty_kills_left_no_trace():
    """As bench/kills.py stored it."""
    stored = (BENCH / "results" / "kills.md").read_text()
    assert "differ from the undisturbed run: none" in stored
    assert "| 20 |" in stored
