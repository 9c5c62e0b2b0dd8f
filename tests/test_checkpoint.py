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
from jaxq import cli
from jaxq.bulk import Bulk
from jaxq.checkpoint import Checkpoint
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
    again = jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file, resume=True)
    same(again, first)
    assert again.seconds >= first.seconds
    same(jaxq.simulate(jaxq.TwoQueues(None, 2.2), resume=True, **tall), taller)
    with pytest.raises(ValueError, match="function 'stationary', the file 'simulate'"):
        jaxq.stationary(SMALL, 3, replicas=5, checkpoint=file, resume=True)


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


def test_in_bulk_the_next_save_time_stays(tmp_path):
    """Batches of a replica that was there already ended at it."""
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


@pytest.mark.parametrize(("change", "message"), [
    ({"model": jaxq.Supermarket(40, 2, 0.81)}, "arrival_rate 0.81, the file 0.8"),
    ({"model": jaxq.Supermarket(41, 2, 0.8)}, "n 41, the file 40"),
    ({"model": RUNS["pull"][0]}, "name 'Pull', the file 'Supermarket'"),
    ({"key": 4}, "seed 4, the file 3"),
    ({"save": "paths"}, "save 'paths', the file 'moments'"),
    ({"algorithm": "leap"}, "algorithm 'leap', the file 'exact'"),
    ({"initial": [20]}, "digest of tables and start"),
    ({"replicas": 4}, "replicas must be at least the 5 of the checkpoint; got 4"),
    ({"ts": TS[1:]}, r"ts must begin with the 6 save times.*up to 20.*got \[4, 8.*where it has \[0, 4"),
    ({"ts": TS[:3]}, "ts must begin with the 6 save times"),
    ({"resume": False}, "exists; add resume, or delete it"),
])
def test_another_run_is_refused_with_the_difference(finished, change, message):
    run = {"model": SMALL, "ts": TS, "key": 3, "replicas": 5, "resume": True} | change
    before = finished.read_bytes()
    with pytest.raises(ValueError, match=message):
        jaxq.simulate(run.pop("model"), run.pop("ts"), run.pop("key"), checkpoint=finished, **run)
    assert finished.read_bytes() == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    file = tmp_path_factory.mktemp("finished") / "run ü.npz"
    jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file)
    return file


def test_another_version_is_refused(finished, monkeypatch):
    monkeypatch.setattr("jaxq.__version__", "0.0.0")
    with pytest.raises(ValueError, match=r"jaxq version '0.0.0', the file '0\.1"):
        Checkpoint(finished, resume=True)


def test_what_a_kill_during_a_write_left_is_swept(tmp_path):
    names = [".run[1].0a1b2c3d.partial.npz", ".run[1].0a1b2c3d.partial.nc", ".run[1].2.0a1b2c3d.partial.npz", "run[1].npz"]
    for name in names[:3]:
        (tmp_path / name).touch()
    jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=tmp_path / "run[1].npz", resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def refusal(file):
    """What a damaged file is answered with; "" if it is taken."""
    try:
        Checkpoint(file, resume=True)
    except ValueError as error:
        return str(error)
    return ""


def test_a_damaged_file_is_refused_and_kept(finished, tmp_path):
    """Cut at every thousandth byte, a byte changed anywhere, a pickle, a text: one sentence, and the file stays as it is."""
    whole = finished.read_bytes()
    damaged = [whole[:cut] for cut in range(0, len(whole), 1000)]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:] for at in range(200, len(whole), 1999)]
    np.savez(tmp_path / "pickle.npz", checkpoint=np.array([{}], object))
    damaged += [(tmp_path / "pickle.npz").read_bytes(), b"hello\n", b"\x80\x04K\x01."]
    file, said = tmp_path / "cut.npz", []
    for data in damaged:
        file.write_bytes(data)
        said.append(refusal(file))
        assert file.read_bytes() == data
    assert all(text.startswith("a checkpoint must be a whole file that jaxq wrote") for text in said if text)
    assert not any("\n" in text for text in said)
    assert said.count("") <= 8, "only bytes that mean nothing, such as dates of the members, may be changed unseen"


@pytest.mark.parametrize(("arguments", "message"), [
    ({"resume": True}, "resume needs the checkpoint to go on from; got none"),
    ({"path": "/nowhere/run.npz"}, "checkpoint needs a file in an existing folder that can be written; got '/nowhere/run.npz'"),
    ({"path": "/tmp"}, "checkpoint needs a file.*got '/tmp'"),
    ({"path": "new.npz", "every": -1}, "every must be a finite number at least 0; got -1"),
    ({"path": "new.npz", "every": float("nan")}, "every must be a finite number"),
])
def test_what_a_checkpoint_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        Checkpoint(**arguments)


def test_a_full_disk_costs_a_warning_not_the_run(tmp_path, monkeypatch):
    """And the last checkpoint that could be written stays."""
    file = tmp_path / "run.npz"
    jaxq.simulate(SMALL, TS[:3], 3, replicas=5, checkpoint=file)
    good = file.read_bytes()

    def full(path, arrays):
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jaxq.checkpoint._savez", full)
    with pytest.warns(UserWarning, match="the checkpoint could not be written to .*No space left on device.*an earlier checkpoint is kept"):
        found = jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file, every=0.0, resume=True)
    same(found, jaxq.simulate(SMALL, TS, 3, replicas=5))
    assert file.read_bytes() == good
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_it_is_written_as_often_as_asked(tmp_path, monkeypatch):
    clock, writes = [0.0], []
    monkeypatch.setattr("jaxq.checkpoint.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("jaxq.checkpoint.write_whole", lambda path, write, what: writes.append(clock[0]))
    file = Checkpoint(tmp_path / "run.npz", every=60.0).part("x", {})
    for _ in range(10):
        clock[0] += 25.0
        if file.due():
            file.write({}, {})
    assert writes == [75.0, 150.0, 225.0]
    assert not Checkpoint().due()
    Checkpoint().write({}, {})
    assert json.dumps(Checkpoint().saved) == "null"


# the command line

WORDS = ["simulate", "supermarket", "--n", "40", "--d", "2", "--arrival-rate", "0.8", "--t-end", "20", "--num-times", "6", "--replicas", "16"]


@pytest.fixture
def say(capsys, monkeypatch):
    """Run `jaxq` on these words: status, stdout, stderr; a running JAX refuses another number of devices."""
    update = jax.config.update
    monkeypatch.setattr(jax.config, "update", lambda name, value: None if name == "jax_num_cpu_devices" else update(name, value))

    def run(*words):
        status = cli.main([*words])
        return status, *capsys.readouterr()

    return run


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
    """The script compares all data variables byte for byte, and fails where one differs; its stored output has 20 kills."""
    bench = Path(__file__).parents[1] / "bench"
    done = subprocess.run([sys.executable, bench / "kills.py", "--kills", "3", "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = (bench / "results" / "kills.md").read_text()
    assert "differ from the undisturbed run: none" in stored
    assert "| 20 |" in stored
