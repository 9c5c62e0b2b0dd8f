"""The file of a checkpoint: refused where it is another run's or damaged, kept whole whatever happens."""

import json

import numpy as np
import pytest

import jaxq
from jaxq.algorithms import choose
from jaxq.checkpoint import Checkpoint, identity

SMALL = jaxq.Supermarket(40, 2, 0.8)
TS = np.linspace(0.0, 20.0, 6)
POOLS = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]


def numbers(result):
    return {name: value for name, value in result.to_json().items() if "second" not in name}


@pytest.mark.parametrize(("change", "message"), [
    ({"model": jaxq.Supermarket(40, 2, 0.81)}, "arrival_rate 0.81, the file 0.8"),
    ({"model": jaxq.Supermarket(41, 2, 0.8)}, "n 41, the file 40"),
    ({"model": jaxq.Pull(40, POOLS, 2, 0.7)}, "name 'Pull', the file 'Supermarket'"),
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


def test_another_warm_up_is_refused_and_leaves_the_file(tmp_path):
    """The replicas on file are past it: they would have to begin again."""
    run = {"key": 3, "replicas": 64, "horizon": 20.0, "checkpoint": tmp_path / "run.npz"}
    jaxq.stationary(SMALL, warmup=10.0, **run)
    before = run["checkpoint"].read_bytes()
    for other in (11.0, None):
        with pytest.raises(ValueError, match=rf"this one has warmup {other}, the file 10.0; use the arguments it was written with"):
            jaxq.stationary(SMALL, warmup=other, resume=True, **run)
    assert run["checkpoint"].read_bytes() == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    file = tmp_path_factory.mktemp("finished") / "run ü.npz"
    jaxq.simulate(SMALL, TS, 3, replicas=5, checkpoint=file)
    return file


def test_another_version_is_refused(finished, monkeypatch):
    monkeypatch.setattr("jaxq.__version__", "0.0.0")
    with pytest.raises(ValueError, match=r"jaxq version '0.0.0', the file '0\.1"):
        Checkpoint(finished, resume=True)


def test_numpy_numbers_are_numbers(tmp_path):
    """The file holds them as JSON; a step given is that which is found, and one start is not two."""
    words, model = np.uint32([0, 3]), jaxq.Supermarket(np.int64(40), np.int32(2), np.float32(0.75))
    given, found = (identity(choose(model, "leap", *how), words, [None])
                    for how in ((np.float32(0.03125), np.int64(2)), (None, None)))
    assert json.loads(json.dumps(given)) == found
    assert (given["step"], given["order"], given["model"]["n"]) == (0.03125, 2, 40)
    two = Checkpoint(tmp_path / "run.npz").part("run", identity(model, words, [None, [40]]))
    two.write({}, {})
    with pytest.raises(ValueError, match="number of starts 1, the file 2"):
        Checkpoint(tmp_path / "run.npz", resume=True).part("run", identity(model, words, [None]))


def test_a_file_of_another_function_is_refused(finished):
    with pytest.raises(ValueError, match="function 'stationary', the file 'simulate'"):
        jaxq.stationary(SMALL, 3, replicas=5, checkpoint=finished, resume=True)


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
    assert numbers(found) == numbers(jaxq.simulate(SMALL, TS, 3, replicas=5))
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
