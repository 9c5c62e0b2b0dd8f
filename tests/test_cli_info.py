"""What the command line says without running: help, models, completion, dry runs; and results as CSV."""

import csv
import io
import json
import os
import subprocess

import numpy as np
import pytest

import jaxq
from jaxq.cli_parser import make_parser
from jaxq.engine import Engine


@pytest.mark.parametrize("command", [f"{verb} {model}".strip() for verb, models in make_parser().commands().items() for model in ["", *models]])
def test_help_fits_a_screen_and_has_an_example(say, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        say(f"{command} --help")
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 50
    assert max(map(len, text.partition("example:")[0].splitlines())) <= 100
    assert f"jaxq {command.split()[0]}" in text.partition("example:  ")[2]


def test_models_and_their_examples_are_right(say):
    status, out, err = say("models --json")
    models = json.loads(out)["models"]
    assert (status, err, [model["model"] for model in models]) == (0, "", ["supermarket", "graph", "pull", "two-queues"])
    verbs = make_parser().commands()
    for model in models:
        assert hasattr(jaxq, model["python"].removeprefix("jaxq."))
        assert all(model["model"] in verbs[verb] for verb in model["commands"])
        assert {verb for verb, of in verbs.items() if model["model"] in of} == set(model["commands"])
        make_parser().parse_args(model["example"].split()[1:])
    assert all(model["example"] in say("models")[1] for model in models)


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_commands_models_and_flags(say, shell):
    status, out, err = say(f"completion {shell}")
    assert (status, err) == (0, "")
    assert all(word in out for word in ("stationary", "two-queues", "rel-error", "num-processes", "every"))


def test_bash_completes(say, tmp_path):
    script = tmp_path / "jaxq.sh"
    script.write_text(say("completion bash")[1])
    line = "COMP_WORDS=(jaxq stationary pu); COMP_CWORD=2; _shtab_jaxq; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", f"source {script}; {line}"], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "pull"


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_line_for_each_number(say):
    run = "simulate supermarket --n 40 --d 2 --arrival-rate .8 --t-end 4 --num-times 3 --replicas 9"
    rows, result = table(say(f"{run} --csv")[1]), json.loads(say(f"{run} --json")[1])
    tail = [row for row in rows if row["quantity"] == "tail"]
    assert [float(row["time"]) for row in tail if row["level"] == "1"] == result["times"]
    np.testing.assert_array_equal([float(row["value"]) for row in tail], np.ravel(result["tail_mean"]))
    np.testing.assert_array_equal([float(row["stderr"]) for row in tail], np.ravel(result["tail_stderr"]))
    queue = [row for row in rows if row["quantity"] == "mean_queue_length"]
    assert [float(row["stderr"]) for row in queue] == result["mean_queue_length_stderr"]
    assert not any("stderr" in row["quantity"] for row in rows)
    assert [float(row["value"]) for row in rows if row["quantity"] == "arrivals"] == [result["arrivals"]]


def test_csv_of_what_has_no_error_bars(say):
    rows = table(say("exact two-queues --capacity 3 --arrival-rate 1 --csv")[1])
    assert float(next(row for row in rows if row["quantity"] == "blocking")["value"]) == jaxq.exact.two_queues(3, 1.0).blocking
    assert {row["stderr"] for row in rows} == {""}
    assert say("limit --d 2 --initial 1 3 7 --t-end 1 --csv")[1].startswith("quantity,time,level,value,stderr\nT,0.0,1,1.0,\n")


@pytest.mark.parametrize(("words", "events", "least"), [
    ("simulate supermarket --n 50 --d 2 --arrival-rate .8 --t-end 10 --replicas 20", 50 * 1.8 * 10 * 20, False),
    ("study --d 2 --beta 1 --n 100 400 --t-end 5 --replicas 10", (100 * 1.9 + 400 * 1.95) * 50, False),
    ("stationary two-queues --capacity 5 --arrival-rate 1.6 --replicas 20 --warmup 10 --horizon 30", 3.6 * 40 * 20, False),
    ("stationary supermarket --n 50 --d 2 --arrival-rate .8 --replicas 20", 50 * 1.8 * 72.13 * 1.25 * 20, True),
    pytest.param("study pull --n 10 --routers 1 2 --arrival-rate .5 --replicas 10 --warmup 5 --horizon 20", 10 * 1.5 * 25 * 10 * 3, False,
                 marks=pytest.mark.slow),
    pytest.param("study graph --n 20 --d 2 --arrival-rate .5 --degrees 2 --kinds ring --replicas 10 --warmup 5 --horizon 20", 20 * 1.5 * 25 * 10 * 2,
                 False, marks=pytest.mark.slow),
])
def test_a_dry_run_counts_events_and_memory_and_times_a_trial(say, words, events, least):
    status, out, err = say(f"{words} --dry-run --json")
    found = json.loads(out)
    assert (status, err, found["at_least"]) == (0, "", least)
    assert found["events"] == pytest.approx(events, rel=1e-3)
    assert found["seconds"] == pytest.approx(found["events"] / found["events_per_second"], rel=1e-4)
    assert 0 < found["memory"] < 2**30


def test_a_dry_run_says_so_in_words_and_writes_nothing(say, tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "call", 100)
    words = "simulate supermarket --n 50 --d 2 --arrival-rate .8 --t-end 10 --replicas 20 --dry-run --out"
    status, out, err = say(f"{words} {tmp_path / 'run.nc'}")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["ensembles", "events", "memory", "compilation", "time"]
    assert not list(tmp_path.iterdir())


def test_a_dry_run_tries_each_kind_of_model(say, monkeypatch, tmp_path):
    """The complete graph of a study of graphs runs many times as fast as the others."""
    tried = {"Supermarket": (1e9, 1.0), "GraphSupermarket": (1e6, 2.0)}
    monkeypatch.setattr("jaxq.commands_info._trial", lambda run: tried[type(run.model).__name__])
    status, out, _ = say("study graph --n 20 --d 2 --arrival-rate 0.5 --degrees 2 4 --kinds ring --replicas 8 --warmup 10 --horizon 20 "
                         f"--out-dir {tmp_path / 'x'} --json --dry-run")
    assert not (tmp_path / "x").exists()
    found, each = json.loads(out), 30 * (20 + 10) * 8
    assert (status, found["events"], found["compile_seconds"]) == (0, 3 * each, 5.0)
    assert found["seconds"] == pytest.approx(each / 1e9 + 2 * each / 1e6, rel=1e-9)
