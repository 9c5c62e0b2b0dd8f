"""PULL: conservation, and the same integers on any number of replicas, blocks, devices and levels."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pull_protocol import MODELS

from jaxq import bits, engine
from jaxq.models.pools import Pool
from jaxq.models.pull import Pull


def follow(model, initial=None, replicas=6, ticks=400, seed=4, calls=1, **options):
    """Counts and counters' totals after calls * 8 segments, (segments, ..., replicas), and the first counts."""
    run = engine.Engine(model, initial, bits.key_words(seed), replicas, **options)
    first = run.advance(np.zeros((1, replicas), int))[0][0]
    saved = [run.advance(np.full((8 // calls, replicas), ticks // 8)) for _ in range(calls)]
    rows = max(counts.shape[1] for counts, _ in saved)
    assert all(counts.shape[1] == rows for counts, _ in saved)
    return run.model, first, np.concatenate([counts for counts, _ in saved]), {
        name: np.concatenate([totals[name] for _, totals in saved]) for name in saved[0][1]}


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.data())
def test_nothing_is_lost_but_what_is_counted(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    pools = [Pool(size / sum(sizes), data.draw(st.sampled_from([0.4, 1.0, 2.0])),
                  data.draw(st.sampled_from([1, 2, 3, None]))) for size in sizes]
    model = Pull(sum(sizes), pools, data.draw(st.integers(1, 3)), data.draw(st.sampled_from([0.5, 1.0])),
                 data.draw(st.sampled_from(["withdraw", "stale"])))
    initial = [[data.draw(st.integers(0, size))] for size in sizes]
    first_model, _ = model.init(initial, tuple(np.zeros((2, 1), np.uint32)))
    model, first, saved, totals = follow(model, initial)
    present = first_model.tail(first).sum(axis=0)
    assert (present == sum(map(sum, initial))).all()
    assert (first_model.outstanding(first).sum(axis=(0, 1)) == model.n - present).all()
    for counts, *total in zip(saved, *(totals[name] for name in ("arrivals", "waited", "lost", "messages")), strict=True):
        arrivals, waited, lost, messages = total
        everyone, tail, length = model.occupancy(counts), model.tail(counts), model.classes.length
        assert (everyone >= 0).all()
        assert (np.diff(np.vstack([np.full_like(tail[:1], model.n), tail]), axis=0) <= 0).all()
        idle = everyone[length == 0].sum(axis=0)
        outstanding = model.outstanding(counts).sum(axis=(0, 1))
        # all idle servers were made so by a service that sent a message, except in stale where the message may be an old one
        if model.messages == "withdraw":
            assert (outstanding == idle).all()
            assert (messages == arrivals - waited - lost + idle - (model.n - present)).all()
        else:
            assert (outstanding >= idle).all()
        assert (waited + lost <= arrivals).all()
        np.testing.assert_array_equal(tail[0], model.n - idle)
        np.testing.assert_allclose(model.busy(counts) * model.servers[:, None],
                                   [everyone[(length > 0) & (model.classes.pool == j)].sum(axis=0) for j in range(len(sizes))])
    assert (totals["arrivals"][-1] > 0).all()


def test_customers_are_conserved_from_the_service_side():
    """Services counted by hand from single ticks: present + departures = arrivals - lost."""
    model = MODELS["stale, three routers"]
    run = engine.Engine(model, None, bits.key_words(2), 3)
    before, departures = np.zeros(3, int), np.zeros(3, int)
    for _ in range(40):
        counts, totals = run.advance(np.ones((8, 3), int))
        present = np.array([run.model.tail(c).sum(axis=0) for c in counts])
        departures += (np.diff(np.vstack([before[None], present]), axis=0) == -1).sum(axis=0)
        before = present[-1]
    assert (totals["arrivals"][-1] - totals["lost"][-1] - departures == before).all()
    assert (departures > 20).all()


def same(one, other, replicas):
    for a, b in ((one[1], other[1]), (one[2], other[2])):
        np.testing.assert_array_equal(a[..., :replicas], b[..., :replicas])
    for name, total in one[3].items():
        np.testing.assert_array_equal(total[:, :replicas], other[3][name][:, :replicas])


@pytest.mark.parametrize("name", ["three pools", "many servers, stale"])
def test_replicas_blocks_chunks_calls_and_devices_do_not_matter(name):
    model = dataclasses.replace(MODELS[name], levels=16)
    wanted = follow(model, replicas=7)
    same(wanted, follow(model, replicas=1), 1)
    same(wanted, follow(model, replicas=1000), 7)
    same(wanted, follow(model, replicas=7, block=2, chunk=5, calls=4, devices=jax.devices()[:1]), 7)
    with jax.enable_x64(not jax.config.jax_enable_x64):
        same(wanted, follow(model, replicas=7), 7)


@pytest.mark.parametrize("messages", ["withdraw", "stale"])
def test_the_number_of_levels_never_changes_a_path(messages):
    pools = [Pool(0.4, 0.8), Pool(0.2, 0.5, 2), Pool(0.4, 0.6)]
    small, _, few, few_totals = follow(Pull(5, pools, 2, 0.9, messages, levels=4), ticks=120)
    large, _, many, many_totals = follow(Pull(5, pools, 2, 0.9, messages, levels=32), ticks=120)
    assert 4 < small.levels <= large.levels
    rows = large.classes.length <= np.array(small.depths)[large.classes.pool]
    everyone = np.array([large.occupancy(counts) for counts in many])
    np.testing.assert_array_equal(np.array([small.occupancy(counts) for counts in few]), everyone[:, rows])
    assert not everyone[:, ~rows].any()
    for name, total in few_totals.items():
        np.testing.assert_array_equal(total, many_totals[name])


def test_running_out_of_levels_stays_marked_when_counters_are_zeroed():
    model = MODELS["no buffer"]
    counts = np.zeros((model.classes.kept.size, 2), np.int32)
    counts[0] = model.n, 0  # everybody at the last level in one replica, nobody in the other
    state, tables = model.state_of(counts), model.tables(model.clock())
    mark = (jnp.asarray([0, 0]), jnp.asarray([0, 0]), ())
    counters, state = model.counters(model.apply(tables, state, mark))
    assert np.asarray(model.overflow(state)).tolist() == [True, False]
    assert {name: np.asarray(value).tolist() for name, value in counters.items()} == {
        "arrivals": [1, 1], "waited": [0, 0], "lost": [0, 0], "messages": [0, 0]}
    assert not any(np.asarray(value).any() for value in model.counters(state)[0].values())


def test_counts_restart_the_same_state():
    for model in (MODELS["two pools"], dataclasses.replace(MODELS["stale, three routers"], levels=16)):
        grown, _, saved, _ = follow(model, replicas=2)
        again, state = model.init(saved[-1][:, 1], tuple(np.zeros((2, 3), np.uint32)))
        assert again.levels == grown.levels
        np.testing.assert_array_equal(np.asarray(again.counts(state)), np.repeat(saved[-1][:, 1:], 3, axis=1))
