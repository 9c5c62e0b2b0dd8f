"""Long runs: numbers of ticks and counters past 32 bits and past the integers of a float, and a soak in small."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine
from jaxq.batch import batch
from jaxq.bulk import Bulk, _uniform

MODEL = jaxq.Supermarket(20, 2, 1.3, buffer=3)
TAKES = np.array([[5, 0, 90], [40, 33, 1]])


def advanced(start=0, **totals):
    run = engine.Engine(MODEL, None, bits.key_words(3), 3)
    run.advance(np.full((1, 3), 50))
    run.ticks += start
    for name, value in totals.items():
        run.totals[name] = run.totals[name] + value
    return run, run.advance(TAKES)


@pytest.mark.parametrize("past", [2**31 - 20, 2**32 - 20, 2**53 + 1, 2**62 + 1])
def test_totals_stay_whole_numbers(past):
    """Beyond 2**53 a float has no odd numbers."""
    (_, (saved, totals)), (run, (same, more)) = advanced(), advanced(arrivals=past, lost=past)
    np.testing.assert_array_equal(saved, same)
    for name in ("arrivals", "lost"):
        assert more[name].dtype == np.int64
        assert more[name].tolist() == [[value + past for value in row] for row in totals[name].tolist()]
        np.testing.assert_array_equal(run.totals[name][:3], more[name][-1])


def test_ticks_end_at_2_to_the_52_and_not_before():
    run, _ = advanced(start=2**52 - 51 - int(TAKES.sum(axis=0).max()))
    assert run.ticks[:3].tolist() == (2**52 - 1 - TAKES.sum(axis=0).max() + TAKES.sum(axis=0)).tolist()
    before = run.state, run.ticks.copy(), run.totals["arrivals"].copy()
    with pytest.raises(ValueError, match=r"can have fewer than 2\*\*52 ticks; got 4503599627370496; use a shorter") as caught:
        run.advance(np.ones((1, 3), int))
    assert "\n" not in str(caught.value)
    assert run.state is before[0]
    np.testing.assert_array_equal(run.ticks, before[1])
    np.testing.assert_array_equal(run.totals["arrivals"], before[2])


@pytest.mark.parametrize("save", ["moments", "paths"])
def test_results_add_counters_as_integers(save, monkeypatch):
    advance = engine.Engine.advance

    def later(self, takes):
        saved, totals = advance(self, takes)
        return saved, {name: total + (2**53 + 1) for name, total in totals.items()}

    plain = jaxq.simulate(MODEL, [1.0, 4.0], 3, replicas=3, save=save)
    monkeypatch.setattr(engine.Engine, "advance", later)
    result = jaxq.simulate(MODEL, [1.0, 4.0], 3, replicas=3, save=save)
    for name in ("arrivals", "lost"):
        assert result.counters[name] == plain.counters[name] + 3 * (2**53 + 1)
        assert type(result.counters[name]) is int
    assert result.arrivals == result.counters["arrivals"]
    assert result.departures == plain.departures


@pytest.mark.slow
def test_batches_pass_a_32_bit_boundary():
    """Batches from 2**32 - 60 on: their words by Python's integers, batch by batch."""
    model, start, ticks = Bulk(jaxq.Supermarket(500, 2, 0.9, levels=16)), 2**32 - 60, 200
    run = engine.Engine(model, [300, 100], bits.key_words(3), 2)
    run.ticks += start
    found = run.advance(np.full((1, 2), ticks))[0][0]
    k0, k1 = bits.stream(*(key[:2] for key in run.keys), np.uint32(0), bits.BULK)
    with jax.enable_x64(True):
        step = jax.jit(lambda tables, x, left, b0, b1: batch(model.model, tables, x, left, lambda number: _uniform(
            *bits.threefry(b0, b1, jnp.asarray(number, jnp.uint32), np.uint32(0)))))
        for replica in range(2):
            at, again, crossed = start, 0, 0
            x = np.zeros((17, 1))
            x[:2, 0] = 300, 100
            while at < start + ticks:
                words = np.uint32(at % 2**32), np.uint32((at >> 32) << 8 | again)
                x, _, used = step(run.tables, x, np.array([float(start + ticks - at)]),
                                  *bits.threefry(k0[replica: replica + 1], k1[replica: replica + 1], *words))
                crossed += at < 2**32 <= at + int(used[0])
                at, again = at + int(used[0]), again + 1 if used[0] == 0 else 0
            assert crossed == 1
            np.testing.assert_array_equal(found[:, replica], np.asarray(x)[:-1, 0])


@pytest.mark.slow
def test_a_soak_in_small(tmp_path):
    """The bench itself by 4e9 ticks, a program of its own because of its memory: it fails where a check of it does."""
    out = tmp_path / "soak.md"
    bench = Path(__file__).parent.parent / "bench" / "soak.py"
    done = subprocess.run([sys.executable, bench, "--ticks", "4e9", "--out", out], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    text = out.read_text()
    start, middle, end = map(float, re.search(r"the last: ([\d.]+), ([\d.]+), ([\d.]+) MiB", text).groups())
    assert start <= middle <= end <= middle + 2
    first, last = map(int, re.search(r"from tick (\d+) to (\d+)", text).groups())
    assert first < 2**32 < last
    assert len(re.findall(r"\| -?\d+\.\d \|$", text, re.MULTILINE)) == 3


@pytest.mark.slow
def test_a_soak_shorter_than_its_warm_up_is_refused():
    bench = Path(__file__).parent.parent / "bench" / "soak.py"
    done = subprocess.run([sys.executable, bench, "--ticks", "1e9"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("--ticks must be at least 1.6e+09, after the warm-up; got 1e+09")
