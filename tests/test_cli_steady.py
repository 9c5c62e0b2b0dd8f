"""The commands about the steady state: keys, tables, files, warnings and mistakes."""

import json

import numpy as np
import pytest

import jaxq
from jaxq import cli

STATIONARY = ["stationary", "supermarket", "--n", "3", "--d", "2", "--arrival-rate", "0.8", "--buffer", "12", "--replicas", "64"]


pytestmark = pytest.mark.usefixtures("running_jax")


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_stationary_prints_the_json_of_the_same_run_in_python(capsys):
    status, out, err = run(capsys, *STATIONARY, "--rel-error", "0.02", "--json")
    result = json.loads(out)
    assert (status, err) == (0, "")
    same = jaxq.stationary(jaxq.Supermarket(3, 2, 0.8, buffer=12), 0, replicas=64, rel_error=0.02)
    for name in ("mean_queue_length", "mean_response_time", "p_wait", "p_block"):
        assert result[name] == {"mean": getattr(same, name), "stderr": getattr(same, f"{name}_stderr")}
    assert [level["mean"] for level in result["tail"]] == same.tail.tolist()
    assert set(result) >= {"warmup", "horizon", "rel_error", "converged", "events", "seconds"}
    assert result["converged"] is True


def test_stationary_prints_a_table_and_writes_files(capsys, tmp_path):
    status, out, _ = run(capsys, *STATIONARY, "--rel-error", "0.02", "--out", tmp_path / "run.nc", "--plot", tmp_path / "run.png")
    assert status == 0
    assert out.startswith("mean queue length")
    assert "+-" in out.splitlines()[0]
    data = jaxq.load(tmp_path / "run.nc")
    assert data.replica_tail.shape[0] == 64
    assert json.loads(data.attrs["model"])["n"] == 3
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_a_limit_is_reported_on_stderr(capsys):
    status, out, err = run(capsys, *STATIONARY, "--rel-error", "1e-6", "--max-events", "1e6", "--json")
    assert status == 0
    assert json.loads(out)["converged"] is False
    assert err.startswith("jaxq: warning: stderr / mean")
    assert len(err.strip().splitlines()) == 1


def test_pull_adds_its_own_measures(capsys):
    _, out, _ = run(capsys, "stationary", "pull", "--n", 4, "--routers", 1, "--arrival-rate", 0.8, "--fractions", .5, .5,
                    "--service-rates", 1.5, .5, "--buffers", 1, 3, "--replicas", 64, "--rel-error", 0.02, "--json")
    result = json.loads(out)
    assert len(result["busy"]) == 2
    assert 0 < result["messages_per_customer"]["mean"] < 1


def test_meanfield_meets_the_stored_constants(capsys, reference):
    case = next(row for row in reference("meanfield") if (row["d"], row["lambda"]) == (2, 0.9))
    _, out, _ = run(capsys, "meanfield", "supermarket", "--d", 2, "--arrival-rate", 0.9, "--n", 100, "--no-replacement", "--json")
    result = json.loads(out)
    assert result["V"] == pytest.approx(case["V_without"], abs=1e-5)
    assert result["mean_queue_length"] == pytest.approx(case["Q_inf"], abs=1e-5)
    assert result["refined_mean_queue_length"] == pytest.approx(case["Q_inf"] + case["V_without"] / 100, abs=1e-5)
    np.testing.assert_allclose(result["fixed_point"][:3], [0.9, 0.9**3, 0.9**7], rtol=1e-12)
    status, out, _ = run(capsys, "meanfield", "supermarket", "--d", 2, "--arrival-rate", 0.9, "--n", 100)
    assert (status, out.split()[:2]) == (0, ["i", "S_i"])


@pytest.mark.parametrize(("words", "message"), [
    (["stationary", "supermarket", "--n", "10", "--d", "2", "--arrival-rate", "1"], "needs arrival_rate below 1 per server, or a buffer"),
    ([*STATIONARY, "--rel-error", "0"], "rel_error must be a finite number above 0"),
    ([*STATIONARY, "--rel-errors", "0.1"], "did you mean --rel-error?"),
    ([*STATIONARY, "--warmup", "-1"], "warmup must be a finite number at least 0"),
    (["meanfield", "supermarket", "--d", "2", "--arrival-rate", "0.9"], "required but missing: --n"),
    (["meanfield", "supermarket", "--d", "2", "--arrival-rate", "1.1", "--n", "10"], "needs a load below 1"),
    (["meanfield", "pull", "--n", "10", "--routers", "2", "--arrival-rate", "0.5"], "isolated and stable"),
])
def test_mistakes_are_one_sentence(capsys, words, message):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
