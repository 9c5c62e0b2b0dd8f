"""Bulk: its numbers against SciPy, its batches against the chain tick by tick, its moments against the tick engine."""

import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, hypergeom

import jaxq
from jaxq import batch, bits
from jaxq.bulk import Bulk
from jaxq.engine import Engine
from jaxq.hypergeometric import hypergeometric, stirling, table_probability

UNLIKELY = 1e-6  # chance of a false alarm, of each chi-square test


def goodness(found, expected):
    """p-value of counts (a mapping) given expected counts; rare values are pooled. Values that cannot be are an error."""
    assert set(found) <= set(expected)
    common = [value for value in expected if expected[value] >= 10]
    seen, due = (np.array([counts.get(value, 0) for value in common], float) for counts in (found, expected))
    rest = sum(expected.values()) - due.sum()
    if rest >= 10:
        seen, due = np.append(seen, sum(found.values()) - seen.sum()), np.append(due, rest)
    return chi2.sf(np.sum((seen - due) ** 2 / due), seen.size - 1) if seen.size > 1 else 1.0


@pytest.fixture(scope="module")
def drawn():
    """`hypergeometric` and its probability, compiled once for 2**17 lanes."""
    with jax.enable_x64(True):
        yield jax.jit(hypergeometric), jax.jit(table_probability)


CASES = [(10, 4, 3), (10, 4, 10), (7, 0, 3), (7, 7, 3), (30, 29, 12), (2000, 700, 64), (10**6, 900_000, 500),
         (2**31 - 1, 10**9, 20_000), (2**31 - 1, 3, 40_000), (10**9, 40_000, 30_000)]


@pytest.mark.parametrize(("total", "good", "draws"), CASES)
def test_hypergeometric_numbers_follow_their_law(drawn, total, good, draws):
    lanes = 2**17
    with jax.enable_x64(True):
        u = jnp.asarray(np.random.default_rng(total + draws).random(lanes))
        numbers = np.asarray(drawn[0](u, *(jnp.full(lanes, float(value)) for value in (total, good, draws)))).astype(int)
    values = np.arange(numbers.min(), numbers.max() + 1)
    law = hypergeom(total, good, draws)
    expected = {int(value): lanes * law.pmf(value) for value in values if law.pmf(value) > 0}
    expected["beyond"] = max(0.0, lanes - sum(expected.values()))
    assert goodness(Counter(numbers.tolist()), expected) > UNLIKELY


def test_probabilities_keep_fourteen_digits(drawn):
    rng = np.random.default_rng(2)
    lanes = 2**17
    cases = np.zeros((4, lanes))
    cases[1:] = np.array([3, 2, 1])[:, None]
    few = 60
    for i in range(few):
        total = int(2 ** rng.uniform(1, 31))
        good, draws = int(rng.integers(0, total + 1)), min(total, int(2 ** rng.uniform(0, 11)))
        cases[:, i] = round(good * draws / total), total, good, draws
    with jax.enable_x64(True):
        got = np.asarray(drawn[1](*jnp.asarray(cases)))[:few]
    for value, (k, total, good, draws) in zip(got, cases[:, :few].T.astype(int).tolist(), strict=True):
        ways = math.comb(good, k) * math.comb(total - good, draws - k)
        exact = ways * 10**40 // math.comb(total, draws) / 10**40
        assert value == pytest.approx(exact, rel=1e-14)


def test_stirling_correction():
    with jax.enable_x64(True):
        got = np.asarray(stirling(jnp.arange(171.0)))
    for k in range(1, 171):
        assert got[k] == pytest.approx(math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi), abs=4e-13)
    assert got[1] == pytest.approx(1 - 0.5 * math.log(2 * math.pi), rel=1e-15)
    assert got[0] == 0


def runs(n, d, p):
    """Law of (slots, slots of whole ticks, arrivals, ticks) before the first repetition, over all orders of ticks."""
    law, partial = Counter(), {(0, 0, 0): 1.0}  # slots, arrivals, ticks, all distinct so far
    while partial:
        new = Counter()
        for (slots, arrivals, ticks), chance in partial.items():
            for kind, size, weight in ((1, d, p), (0, 1, 1 - p)):
                alive = chance * weight
                for k in range(size):
                    law[slots + k, slots, arrivals, ticks] += alive * (slots + k) / n
                    alive *= 1 - (slots + k) / n
                if alive > 0:
                    new[slots + size, arrivals + kind, ticks + 1] += alive
        partial = new
    return {event: chance for event, chance in law.items() if chance > 0}


@pytest.mark.parametrize(("n", "d"), [(6, 2), pytest.param(9, 3, marks=pytest.mark.slow), pytest.param(25, 1, marks=pytest.mark.slow)])
def test_run_length(n, d):
    model, lanes = Bulk(jaxq.Supermarket(n, d, 0.8)), 2**17
    tables = model.tables(model.clock())
    with jax.enable_x64(True):
        u, v, w = jnp.asarray(np.random.default_rng(3).random((3, lanes)))
        got = jax.jit(batch.run_length, static_argnums=1)(jax.tree.map(jnp.asarray, tables), d, u, v, w)
        rows = np.stack([np.asarray(part) for part in got]).astype(int).T
    law = runs(n, d, 0.8 / 1.8)
    assert sum(law.values()) == pytest.approx(1)
    assert goodness(Counter(map(tuple, rows.tolist())), {event: lanes * chance for event, chance in law.items()}) > UNLIKELY


def chain(model, start, ticks):
    """Law of the tail counts after so many ticks, by one-tick probabilities; arrivals that do not fit are lost."""
    n, d, p = model.n, model.d, model.arrival_rate / (1 + model.arrival_rate)
    law = {tuple(start): 1.0}
    for _ in range(ticks):
        after = Counter()
        for x, chance in law.items():
            least = (n, *x, 0)
            joins = [(y / n) ** d if model.replacement else math.comb(y, d) / math.comb(n, d) for y in least]
            for i in range(len(x) + 1):
                up, down = list(x), list(x)
                if i < len(x):
                    up[i] += 1
                if i > 0:
                    down[i - 1] -= 1
                after[tuple(up)] += chance * p * (joins[i] - joins[i + 1])
                after[tuple(down)] += chance * (1 - p) * (least[i] - least[i + 1]) / n
        law = {x: chance for x, chance in after.items() if chance > 0}
    return law


def check_law(model, start, takes, seed, lanes=2**17):
    """Of up to 3 segments, so that all calls for models of one d and as many levels share a program."""
    engine = Engine(Bulk(model), np.array(start), bits.key_words(seed), lanes, block=lanes // 8, segments=3)
    counts, counters = engine.advance(np.repeat(np.array(takes)[:, None], lanes, axis=1))
    law = chain(model, start + [0] * (engine.counts_rows - len(start)), sum(takes))
    expected = {x: lanes * chance for x, chance in law.items()}
    assert goodness(Counter(map(tuple, counts[-1].T.tolist())), expected) > UNLIKELY
    p = model.arrival_rate / (1 + model.arrival_rate)
    spread = math.sqrt(sum(takes) * p * (1 - p) / lanes)
    assert abs(counters["arrivals"][-1].mean() - sum(takes) * p) < 5 * spread


def test_batches_cut_at_saves_follow_the_chain():
    check_law(jaxq.Supermarket(6, 2, 0.7, levels=8), [4, 2], [1, 3, 2], 1)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "start", "ticks"), [
    (jaxq.Supermarket(1, 1, 1.3, levels=8), [1], 6),
    (jaxq.Supermarket(3, 2, 0.9, levels=8), [2, 1], 5),
    (jaxq.Supermarket(6, 2, 0.9, levels=8), [4, 2, 1], 4),
    (jaxq.Supermarket(30, 2, 0.9, levels=8), [20, 10, 3], 5),
    (jaxq.Supermarket(6, 1, 0.7, levels=8), [4, 2], 5),
    (jaxq.Supermarket(5, 3, 1.3, levels=8), [4, 2, 1], 5),
    (jaxq.Supermarket(6, 2, 1.3, replacement=False, levels=8), [4, 2, 1], 5),
    (jaxq.Supermarket(7, 3, 1.3, replacement=False, levels=8), [4, 2, 1], 5),
    (jaxq.Supermarket(5, 2, 1.3, buffer=2), [4, 2], 6),
], ids=str)
def test_batches_follow_the_chain(model, start, ticks):
    check_law(model, start, [ticks], 5)


@pytest.mark.slow
def test_one_path_for_any_replicas_blocks_devices_and_levels():
    def path(replicas, block, levels, devices=None):
        model = Bulk(jaxq.Supermarket(10_000, 2, 0.9, levels=levels))
        engine = Engine(model, np.array([9000, 7000, 4000]), bits.key_words(9), replicas, block=block, devices=devices, segments=2)
        return engine.advance(np.full((2, replicas), 3000))[0][:, :8, :3], engine

    whole, _ = path(8, 4, 8)
    other, engine = path(3, 1, 4, jax.local_devices()[:1])
    assert engine.model.model.levels == 8  # grown, from the same words
    np.testing.assert_array_equal(whole, other)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "replacement"), [(2, True), (3, False)])
def test_moments_meet_the_tick_engine(d, replacement):
    model, replicas, ticks = jaxq.Supermarket(1000, d, 0.9, replacement=replacement, levels=16), 4000, 8000
    moments = []
    for seed, form in ((1, model), (2, Bulk(model))):
        engine = Engine(form, None, bits.key_words(seed), replicas)
        queue = engine.advance(np.full((1, replicas), ticks))[0][0, :6].astype(float)
        centred = (queue - queue.mean(axis=1, keepdims=True)) ** 2
        moments.append([np.vstack([queue, centred]).mean(axis=1), np.vstack([queue, centred]).std(axis=1) / math.sqrt(replicas)])
    (one, error), (two, other) = moments
    assert np.all(np.abs(one - two) < 5 * np.hypot(error, other) + 1e-12)


def test_what_cannot_be_done_in_bulk_is_refused():
    with pytest.raises(ValueError, match="algorithm='bulk' needs the supermarket model with d at most 16"):
        Bulk(jaxq.Supermarket(100, 17, 0.9))
    with pytest.raises(ValueError, match=r"d \(d - 1\) <= n"):
        Bulk(jaxq.Supermarket(4, 3, 0.9, replacement=False))
    with pytest.raises(ValueError, match="clock must be the model's own"):
        Bulk(jaxq.Supermarket(4, 2, 0.5)).tables(7.0)


@pytest.mark.slow
def test_simulate_and_stationary_in_bulk():
    model = jaxq.Supermarket(4000, 2, 0.9)
    ticks, bulk = (jaxq.simulate(model, [1.0, 4.0], 1, replicas=256, algorithm=name) for name in ("exact", "bulk"))
    assert bulk.algorithm == "bulk"
    joint = np.hypot(ticks.tail_stderr, bulk.tail_stderr)[:, :4]
    assert np.all(np.abs(ticks.tail_mean - bulk.tail_mean)[:, :4] <= 5 * joint)  # no server has 4 at time 1
    assert bulk.arrivals == pytest.approx(0.9 * 4 * 4000 * 256, abs=5 * (0.9 * 4 * 4000 * 256) ** 0.5)
    assert bulk.departures == bulk.arrivals - round(bulk.mean_queue_length[-1] * 4000 * 256)
    fewer = jaxq.simulate(model, [1.0, 4.0], 1, replicas=5, algorithm="bulk", save="paths", devices=jax.devices()[:1], block=2)
    more = jaxq.simulate(model, [1.0, 4.0], 1, replicas=9, algorithm="bulk", save="paths")
    np.testing.assert_array_equal(fewer.paths, more.paths[:, :, :5])
    steady = jaxq.stationary(model, 3, replicas=64, algorithm="bulk", rel_error=1e-4)
    assert steady.control_gain > 100
    assert abs(steady.mean_queue_length - jaxq.refined(model).refined_mean_queue_length) < 4 * steady.mean_queue_length_stderr + 1e-5
