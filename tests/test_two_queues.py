"""Two parallel queues: the one-tick contract, plain Python integers, conservation and the exact stationary values."""

import dataclasses
from fractions import Fraction

import interpreter
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine
from jaxq.models.two_queues import TwoQueues
from jaxq.testing import check_model

SYSTEMS = {
    "equal": TwoQueues(3, 1.6),
    "unequal": TwoQueues(4, 1.5, (1.0, 0.6)),
    "lopsided": TwoQueues(2, 3.0, (0.1, 2.0)),
    "one place": TwoQueues(1, 0.7, (1.0, 0.4)),
    "unbounded": TwoQueues(None, 1.2, (0.5, 1.0)),
}


def law(model):
    """One tick written by hand: {next lengths: probability}."""
    total = model.arrival_rate + sum(model.service_rates)

    def transitions(q):
        after = {}

        def add(target, probability):
            after[target] = after.get(target, 0.0) + probability

        shorter = [i for i in (0, 1) if q[i] == min(q)]
        for i in shorter:
            full = model.capacity is not None and q[i] >= model.capacity
            target = tuple(int(q[k]) + (k == i and not full) for k in (0, 1))
            add(target, model.arrival_rate / total / len(shorter))
        for i in (0, 1):
            add(tuple(int(q[k]) - (k == i and q[i] > 0) for k in (0, 1)), model.service_rates[i] / total)
        return after

    return transitions


def lengths(state):
    return state[0]


def states(model):
    """Empty, full, one below the capacity, ties, one queue empty and random lengths."""
    rng, top = np.random.default_rng(3), model.capacity or 40
    some = [(0, 0), (top, top), (top - 1, top - 1), (top, top - 1), (top - 1, top), (0, top), (top, 0), (1, 1), (0, 1), (1, 0)]
    return [np.array(q) for q in some] + [rng.integers(0, top + 1, 2) for _ in range(6)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_one_tick_follows_the_hand_written_law(name):
    model = SYSTEMS[name]
    check_model(model, states(model), law=law(model), view=lengths, lanes=2**18)


@dataclasses.dataclass(frozen=True)
class Unfair(TwoQueues, leaves=("capacity", "arrival_rate", "service_rates")):
    """Sends every tie to queue 1."""

    def draw(self, tables, words):
        return TwoQueues.draw(self, tables, (words[0], words[1] & np.uint32(0xFFFFFFFE)))


@dataclasses.dataclass(frozen=True)
class Swapped(TwoQueues, leaves=("capacity", "arrival_rate", "service_rates")):
    """Serves the other queue."""

    def apply(self, tables, state, mark):
        return TwoQueues.apply(self, tables, state, jnp.where(mark < 0, np.int32(-3) - mark, mark))


def test_broken_systems_fail_the_contract():
    model = SYSTEMS["unequal"]
    for broken, start in ((Unfair, (2, 2)), (Swapped, (1, 3))):
        other = broken(4, 1.5, (1.0, 0.6))
        with pytest.raises(AssertionError, match=r"does not follow the law|probability 0"):
            check_model(other, [np.array(start)], law=law(model), view=lengths, lanes=2**16)


def plain_python(model, seed, replica, ticks, q=(0, 0)):
    """(lengths, arrivals, lost) of one replica in Python integers."""
    q, arrivals, lost = list(q), 0, 0
    rates = [Fraction(rate) for rate in (model.arrival_rate, *model.service_rates)]
    for tick in range(ticks):
        hi, lo = interpreter.words_of(seed, replica, tick, 1)
        fraction = Fraction(hi << 32 | lo, 2**64) * sum(rates)
        if fraction < rates[0]:
            arrivals += 1
            to = q.index(min(q)) if q[0] != q[1] else lo % 2
            if model.capacity is not None and q[to] == model.capacity:
                lost += 1
            else:
                q[to] += 1
        else:
            server = 0 if fraction < rates[0] + rates[1] else 1
            q[server] = max(0, q[server] - 1)
    return q, arrivals, lost


def run(model, *, replicas=5, ticks=600, calls=1, seed=2**35 + 1, initial=None, **options):
    ensemble = engine.Engine(model, initial, bits.key_words(seed), replicas, **options)
    for _ in range(calls):
        ensemble.advance(np.full((1, replicas), ticks // calls))
    return ensemble, np.asarray(ensemble.state[0])[:, :replicas]


@pytest.mark.parametrize("name", SYSTEMS)
def test_integers_are_those_of_plain_python(name):
    start = (1, 0)
    ensemble, q = run(SYSTEMS[name], replicas=3, initial=np.array(start))
    for replica in (0, 2):
        expected, arrivals, lost = plain_python(SYSTEMS[name], 2**35 + 1, replica, 600, start)
        assert q[:, replica].tolist() == expected
        assert ensemble.totals["arrivals"][replica] == arrivals
        assert ensemble.totals["lost"][replica] == lost
        assert (lost > 0) == (name != "unbounded")


def test_replicas_chunks_calls_devices_and_x64_do_not_matter():
    model = SYSTEMS["unequal"]
    wanted = run(model)[1]
    for options in ({"replicas": 1}, {"replicas": 7, "block": 2}, {"replicas": 1000}, {"chunk": 1}, {"chunk": 100, "calls": 6},
                    {"replicas": 7, "devices": jax.devices()[:1]}):
        found = run(model, **options)[1][:, :5]
        np.testing.assert_array_equal(found, wanted[:, : found.shape[1]])
    with jax.enable_x64(not jax.config.jax_enable_x64):
        np.testing.assert_array_equal(run(model)[1], wanted)


def test_the_number_of_levels_never_changes_a_path():
    few, found = run(dataclasses.replace(SYSTEMS["unbounded"], levels=1))
    many, wanted = run(SYSTEMS["unbounded"])
    np.testing.assert_array_equal(found, wanted)
    assert few.model.levels > 1
    np.testing.assert_array_equal(few.totals["arrivals"], many.totals["arrivals"])


def test_types_and_ties_have_their_share_of_the_words():
    """The tie is the lowest bit of a word whose other bits decide the type: thresholds are even."""
    model = TwoQueues(5, 1e-9, (0.3, 1.7))
    tables, total = model.tables(model.clock()), Fraction(model.clock())
    reached = Fraction(0)
    for name, rate in (("arrival", 1e-9), ("first", 0.3), ("second", 1.7)):
        reached += Fraction(rate)
        bound = int(tables[name][0]) << 32 | int(tables[name][1])
        assert abs(bound - reached / total * 2**64) <= 2
        assert bound % 2 == 0
    at = np.array([0, 1, 2, 3], np.uint32)
    assert np.asarray(model.draw(tables, (jnp.zeros(4, jnp.uint32), jnp.asarray(at)))).tolist() == [1, 2, 1, 2]


def test_a_faster_clock_gives_null_ticks():
    model = SYSTEMS["unequal"]
    tables = model.tables(2 * model.clock())
    words = tuple(jnp.asarray(w) for w in np.random.default_rng(0).integers(0, 2**32, (2, 100_000), dtype=np.uint32))
    mark = np.asarray(model.draw(tables, words))
    for kind, p in ((0, 0.5), (1, 0.75 / 6.2), (2, 0.75 / 6.2), (-1, 1 / 6.2), (-2, 0.6 / 6.2)):
        assert abs((mark == kind).mean() - p) < 5 * (p * (1 - p) / 100_000) ** 0.5
    with pytest.raises(ValueError, match="clock must be at least"):
        model.tables(1.0)


def test_customers_are_conserved_and_tails_are_per_server():
    result = jaxq.simulate(SYSTEMS["unequal"], [3.0, 40.0], 3, replicas=50, initial=np.array([4, 1]), save="paths")
    total = result.paths.sum(axis=1)
    assert result.arrivals - result.counters["lost"] - result.departures == total[-1].sum() - 5 * 50
    assert result.counters["lost"] > 0
    np.testing.assert_allclose(result.mean_queue_length, total.mean(axis=1) / 2)
    assert result.paths.max() <= 2
    assert np.all(np.diff(result.paths, axis=1) <= 0)
    assert result.paths[:, 4:].sum() == 0


@pytest.mark.parametrize("case", [1, 3])
def test_simulation_meets_the_exact_values(case, reference):
    """Within 5 standard errors over replicas (a failure by chance: about 6e-7 a number), all relative errors <= 1e-2."""
    exact = reference("two_queues")[case]
    model = TwoQueues(exact["capacity"], exact["arrival_rate"], exact["service_rates"])
    ts, replicas = 40 + 8.0 * np.arange(33), 8192
    result = jaxq.simulate(model, ts, 12 + case, replicas=replicas, save="paths")
    arrivals, lost = (result.counter_paths[name][-1] - result.counter_paths[name][0] for name in ("arrivals", "lost"))
    ratio = lost.sum() / arrivals.sum()
    found = [(ratio, np.std(lost - ratio * arrivals, ddof=1) / arrivals.mean() / replicas**0.5, exact["blocking"])]
    for values, target in ((result.paths.sum(axis=1), exact["mean_customers"]), (result.paths[:, 0] == 0, exact["p_empty"])):
        each = values.mean(axis=0)
        found.append((each.mean(), np.std(each, ddof=1) / replicas**0.5, target))
    for mean, error, target in found:
        assert error <= 1e-2 * target
        assert abs(mean - target) < 5 * error


@pytest.mark.parametrize(("arguments", "message"), [
    ({"capacity": 0}, "capacity must be an integer at least 1"), ({"capacity": 2.5}, "capacity must be an integer"),
    ({"capacity": float("nan")}, "capacity must be an integer"), ({"arrival_rate": 0}, "arrival_rate must be a finite number"),
    ({"arrival_rate": "x"}, "arrival_rate"), ({"service_rates": (1.0,)}, "service_rates must be two rates"),
    ({"service_rates": 1.0}, "service_rates must be two rates"), ({"service_rates": (1.0, 0.0)}, r"service_rates\[1\] must be"),
    ({"levels": 0}, "levels must be")])
def test_bad_parameters_are_refused_with_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        TwoQueues(**{"capacity": 3, "arrival_rate": 1.0} | arguments)
    assert "\n" not in str(caught.value)


def test_infinite_capacity_is_none():
    assert TwoQueues(float("inf"), 1.0) == TwoQueues(None, 1.0)


@pytest.mark.parametrize("initial", [[1], [1, 2, 3], [-1, 0], [5, 0], [0.5, 0.5], "ab"])
def test_impossible_starts_are_refused(initial):
    with pytest.raises(ValueError, match="initial must be"):
        jaxq.simulate(TwoQueues(4, 1.0), [1.0], 0, replicas=1, initial=initial)


def test_it_has_no_mean_field():
    with pytest.raises(ValueError, match="needs a population model"):
        jaxq.mean_field(TwoQueues(4, 1.0), [1.0])
