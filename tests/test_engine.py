"""The engine's integers: against plain Python, and the same on any number of replicas, blocks, chunks, calls and devices."""

import dataclasses
import os
import subprocess
import sys

import interpreter
import jax
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine

SYSTEMS = {
    "packed": jaxq.Supermarket(20, 2, 0.9),
    "packed distinct": jaxq.Supermarket(9, 3, 0.7, replacement=False),
    "buffer": jaxq.Supermarket(12, 2, 1.3, buffer=3),
    "narrow": jaxq.Supermarket(30, 9, 0.8),
    "narrow distinct": jaxq.Supermarket(7, 7, 0.8, replacement=False),
    "wide": jaxq.Supermarket(25, 3, 0.99999),
    "one server": jaxq.Supermarket(1, 1, 0.6),
    "wide one choice": jaxq.Supermarket(15, 1, 1.00001),
    "graph": jaxq.GraphSupermarket(jaxq.graphs.complete(20), 3, 0.8),
}

OFTEN_ENOUGH = ("buffer", "narrow distinct", "wide one choice", "one server")  # their invariance is a slow test


def final_counts(model, *, replicas=5, ticks=700, calls=1, start=0, seed=2**33 + 5, initial=None, **options):
    run = engine.Engine(model, initial, bits.key_words(seed), replicas, **options)
    run.ticks += start
    for _ in range(calls):
        counts = run.advance(np.full((1, replicas), ticks // calls))[0][0]
    assert (run.ticks[:replicas] == start + ticks).all()
    return counts


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "graph"])
def test_integers_are_those_of_plain_python(name):
    model = SYSTEMS[name]
    counts = final_counts(model, replicas=3)
    for replica in (0, 2):
        expected = interpreter.run(model, 2**33 + 5, replica, 700)
        assert counts[: len(expected), replica].tolist() == expected
        assert not counts[len(expected):, replica].any()


@pytest.mark.parametrize("start", [2**31 - 9, 2**32 - 9, 10**11, 2**52 - 50])
@pytest.mark.parametrize("name", ["packed", "wide"])
def test_tick_numbers_pass_every_32_bit_boundary(name, start):
    counts = final_counts(SYSTEMS[name], ticks=40, start=start)
    expected = interpreter.run(SYSTEMS[name], 2**33 + 5, 4, 40, start)
    assert counts[: len(expected), 4].tolist() == expected


def test_the_last_tick_number_is_guarded():
    with pytest.raises(ValueError, match=r"fewer than 2\*\*52 ticks"):
        final_counts(SYSTEMS["packed"], ticks=60, start=2**52 - 50)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in OFTEN_ENOUGH else []) for name in SYSTEMS])
def test_replicas_blocks_chunks_calls_and_devices_do_not_matter(name):
    model = SYSTEMS[name]
    wanted = final_counts(model)

    def same(counts):
        rows, replicas = max(len(counts), len(wanted)), min(counts.shape[1], 5)
        one, other = (np.pad(x[:, :replicas], ((0, rows - len(x)), (0, 0))) for x in (counts, wanted))
        np.testing.assert_array_equal(one, other)

    same(final_counts(model, replicas=1))
    same(final_counts(model, replicas=7, block=2))
    same(final_counts(model, replicas=1000))
    same(final_counts(model, chunk=1))
    same(final_counts(model, chunk=100, calls=7))
    same(final_counts(model, replicas=7, devices=jax.devices()[:1]))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_call_gives_no_more_ticks_than_counters_hold(rows):
    """Lanes of 16 bits also count the arrivals beyond the levels: 32767 ticks a call."""
    run = engine.Engine(SYSTEMS["packed"], None, bits.key_words(0), 2)
    assert run.longest == 2**15 - 1
    with pytest.raises(ValueError, match=r"at most 32767 ticks in one call of advance.* got 32768; use several calls"):
        run.advance(np.full((rows, 2), 2**15 // rows))
    wide = engine.Engine(SYSTEMS["buffer"], None, bits.key_words(0), 2)
    with pytest.raises(ValueError, match=r"at most 1073741824 ticks .* got 4294967296"):
        wide.advance(np.full((1, 2), 2**32))
    assert not run.ticks.any()
    assert not wide.ticks.any()


def test_segments_of_different_lengths_are_saved_where_they_end():
    model = SYSTEMS["packed"]
    run = engine.Engine(model, None, bits.key_words(3), 4)
    takes = np.array([[0, 5, 10, 100], [50, 0, 33, 1], [7, 7, 7, 7]])
    saved, _ = run.advance(takes)
    for row, total in enumerate(np.cumsum(takes, axis=0)):
        for replica in range(4):
            expected = interpreter.run(model, 3, replica, int(total[replica]))
            assert saved[row, : len(expected), replica].tolist() == expected


@pytest.mark.parametrize("name", ["packed", "wide", "graph"])
def test_the_number_of_levels_never_changes_a_path(name):
    """Too few levels at the start: the call is discarded and done again with more, with the same words."""
    model = SYSTEMS[name]
    small = engine.Engine(dataclasses.replace(model, levels=1), None, bits.key_words(1), 6)
    large = engine.Engine(dataclasses.replace(model, levels=64), None, bits.key_words(1), 6)
    for _ in range(3):
        takes = np.array([[300] * 6, [100] * 6])
        one, other = small.advance(takes)[0], large.advance(takes)[0]
        np.testing.assert_array_equal(one, other[:, : one.shape[1]])
        assert not other[:, one.shape[1]:].any()
    assert small.model.levels > 1
    assert large.model.levels == 64
    for counter, total in small.totals.items():
        np.testing.assert_array_equal(total, large.totals[counter])


def test_a_buffer_loses_what_plain_python_loses():
    run = engine.Engine(SYSTEMS["buffer"], None, bits.key_words(0), 2)
    counts = run.advance(np.full((1, 2), 900))[0][0]
    kinds = [interpreter.draw(SYSTEMS["buffer"], interpreter.words_of(0, 1, t, 1))[0] for t in range(900)]
    assert run.totals["arrivals"][1] == kinds.count(1)
    served = run.totals["arrivals"][1] - run.totals["lost"][1] - counts[:, 1].sum()
    assert 0 < served <= kinds.count(-1)
    assert run.totals["lost"][1] > 0


def test_counters_pass_32_bits():
    run = engine.Engine(SYSTEMS["packed"], None, bits.key_words(0), 2)
    run.advance(np.full((1, 2), 100))
    run.totals["arrivals"] += 2**31 - 10
    before = run.totals["arrivals"].copy()
    run.advance(np.full((1, 2), 1000))
    gained = run.totals["arrivals"] - before
    assert (run.totals["arrivals"] > 2**31).all()
    assert ((gained > 400) & (gained < 550)).all()


def test_a_sweep_compiles_once_per_shape():
    def sweep(n, rate, replicas=6):
        run = engine.Engine(jaxq.Supermarket(n, 2, rate, levels=12), None, bits.key_words(0), replicas)
        run.advance(np.full((2, replicas), n))
        return run.compile_seconds

    sweep(101, 0.9)
    assert [sweep(n, rate) for n, rate in ((102, 0.9), (1000, 0.5), (3000, 0.999))] == [0, 0, 0]
    assert sweep(101, 0.9, replicas=40) > 0


DIGEST = """
import hashlib, sys, jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
import jaxq
digest = hashlib.sha256()
for model in (jaxq.Supermarket(100, 2, .9), jaxq.Supermarket(100, 3, .9, replacement=False), jaxq.Supermarket(2 * 10**6, 2, .9),
              jaxq.GraphSupermarket(jaxq.graphs.complete(20), 2, .8)):
    result = jaxq.simulate(model, [0.1, 0.3], 7, replicas=9, save="paths")
    digest.update(result.paths.astype("<i4").tobytes())
print(digest.hexdigest())
"""


def test_x64_and_the_device_count_do_not_change_an_integer():
    def digest(devices, x64):
        done = subprocess.run([sys.executable, "-c", DIGEST, str(devices)], capture_output=True, text=True, check=True,
                              env=os.environ | {"JAX_ENABLE_X64": x64})
        return done.stdout.strip()

    assert len({digest(1, "0"), digest(2, "1")}) == 1


def test_rare_events_happen_as_often_as_they_should():
    """An event of probability 1e-6, 1.2e9 ticks: the count is within 5 standard deviations (p about 6e-7)."""
    model = jaxq.Supermarket(1000, 2, 1e-6)
    run = engine.Engine(model, None, bits.key_words(11), 4096)
    ticks = 30_000
    for _ in range(10):
        run.advance(np.full((1, 4096), ticks))
    mean = 10 * 4096 * ticks * 1e-6 / (1 + 1e-6)
    assert abs(run.totals["arrivals"].sum() - mean) < 5 * mean**0.5
