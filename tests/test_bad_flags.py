"""The bad-input matrix of the command line: every flag of every command, refused in one line, with status 2, before any run."""

import argparse
import re
import time

import pytest
import scipy.sparse
from test_bad_input import JARGON

import jaxq
from jaxq import cli
from jaxq.cli_parser import make_parser

MODELS = {
    "supermarket": "--n 20 --d 2 --arrival-rate 0.5",
    "graph": "--graph ring --n 8 --d 2 --arrival-rate 0.5",
    "pull": "--n 20 --routers 2 --arrival-rate 0.5 --fractions .5 .5 --service-rates 1.5 .5",
    "two-queues": "--capacity 3 --arrival-rate 1.5"}
#: Every command with words that are good; the words of a bad flag come after them and win.
GOOD = {
    **{f"simulate {model}": f"{words} --t-end 1 --replicas 4" for model, words in MODELS.items()},
    **{f"stationary {model}": f"{words} --replicas 64" for model, words in MODELS.items()},
    "ode supermarket": "--d 2 --arrival-rate 0.5 --t-end 1",
    **{f"meanfield {model}": MODELS[model] for model in ("supermarket", "pull")},
    "limit": "--d 2 --initial 1 3 --t-end 1",
    "study supermarket": "--d 2 --beta 1 --n 100 200 --t-end 1 --replicas 4",
    "study pull": "--n 20 40 --routers 1 --arrival-rate 0.5 --replicas 4",
    "study graph": "--n 8 --d 2 --arrival-rate 0.5 --degrees 2 --kinds ring --replicas 4",
    "fit": "data.csv --d 2",
    "exact supermarket": "--n 3 --d 2 --arrival-rate 0.5 --buffer 3",
    "exact pull": "--n 4 --routers 1 --arrival-rate 0.5 --buffers 3",
    "exact two-queues": MODELS["two-queues"],
    "bench": "", "models": "", "completion": "bash"}

TEXT = ["x", "", "ü", "1,5", "1j", "1+0j", "True", "None", "[1]", "nan", "-nan", "inf", "-inf", "1e400", "0x10", "x" * 5000, "a\nb", "٣x"]
HUGE = ["9" * 400, "9" * 5000]
# what is bad for a flag of a kind, whatever it means
INTEGERS = [*TEXT, "1.5", "-1", "1e30", str(10**30), str(2**64), *HUGE]
NUMBERS = [*TEXT, *HUGE, "-1"]
PATHS = ["/", ".", "", "/nowhere/ü.nc", "/proc/nowhere/x", "/dev/null/x.nc", "x" * 5000, "/nowhere/a\nb"]
FOLDERS = ["", "/dev/null/x", "/proc/nowhere/x", "x" * 5000]
CHOICES = ["", "x", "Exact", "1", "nan", "x" * 5000, "a\nb"]

#: What is bad for a flag beside the values that are bad for all of its kind, and what is good after all.
MORE = {"--n": ["0"], "--d": ["0"], "--replicas": ["0", "2147483648"], "--routers": ["0"], "--capacity": ["0"], "--buffer": ["0"],
        "--buffers": ["0"], "--arrival-rate": ["0", "1e7"], "--t-end": ["0", "1e300"], "--num-times": ["0"], "--order": ["1"], "--step": ["0", "1"],
        "--rel-error": ["0", "2"], "--horizon": ["0"], "--max-events": ["0"], "--service-rates": ["0"], "--fractions": ["0", "2", "0.3"],
        "--degree": ["0", "3", "8"], "--rows": ["3"], "--degrees": ["0", "3", "9"], "--beta": ["0", "11"],
        "--alpha": ["0", "3"], "--eta": ["0", "0.5"], "--devices": ["0"], "--levels": ["0"], "--seconds": ["0", "1e9"], "--times": ["-1"],
        "--num-processes": ["2"], "--process-id": ["0"], "--every": ["-1s", "1d"]}
FINE = {"--initial": ["-1"], "--max-events": ["1e30"], "--capacity": ["inf"], "--buffer": ["inf"], "--buffers": ["inf"],
        "--graph-seed": ["1e30", str(10**30), str(2**64), HUGE[0]]}
FREE = ("--help", "--version")
#: The words of the flag that a sentence may use instead.
ALIASES = {"--out": "output", "--plot": "output|figure", "--checkpoint": "output", "--out-dir": "folder", "--compile-cache": "folder",
           "--graph": "graph", "--seed": "seed", "--start": "start|T", "--coordinator": "processes", "--num-processes": "processes",
           "--process-id": "processes", "data": "fit|load|file|columns", "--fractions": "fraction",
           "--service-rates": "rate", "--buffers": "buffer", "--alpha": "beta", "--eta": "beta|alpha", "--rows": "--rows",
           "--degrees": "degree", "--t-end": "ts|t_end", "--every": "every", "--num-times": "num_times", "shell": "completion"}

#: Flags that are good alone and contradict each other, or would be ignored without a word.
TOGETHER = [
    ("simulate supermarket", "--step 0.1", "step"), ("simulate supermarket", "--order 2", "order"), ("simulate supermarket", "--save paths", "--out"),
    ("simulate supermarket", "--beta 1", "arrival-rate"), ("simulate supermarket", "--eta 9", "arrival-rate"),
    ("simulate supermarket", "--resume", "--checkpoint"), ("simulate supermarket", "--every 5s", "--checkpoint"),
    ("simulate supermarket", "--buffer 2 --buffers 3", "--buffers"), ("simulate supermarket", "--fractions .5 .5 --service-rates 1", "service-rates"),
    ("simulate supermarket", "--algorithm leap --step 1000", "step"), ("simulate supermarket", "--algorithm leap --order 3", "order"),
    ("simulate supermarket", "--algorithm leap --t-end 1e300", "ts"), ("simulate supermarket", "--d 60 --n 50 --no-replacement", "replacement"),
    ("simulate supermarket", "--distributed --process-id 0", "process-id"), ("simulate supermarket", "--coordinator localhost:1", "coordinator"),
    ("simulate supermarket", "--out {tmp}/a --plot {tmp}/a", "--plot"), ("simulate supermarket", "--out {tmp}/a --checkpoint {tmp}/./a", "--checkpoint"),
    ("simulate supermarket", "--plot {tmp}/a.nonsense", ".png"), ("simulate two-queues", "--algorithm bulk", "bulk"),
    ("simulate graph", "--algorithm leap", "leap"), ("simulate graph", "--rows 4", "--rows"), ("simulate graph", "--graph-seed 3", "--graph-seed"),
    ("simulate graph", "--graph complete --degree 3", "--degree"), ("simulate graph", "--graph torus --degree 4 --n 9", "--degree"),
    ("simulate graph", "--graph regular", "--degree"), ("simulate graph", "--graph torus --n 8", "--n"),
    ("simulate graph", "--graph {tmp}/graph.npz", "--n"), ("simulate graph", "--graph nowhere.npz", "graph"),
    ("simulate graph", "--service-rates {tmp}/empty", "service_rates"), ("simulate graph", "--service-rates {tmp}", "service-rates"),
    ("stationary supermarket", "--horizon 5 --rel-error 0.1", "--horizon"), ("stationary supermarket", "--arrival-rate 1", "arrival_rate"),
    ("stationary supermarket", "--order 2", "order"), ("ode supermarket", "--eta 5 --beta 1", "arrival-rate"), ("meanfield supermarket", "--plot {tmp}/a.png", "--plot"),
    ("meanfield pull", "--plot {tmp}/a.png", "--plot"), ("exact supermarket", "--plot {tmp}/a.png", "--plot"), ("bench", "--plot {tmp}/a.png", "--plot"),
    ("exact supermarket", "--num-times 5", "--t-end"), ("exact two-queues", "--plot {tmp}/a.png", "--plot"), ("study supermarket", "--n 200 100", "n"),
    ("study supermarket", "--step 1", "step"), ("study supermarket", "--start {tmp}/empty", "start"), ("study supermarket", "--start {tmp}/words", "start"),
    ("study graph", "--degrees 3", "degree"), ("study pull", "--n 20 3 --fractions .5 .5", "n"), ("fit", "--d 2 --fit-d", "fit_d"),
    ("fit", "{tmp}/data.csv --levels 2 --d 2", "levels"), ("fit", "{tmp}/data.csv --times 2 --d 2", "times"), ("fit", "{tmp}", "study.nc"), ("fit", "{tmp}/empty", "data"),
    ("fit", "{tmp}/data.csv", "d"), ("simulate supermarket", "--d 65", "d"), ("simulate graph", "--d 65", "d")]


@pytest.fixture(autouse=True)
def _one_parser(monkeypatch, running_jax):
    """It takes longest to make."""
    parser = make_parser()
    monkeypatch.setattr(cli, "make_parser", lambda: parser)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "words").write_text("one two")
    (tmp_path / "data.csv").write_text("n,level,value,stderr\n10,1,0.7,0.01\n20,1,0.8,0.01\n")
    scipy.sparse.save_npz(tmp_path / "graph.npz", scipy.sparse.csr_array([[0, 1], [1, 0]]))
    return tmp_path


def leaf(command):
    """The parser of a command."""
    parser = make_parser()
    for word in command.split():
        parser = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices[word]
    return parser


def bad_words(action):
    """(flag, words) that are bad for one flag, by its kind."""
    flag = action.option_strings[-1] if action.option_strings else action.dest
    kind = getattr(action.type, "__name__", "")
    if action.nargs == 0:
        return [(flag, [f"{flag}=1"]), (flag, [f"{flag}=no"])]
    values = (CHOICES if action.choices else INTEGERS if kind in ("integer", "capacity") else NUMBERS if kind in ("number", "duration")
              else PATHS if flag in ("--out", "--plot", "--checkpoint", "data") else FOLDERS if flag in ("--out-dir", "--compile-cache")
              else CHOICES)
    values = [value for value in [*values, *MORE.get(flag, ())] if value not in FINE.get(flag, ())]
    # after "=", so that a value that begins with a dash is one
    if not action.option_strings:
        return [(flag, [value]) for value in values if value and not value.startswith("-")]
    found = [(flag, [f"{flag}={value}"]) for value in values]
    return [*found, (flag, [flag]), (flag, [flag + "x", "1"])]


def fault(capsys, command, words, name):
    """What is wrong with the answer to bad words, or None."""
    began = time.process_time()
    try:
        status = cli.main([*command.split(), *words])
    except BaseException as error:
        capsys.readouterr()
        return f"{type(error).__name__}: {error}"
    spent = time.process_time() - began
    out, err = capsys.readouterr()
    if (status, out) != (2, "") or not err.startswith("jaxq: error: ") or err.count("\n") != 1:
        return f"status {status}, {len(out)} characters on stdout, stderr {err!r}"
    if spent > 1:
        return f"only after {spent:.1f} s: {err}"
    plain = name.removeprefix("--")
    if not re.search(rf"(?<![A-Za-z_])({ALIASES.get(name, name)}|{plain}|{plain.replace('-', '_')})(?![A-Za-z])", err):
        return f"does not name it: {err}"
    return f"not a plain sentence: {err}" if JARGON.search(err) or len(err) > 420 else None


@pytest.mark.parametrize("command", GOOD)
def test_every_bad_flag_is_one_line_and_status_2(capsys, folder, monkeypatch, command, record_property):
    monkeypatch.chdir(folder)
    good = GOOD[command].split()
    cases = [(flag, [*good, *words]) for action in leaf(command)._actions for flag, words in bad_words(action)
             if not set(action.option_strings) & set(FREE)]
    cases += [(name, [*good * (command != "fit" or words[0] == "-"), *words.format(tmp=folder).split()]) for verb, words, name in TOGETHER if verb == command]
    cases += [(flag, [word for k, word in enumerate(good) if k not in (at, at + 1)]) for at, flag in enumerate(good)
              if flag in ("--t-end", "--d", "--graph", "--routers", "--capacity", "--initial", "--beta")]
    faults = [(words[len(good) * (len(words) > len(good)):], wrong) for flag, words in cases if (wrong := fault(capsys, command, words, flag))]
    record_property("bad_inputs", (len(cases), len(cases) - len(faults)))
    assert not faults, "\n".join(f"{command} {' '.join(words)[:60]!r}: {wrong[:300]}" for words, wrong in faults)


def test_the_matrix_has_every_command():
    def leaves(parser, words):
        below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        return [found for action in below for word, child in action.choices.items() for found in leaves(child, [*words, word])] \
            or [" ".join(words)]

    assert sorted(leaves(make_parser(), [])) == sorted(GOOD)


@pytest.mark.parametrize("command", GOOD)
def test_debug_shows_the_traceback(command):
    with pytest.raises(ValueError, match="--out"):
        cli.main([*command.split(), *GOOD[command].split(), "--debug", "--out"])


def test_a_run_that_fails_is_one_line_too(capsys, monkeypatch):
    def fails(*rest, **more):
        raise MemoryError("no\nmemory")

    monkeypatch.setattr("jaxq.heavy_traffic.limit", fails)
    words = ["limit", *GOOD["limit"].split()]
    assert cli.main(words) == 1
    assert capsys.readouterr().err.startswith("jaxq: error: the run failed (MemoryError: no memory); ")
    with pytest.raises(MemoryError):
        cli.main([*words, "--debug"])


def test_devices_of_another_kind_than_processors_cannot_be_counted(capsys, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert cli.main(["simulate", "supermarket", *GOOD["simulate supermarket"].split(), "--devices", "7"]) == 2
    assert "--devices counts CPU devices" in capsys.readouterr().err


def test_odd_but_good_words_work(capsys, folder):
    found = leaf("simulate supermarket").parse_args("--n 1e3 --d 2.0 --arrival-rate 5e-1 --t-end 1_0 --replicas 4e0 --seed 0e0".split())
    assert (found.n, found.d, found.arrival_rate, found.t_end, found.replicas, found.seed) == (1000, 2, 0.5, 10.0, 4, 0)
    assert all(isinstance(value, int) for value in (found.n, found.d, found.replicas, found.seed))
    assert cli.main(["limit", *GOOD["limit"].split(), "--exact", "--out", f"{folder}/ü 漢字.nc", "--plot", f"{folder}/no ending"]) == 0
    assert jaxq.load(folder / "ü 漢字.nc").attrs["command"].endswith("no ending")
    assert (folder / "no ending.png").stat().st_size > 10_000
    assert cli.main(["exact", "two-queues", "--capacity", "inf", "--arrival-rate", "1e0"]) == 0
    assert "mean customers" in capsys.readouterr().out
