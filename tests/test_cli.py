"""The command line: keys, tables, files, exit codes, and one sentence for every mistake."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import jaxq
from jaxq import cli

SIMULATE = ["simulate", "supermarket", "--n", "200", "--d", "2", "--beta", "1", "--alpha", "0.5", "--t-end", "2", "--num-times", "3", "--replicas", "20", "--seed", "4"]
STUDY = ["study", "--d", "2", "--beta", "1", "--alpha", "0.5", "--n", "500", "1000", "--t-end", "1", "--num-times", "3", "--replicas", "8", "--seed", "1"]


pytestmark = pytest.mark.usefixtures("running_jax")


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_simulate_prints_the_json_of_the_same_run_in_python(capsys):
    status, out, err = run(capsys, *SIMULATE, "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    same = jaxq.simulate(jaxq.Supermarket.heavy_traffic(200, 2, 1.0, 0.5), [0, 1, 2], 4, replicas=20)
    assert set(result) == {"times", "tail_mean", "tail_stderr", "mean_queue_length", "mean_queue_length_stderr", "events",
                           "arrivals", "departures", "seconds", "compile_seconds", "events_per_second", "replicas", "seed",
                           "model", "algorithm"}
    for name in ("times", "tail_mean", "tail_stderr", "mean_queue_length", "mean_queue_length_stderr"):
        np.testing.assert_array_equal(result[name], getattr(same, name))
    assert result["events"] == same.events
    assert result["model"] == same.model | {"eta": pytest.approx(200**0.5)}


def test_simulate_prints_a_table_with_errors_and_writes_files(capsys, tmp_path):
    status, out, _ = run(capsys, *SIMULATE, "--out", tmp_path / "ü run.nc", "--plot", tmp_path / "run.png", "--save", "paths")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].split()[:3] == ["time", "Q", "S_1"]
    assert "+-" in lines[2]
    data = jaxq.load(tmp_path / "ü run.nc")
    assert data.paths.shape == (3, 8, 20)
    assert "command" in data.attrs
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_ode(capsys):
    status, out, _ = run(capsys, *["ode", "supermarket", "--d", "2", "--arrival-rate", "0.9", "--t-end", "10", "--num-times", "11", "--json"])
    result = json.loads(out)
    assert status == 0
    assert set(result) == {"times", "tail", "mean_queue_length", "truncation_error"}
    assert result["times"] == list(range(11))
    assert result["mean_queue_length"][-1] == pytest.approx(sum(result["tail"][-1]), rel=1e-12)
    heavy = run(capsys, *["ode", "supermarket", "--d", "2", "--n", "100", "--beta", "1", "--t-end", "10", "--num-times", "11", "--json"])[1]
    np.testing.assert_allclose(np.array(json.loads(heavy)["tail"])[:, :8], np.array(result["tail"])[:, :8], atol=1e-9)


def test_limit(capsys):
    words = ["limit", "--d", "2", "--initial", "1", "3", "7", "15", "--t-end", "5", "--num-times", "6", "--json"]
    result = json.loads(run(capsys, *words)[1])
    assert set(result) == {"times", "T"}
    np.testing.assert_allclose(result["T"], [[1, 3, 7, 15]] * 6, atol=1e-12)
    ode, exact = (json.loads(run(capsys, *words[:3], "--initial", "-2", "5", "0", "0", *words[8:], *more)[1])["T"]
                  for more in ((), ("--exact",)))
    np.testing.assert_allclose(ode, exact, atol=1e-8)
    zero = json.loads(run(capsys, *words, "--above", "zero")[1])["T"]
    assert zero[-1][3] < 10


def test_exact_two_queues(capsys):
    result = json.loads(run(capsys, *"exact two-queues --capacity 5 --arrival-rate 1.6 --service-rates 1 1 --json".split())[1])
    assert {"blocking", "mean_customers", "p_empty", "p_0k"} <= set(result)
    assert result["blocking"] == pytest.approx(0.0286659606084, rel=1e-10)
    status, out, _ = run(capsys, *"exact two-queues --capacity inf --arrival-rate 1.2 --service-rates 1 0.5".split())
    assert status == 0
    assert "mean customers" in out


def test_exact_chains(capsys, reference):
    case = reference("supermarket_exact")[3]
    words = "exact supermarket --n 3 --d 2 --arrival-rate 0.8 --buffer 30 --json".split()
    times = json.loads(run(capsys, *words, "--t-end", "2", "--num-times", "3")[1])
    np.testing.assert_allclose(np.array(times["tail"])[1:, :6], case["tails_from_empty"][1:3], rtol=1e-8)
    stationary = json.loads(run(capsys, *words)[1])
    assert stationary["tail"][0] == pytest.approx(0.8, abs=1e-8)  # lambda (1 - P(block)), P(block) = 1.6e-9
    pull = "exact pull --n 4 --routers 1 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5 --buffers 1 3 --json".split()
    assert json.loads(run(capsys, *pull)[1])["mean_queue_length"] == pytest.approx(0.991683287179, rel=1e-9)


@pytest.mark.parametrize("words", [
    "simulate two-queues --capacity 3 --arrival-rate 1.5 --service-rates 1 0.6",
    "simulate pull --n 20 --routers 2 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5 --buffers 1 3 --messages stale"])
def test_the_other_models_run_through_simulate(capsys, words):
    status, out, _ = run(capsys, *words.split(), "--t-end", "2", "--num-times", "2", "--replicas", "30", "--json")
    result = json.loads(out)
    assert status == 0
    assert result["arrivals"] > 0
    assert 0 < result["mean_queue_length"][1] < 5


RUN = ["--t-end", "2", "--num-times", "2", "--replicas", "30", "--json"]
POOLS = "simulate supermarket --n 20 --d 2 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5".split()
RING = "simulate graph --graph ring --n 4 --d 2 --arrival-rate 0.7 --service-rates".split()


@pytest.mark.parametrize(("words", "buffers"), [
    ([*POOLS, "--buffers", "1", "inf", "--no-replacement"], (1, None)), ([*POOLS, "--buffer", "3"], (3, 3)),
    ([*POOLS[:8], "--service-rates", "2"], (None,))])
def test_pools_make_server_classes(capsys, monkeypatch, words, buffers):
    made = []
    monkeypatch.setattr(jaxq.SupermarketClasses, "clock", lambda model, clock=jaxq.SupermarketClasses.clock: made.append(model) or clock(model))
    status, out, _ = run(capsys, *words, *RUN)
    rates = (2.0,) if len(buffers) == 1 else (1.5, 0.5)
    pools = [jaxq.Pool(1 / len(buffers), rate, buffer) for rate, buffer in zip(rates, buffers, strict=True)]
    assert status == 0
    assert made[0] == jaxq.SupermarketClasses(20, pools, 2, 0.8, "--no-replacement" not in words)
    assert json.loads(out)["mean_queue_length"][1] > 0


def test_service_rates_of_vertices_from_words_or_a_file(capsys, tmp_path):
    (tmp_path / "rates.txt").write_text("0, 2\n1 1.5")
    outs = [json.loads(run(capsys, *RING, *rates, *RUN)[1]) for rates in (["0", "2", "1", "1.5"], [tmp_path / "rates.txt"])]
    same = jaxq.simulate(jaxq.GraphSupermarket(jaxq.graphs.ring(4), 2, 0.7, service_rates=[0, 2, 1, 1.5]), [0, 2], 0, replicas=30)
    for out in outs:
        assert out["mean_queue_length"] == same.mean_queue_length.tolist()


def test_study_writes_data_table_and_figure(capsys, tmp_path):
    status, out, err = run(capsys, *STUDY, "--out-dir", tmp_path / "study")
    assert (status, err) == (0, "")
    assert "slope of ln bias in ln n" in out
    assert sorted(p.name for p in (tmp_path / "study").iterdir()) == ["study.csv", "study.nc", "study.png"]
    status, out, _ = run(capsys, STUDY[0], "supermarket", *STUDY[1:], "--json")
    result = json.loads(out)
    assert set(result) == {"times", "rows", "slopes"}
    assert {"n", "eta", "arrival_rate", "T_mean", "T_stderr", "T_limit", "T_finite", "bias", "fluctuation"} <= set(result["rows"][0])
    assert np.shape(result["rows"][0]["T_mean"]) == (3, 8)
    assert set(result["slopes"]["bias"]) == {"slope", "stderr", "finite_eta", "asymptotic"}
    assert set(result["slopes"]["fluctuation"]) == {"slope", "stderr", "predicted"}


def test_study_reads_a_start_from_a_file_and_warns_of_alpha(capsys, tmp_path):
    (tmp_path / "start.txt").write_text("2, 4\n8 16")
    status, out, err = run(capsys, *STUDY, "--alpha", "0.6", "--start", tmp_path / "start.txt", "--json")
    assert status == 0
    assert err.startswith("jaxq: warning: alpha = 0.6 is outside (0, 1/2]")
    assert json.loads(out)["rows"][1]["T_limit"][0] == [2, 4, 8, 16, 32, 64, 128, 256]


NO_N = [word for word in SIMULATE if word not in ("--n", "200")]


@pytest.mark.parametrize(("words", "message"), [
    ([], "required but missing: COMMAND"), (["simulat"], "invalid choice: 'simulat'"), (["simulate", "market"], "invalid choice"),
    (NO_N, "required but missing: --n; see jaxq simulate supermarket --help"),
    ([*SIMULATE, "--replica", "5"], "got --replica 5; did you mean --replicas?"),
    ([*SIMULATE, "--n", "0"], "n must be an integer at least 1 and at most 2147483647; got 0"), ([*SIMULATE, "--n", "x"], "--n must be an integer; got 'x'"),
    ([*SIMULATE, "--d", "1.5"], "--d must be an integer; got '1.5'"), ([*SIMULATE, "--beta", "nan"], "--beta must be a finite number"),
    ([*SIMULATE, "--beta", "15"], "beta must be below eta"), ([*SIMULATE, "--t-end", "-1"], "--t-end must be a finite number above 0"),
    ([*SIMULATE, "--num-times", "0"], "--num-times must be an integer at least 1"),
    ([*SIMULATE, "--seed", "-1"], "integer seed with 0 <= seed"), ([*SIMULATE, "--arrival-rate", "0.5"], "give either --arrival-rate"),
    ([*SIMULATE, "--eta", "9"], "give one of alpha and eta"), ([*SIMULATE, "--d", "300", "--no-replacement"], "d must be at most 64"),
    ([*SIMULATE, "--d", "60", "--n", "50", "--no-replacement"], "d must be at most n without replacement"),
    ([*SIMULATE, "--out", "/nonexistent/x.nc"], "output needs a file in an existing folder"), ([*SIMULATE, "--out", "/"], "output needs"),
    ([*SIMULATE, "--replicas", "0"], "replicas must be an integer at least 1"), ([*SIMULATE, "--devices", "0"], "--devices must be"),
    ([*SIMULATE, "--plot", "/tmp/x.xyz"], "ending in .png, .pdf or .svg"), ([*SIMULATE, "--buffer", "0"], "buffer must be an integer"),
    (["ode", "supermarket", "--d", "2", "--t-end", "1"], "give either --arrival-rate"),
    (["ode", "supermarket", "--d", "2", "--beta", "1", "--t-end", "1"], "--alpha needs --n as well"),
    (["exact", "supermarket", "--n", "3", "--d", "2", "--arrival-rate", "0.5"], "an exact chain needs finitely many states"),
    (["exact", "two-queues", "--capacity", "2", "--arrival-rate", "1", "--plot", "x.png"], "--plot has no figure"),
    (["exact", "two-queues", "--capacity", "0.5", "--arrival-rate", "1"], "--capacity must be an integer; got '0.5'"),
    (["simulate", "pull", "--n", "3", "--routers", "1", "--arrival-rate", "0.5", "--fractions", ".5", ".5", "--t-end", "1",
      "--replicas", "2"], "fraction"),
    (["simulate", "pull", "--n", "4", "--routers", "1", "--arrival-rate", "0.5", "--buffers", "1", "2", "--t-end", "1",
      "--replicas", "2"], "one value per pool"),
    ([*POOLS, *RUN, "--buffer", "2", "--buffers", "1", "2"], "give either --buffer for all servers or --buffers for each pool"),
    ([*POOLS, *RUN, "--buffers", "1"], "one value per pool"), ([*POOLS, *RUN, "--fractions", ".5", ".4"], "must sum to 1"),
    ([*SIMULATE, "--fractions", ".5", ".5"], "--fractions, --service-rates and --buffers need --arrival-rate"),
    ([*RING, "1", "2", *RUN], "service_rates must be n = 4 finite rates"), ([*RING, "nowhere.txt", *RUN], "a text file of them; got 'nowhere.txt'"),
    ([*RING, "1", "x", *RUN], "or a text file of them; got '1 x'"),
    (["limit", "--d", "2", "--t-end", "1", "--initial", "inf"], "--initial must be a finite number"),
    ([*STUDY, "--n", "5", "7"], "the least n is"), ([*STUDY, "--start", "nowhere.txt"], "--start must be 'empty', 'fixed-point' or a file"),
    ([*STUDY, "--out-dir", "/proc/x"], "the results need a folder that can be written"), ([*STUDY, "--beta", "0"], "beta must be")])
def test_every_mistake_is_one_sentence_and_status_2(capsys, words, message):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("jaxq: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(ValueError, match="n must be an integer"):
        cli.main([*SIMULATE, "--n", "0", "--debug"])


@pytest.mark.parametrize("words", [["--help"], ["simulate", "supermarket", "--help"], ["study", "--help"], ["study", "supermarket", "-h"]])
def test_help_shows_an_example(capsys, words):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 0
    assert "usage: jaxq" in capsys.readouterr().out


def test_an_interrupted_study_keeps_the_sizes_it_finished(tmp_path):
    words = ["study", "--d", "2", "--beta", "1", "--n", "500", "100000000", "--t-end", "10", "--num-times", "3", "--replicas", "64", "--no-progress", "--out-dir"]
    # a shell may have started these tests with SIGINT ignored, which children inherit
    program = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
               "from jaxq.cli import main; sys.exit(main())")
    process = subprocess.Popen([sys.executable, "-c", program, *words, str(tmp_path)], stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    deadline = time.monotonic() + 120
    while not (tmp_path / "study.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "the sizes finished are in" in err
    assert "Traceback" not in err
    assert jaxq.load(tmp_path / "study.nc").n.values.tolist() == [500]
