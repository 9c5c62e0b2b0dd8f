"""`jaxq bench`: its stored integers against an independent interpreter, its table, and what it says where integers differ."""

import dataclasses
import json

import interpreter
import numpy as np
import pytest

import jaxq
from jaxq import bits, cli, commands_bench
from jaxq.ticks import PoissonPath

pytestmark = pytest.mark.usefixtures("running_jax")


def run(capsys, *words):
    status = cli.main(["bench", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("replica", [0, 7])
def test_the_stored_integers_are_those_of_the_interpreter(replica):
    case = commands_bench.CASES[0]
    model = case.model()
    key = bits.fold_in(bits.key_words(0), np.array([replica], np.uint32))
    ticks = int(PoissonPath(model.clock(), key).count(case.t)[0])
    assert sum(interpreter.run(model, 0, replica, ticks)) == case.customers[replica]


@pytest.mark.slow
def test_every_case_gives_its_integers(capsys):
    status, out, err = run(capsys, "--seconds", "1", "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    assert result["cases"] == [case.name for case in commands_bench.CASES]
    assert result["reproduced"] == [True] * len(commands_bench.CASES)
    assert min(result["ticks_per_second"]) > 1e4


def test_a_wrong_integer_is_said(capsys, monkeypatch, tmp_path):
    right, wrong = (next(case for case in commands_bench.CASES if case.name.startswith(name)) for name in ("super", "two"))
    wrong = dataclasses.replace(wrong, customers=(*wrong.customers[:-1], wrong.customers[-1] + 1))
    monkeypatch.setattr(commands_bench, "CASES", (right, wrong))
    status, out, err = run(capsys, "--seconds", "0.2", "--out", str(tmp_path / "bench.nc"))
    rows = {line.strip().split("  ")[0]: line.split()[-1] for line in out.splitlines()[1:3]}
    assert (status, rows) == (0, {right.name: "yes", "two queues": "NO"})
    assert err == "jaxq: warning: seed 0 did not give the integers it must in two queues: do not trust this installation on this device\n"
    data = jaxq.load(tmp_path / "bench.nc")
    assert data.reproduced.values.tolist() == [True, False]
    assert (data.ticks_per_second > 0).all()


@pytest.mark.parametrize(("words", "message"), [
    (["--seconds", "0"], "--seconds must be a finite number above 0"),
    (["--devices", "0"], "--devices must be an integer at least 1"),
    (["--plot", "x.png"], "--plot has no figure for this command"),
])
def test_mistakes_are_one_sentence(capsys, words, message):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
