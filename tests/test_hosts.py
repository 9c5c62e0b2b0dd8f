"""Several processes on this machine as one run: the integers of one process, one voice, and what happens when one is lost."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import jaxq
from jaxq import cli, hosts

CLI = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "  # whatever the shell does with it
       "from jaxq.cli import main; sys.exit(main(sys.argv[1:]))")
#: The same, which leaves a mark when it has begun its third call and so has results of the first.
UNDER_WAY = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxq.cli import main
from jaxq.engine import Engine
advance, calls = Engine.advance, []
def counted(self, takes):
    calls.append(takes)
    if len(calls) == 3:
        pathlib.Path(f"{sys.argv[1]}.{sys.argv[-1]}").touch()
    return advance(self, takes)
Engine.advance = counted
sys.exit(main(sys.argv[2:]))
"""
SIMULATE = ["simulate", "supermarket", "--n", "60", "--d", "2", "--arrival-rate", "0.9", "--t-end", "1", "--num-times", "3", "--replicas", "9", "--seed", "4"]
LONG = ["simulate", "supermarket", "--n", "100000", "--d", "2", "--arrival-rate", "0.9", "--t-end", "1000", "--num-times", "5000", "--replicas", "64", "--devices", "1"]


def begin(words, program=CLI, own=([], [])):
    """Two processes that run `program`, process 0 first, each with words of its `own` besides."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return [subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words), *own[k], "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2",
         "--process-id", str(k)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) for k in range(2)]


def ends(runs):
    """(status, stdout, stderr) of each."""
    try:
        spoken = [run.communicate(timeout=240) for run in runs]
    finally:
        for run in runs:
            run.kill()
    return [(run.returncode, *said) for run, said in zip(runs, spoken, strict=True)]


def alike(one, other):
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        assert one[name].dtype == other[name].dtype
        assert one[name].values.tobytes() == other[name].values.tobytes(), name


@pytest.fixture
def alone(running_jax, capsys):
    """The same in one process, this one: what it prints."""
    def run(words):
        assert cli.main([*map(str, words)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A run of two processes: its file, and how they ended."""
    path = tmp_path_factory.mktemp("pair") / "run.nc"
    return path, ends(begin([*SIMULATE, "--devices", "1", "--json", "--save", "paths", "--out", path]))


def test_two_processes_give_the_file_of_one(pair):
    path, ended = pair
    assert [status for status, *_ in ended] == [0, 0]
    model = jaxq.Supermarket(60, 2, 0.9)
    same = jaxq.simulate(model, [0, 0.5, 1], 4, replicas=9, save="paths")
    found = jaxq.load(path)
    alike(found, same.to_xarray())
    assert found.attrs["hosts"] == 2
    assert found.attrs["devices"] == 2
    assert found.attrs["events"] == same.events


def test_one_process_writes_and_prints(pair):
    path, ((_, out, err), (_, other_out, other_err)) = pair
    assert json.loads(out)["replicas"] == 9   # one object and nothing else: gloo's lines go nowhere
    assert (err, other_out, other_err) == ("", "", "")
    assert sorted(file.name for file in path.parent.iterdir()) == ["run.nc"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [
    ["stationary", "supermarket", "--n", "50", "--d", "2", "--arrival-rate", "0.7", "--replicas", "70", "--rel-error", "0.03"],
    ["stationary", "pull", "--n", "10", "--routers", "2", "--arrival-rate", "0.6", "--replicas", "16", "--rel-error", "0.05"],
    ["stationary", "graph", "--graph", "ring", "--n", "30", "--d", "2", "--arrival-rate", "0.7", "--replicas", "65", "--rel-error", "0.05"],
    ["simulate", "supermarket", "--n", "60", "--d", "2", "--arrival-rate", "0.95", "--t-end", "30", "--num-times", "4", "--replicas", "1", "--save", "paths"]])
def test_two_processes_of_two_devices_too(tmp_path, alone, words):
    """One replica leaves three of the four devices with padding; the warm-up of PULL and of graphs is decided by two starts."""
    ended = ends(begin([*words, "--devices", "2", "--out", tmp_path / "two.nc"]))
    assert [status for status, *_ in ended] == [0, 0]
    assert ended[1][1:] == ("", "")
    assert ended[0][1] == alone([*words, "--out", tmp_path / "one.nc"]) or words[0] == "stationary"
    alike(jaxq.load(tmp_path / "two.nc"), jaxq.load(tmp_path / "one.nc"))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "name", "files"), [
    (["study", "--d", "2", "--beta", "1", "--n", "500", "1000", "--t-end", "1", "--num-times", "3", "--replicas", "9"], "study", 3),
    (["study", "graph", "--n", "30", "--d", "2", "--arrival-rate", "0.7", "--degrees", "2", "--kinds", "ring", "--replicas", "8",
      "--warmup", "2", "--horizon", "4"], "graph", 3)])
def test_a_study_of_two_processes(tmp_path, alone, words, name, files):
    ended = ends(begin([*words, "--devices", "1", "--out-dir", tmp_path / "two"]))
    assert [status for status, *_ in ended] == [0, 0]
    assert len(list((tmp_path / "two").iterdir())) == files
    alone([*words, "--out-dir", tmp_path / "one"])
    alike(jaxq.load(tmp_path / "two" / f"{name}.nc"), jaxq.load(tmp_path / "one" / f"{name}.nc"))


SCRIPT = """
import sys, jax
jax.config.update("jax_num_cpu_devices", 2)
import jaxq
from jaxq import hosts
port, count, me = sys.argv[-5], int(sys.argv[-3]), int(sys.argv[-1])
hosts.start(port, count, me)
own = jaxq.simulate(jaxq.Supermarket(20, 2, .5 + me / 10), [1.], me, replicas=4, devices=jax.local_devices())   # no one else needed
said = []
for what in (lambda: jaxq.simulate(jaxq.Supermarket(20 + me, 2, .9), [1.], 0, replicas=4),
             lambda: jaxq.simulate(jaxq.Supermarket(20, 2, .9), [1. + me], 0, replicas=4),
             lambda: jaxq.simulate(jaxq.Supermarket(20, 2, .9), [1.], 0, replicas=4, devices=jax.devices()[2 - 2 * me:][:2]),
             lambda: hosts.start(port, count, me)):
    try:
        what()
    except ValueError as error:
        said.append(str(error))
grown = jaxq.simulate(jaxq.Supermarket(20, 2, .99, levels=2), [20.], 5, replicas=3, save="paths")
print("RESULT", [own.events, said, grown.paths.tolist(), hosts.everyone(me), hosts.first()])
hosts.leave()
"""


@pytest.mark.slow
def test_a_script_of_several_processes():
    ended = ends(begin([], SCRIPT))
    assert [status for status, *_ in ended] == [0, 0]
    found = [eval(next(line for line in out.splitlines() if line.startswith("RESULT"))[7:]) for _, out, _ in ended]
    for me, (events, said, paths, everyone, is_first) in enumerate(found):
        own = jaxq.simulate(jaxq.Supermarket(20, 2, 0.5 + me / 10), [1.0], me, replicas=4)
        assert events == own.events
        for part, text in zip(("the same model, start", "the same ticks", "devices must be", "hosts.start must come once"), said, strict=True):
            assert part in text
        assert everyone == [0, 1]
        assert is_first == (me == 0)
        np.testing.assert_array_equal(paths, jaxq.simulate(jaxq.Supermarket(20, 2, 0.99), [20.0], 5, replicas=3, save="paths").paths)


@pytest.mark.slow
@pytest.mark.parametrize("words", [[*SIMULATE, "--out", "/nonexistent/x.nc"], [*SIMULATE, "--n", "0"]])
def test_a_mistake_is_told_once_and_ends_all(words):
    (status, out, err), other = ends(begin(words))
    assert (status, out) == (2, "")
    assert err.startswith("jaxq: error: ")
    assert err.count("\n") == 1
    assert other == (2, "", "")


@pytest.mark.slow
def test_unlike_flags_are_refused():
    (status, _, err), other = ends(begin(SIMULATE, own=([], ["--seed", "5"])))
    assert (status, other) == (2, (2, "", ""))
    assert "all processes of a run must have the same flags; those of process 1 differ" in err


@pytest.mark.slow
@pytest.mark.parametrize(("who", "kind", "statuses"), [
    ((0, 1), signal.SIGINT, (130, 130)), ((1,), signal.SIGINT, (1, 130)), ((1,), signal.SIGKILL, (1, -9)), ((1,), signal.SIGTERM, (1, -15)),
    ((0,), signal.SIGKILL, (-9, -signal.SIGABRT))])
def test_an_end_is_heard_by_all(tmp_path, who, kind, statuses):
    """As docs/clusters.md says: without process 0 JAX itself ends the others."""
    runs = begin([tmp_path / "mark", *LONG, "--out", tmp_path / "run.nc"], UNDER_WAY)
    while not all((tmp_path / f"mark.{k}").exists() for k in range(2)):
        assert all(run.poll() is None for run in runs)
        time.sleep(0.1)
    for k in who:
        runs[k].send_signal(kind)
    ended = ends(runs)
    assert tuple(status for status, *_ in ended) == statuses
    if kind == signal.SIGINT and 0 in who:
        assert ended[0][2].startswith("jaxq: interrupted; the ")
        assert jaxq.load(tmp_path / "run.nc").time.size > 0
    elif 0 not in who:
        assert ended[0][2].startswith("jaxq: error: another process of this run has ended or cannot be reached")
        assert ended[0][2].count("\n") == 1


EXPLICIT = ["--coordinator", "localhost:9999", "--num-processes", "2", "--process-id"]


@pytest.mark.usefixtures("running_jax")
@pytest.mark.parametrize(("words", "message"), [
    (["--coordinator", "localhost:9999"], "or all of --coordinator, --num-processes and --process-id; got --coordinator\n"),
    (["--num-processes", "2", "--process-id", "0"], "got --num-processes --process-id\n"),
    (["--distributed", *EXPLICIT, "0"], "either --distributed, on a cluster that JAX knows, or all of"),
    ([*EXPLICIT, "2"], "process_id must be an integer at least 0 and at most 1; got 2; processes are numbered from 0\n"),
    ([*EXPLICIT, "-1"], "process_id must be an integer at least 0"),
    ([*EXPLICIT, "0", "--num-processes", "0"], "num_processes must be an integer at least 1 and at most 1000000; got 0"),
    ([*EXPLICIT, "0", "--coordinator", "localhost"], "coordinator must be HOST:PORT with a port from 1 to 65535; got 'localhost'"),
    ([*EXPLICIT, "0", "--coordinator", "localhost:99999"], "got 'localhost:99999'"),
    ([*EXPLICIT, "x"], "--process-id must be an integer; got 'x'")])
def test_flags_that_do_not_fit_together(capsys, words, message):
    status = cli.main([*SIMULATE, *words])
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.startswith("jaxq: error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.slow
def test_no_cluster_is_found():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "JAX_"))}
    done = subprocess.run([sys.executable, "-c", CLI, *SIMULATE, "--distributed"], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jaxq: error: no cluster was found that JAX knows (Slurm, Kubernetes, Open MPI, TPU pod)")
    assert done.stderr.count("\n") == 1


def test_a_start_from_python_is_checked():
    with pytest.raises(ValueError, match="coordinator, num_processes and process_id together"):
        hosts.start("localhost:9999")
    assert hosts.first()
    assert hosts.everyone({"a": 1}) == [{"a": 1}]
