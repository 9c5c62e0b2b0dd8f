"""Join the shortest of d sampled queues with pools: the protocol server by server, the contract, exact values, the words."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import Pool, exact
from jaxq.models.classes import SupermarketClasses
from jaxq.testing import check_model

UNBOUNDED = [Pool(0.25, 1.5), Pool(0.75, 0.6)]
MIXED = [Pool(0.25, 2.0, 2), Pool(0.75, 0.5)]
FULL = [Pool(0.25, 0.5, 1), Pool(0.75, 1.5, 3)]
CASES = {
    "one choice": SupermarketClasses(12, MIXED, 1, 0.7),
    "two": SupermarketClasses(12, UNBOUNDED, 2, 0.7),
    "two distinct": SupermarketClasses(16, MIXED, 2, 0.7, False),
    "three, mixed": SupermarketClasses(40, MIXED, 3, 0.8),
    "three distinct, buffers": SupermarketClasses(24, FULL, 3, 1.4, False),
    "eight, three pools": SupermarketClasses(20, [Pool(0.1, 3.0), Pool(0.5, 0.4, 2), Pool(0.4, 1.0)], 8, 0.6),
    "wide": SupermarketClasses(4_000_000, MIXED, 2, 0.7, False),
}


def states(model):
    """Empty, full, one below the buffers and random tail counts, 20 in all."""
    rng = np.random.default_rng(1)
    tops = [buffer or 4 for buffer in model.buffers]
    full = [np.full(top, size) for top, size in zip(tops, model.servers, strict=True)]
    below = [np.append(tail[:-1], 0) for tail in full]
    found = [None, full, below]
    while len(found) < 20:
        sizes = zip(tops, model.servers, strict=True)
        found.append([np.sort(rng.integers(0, size + 1, rng.integers(1, top + 1)))[::-1] for top, size in sizes])
    return found


@pytest.mark.parametrize("name", CASES)
def test_one_tick_follows_the_rates(name):
    assert check_model(CASES[name], states(CASES[name]), seed=5, lanes=2**15).states == 20


def test_the_contract_in_many_lanes():
    for replacement in (True, False):
        model = SupermarketClasses(12, MIXED, 3, 0.9, replacement)
        check_model(model, [[[2, 1], [6, 3]], [[3, 3], [9, 4, 1]]], lanes=2**19)


def test_reached_states_follow_the_rates():
    check_model(SupermarketClasses(12, MIXED, 2, 0.6), lanes=2**14)


class Biased(SupermarketClasses, leaves=("n", "pools", "arrival_rate")):
    """Takes the first shortest of the list; with Floyd's rule its order is not uniform."""

    def draw(self, tables, words):
        *mark, tie = super().draw(tables, words)
        return *mark, tie & np.uint32(0)


def test_a_broken_choice_among_ties_fails_the_contract():
    check_model(Biased(4, FULL, 2, 0.9), [None], lanes=2**15)  # an independent list has a uniform order
    with pytest.raises(AssertionError, match="does not follow the law"):
        check_model(Biased(4, FULL, 2, 0.9, False), [None], lanes=2**15)


# the law server by server

def tails_of(model, lengths):
    ends = np.cumsum((0, *model.servers))
    return [[sum(length > i for length in lengths[a:b]) for i in range(depth)]
            for (a, b), depth in zip(itertools.pairwise(ends), model.depths, strict=True)]


def protocol(model, lengths):
    """(rate, lengths after) of every event, by walking through every list of d servers and every place of it."""
    n, d = model.n, model.d
    pool = np.repeat(np.arange(len(model.pools)), model.servers)
    samples = list(itertools.product(range(n), repeat=d) if model.replacement else itertools.permutations(range(n), d))
    for sample in samples:
        least = min(lengths[server] for server in sample)
        ties = [server for server in sample if lengths[server] == least]
        for server in ties:
            if least != model.buffers[pool[server]]:
                after = [length + (k == server) for k, length in enumerate(lengths)]
                yield Fraction(n) * Fraction(model.arrival_rate) / len(samples) / len(ties), after
    for server, length in enumerate(lengths):
        if length:
            yield Fraction(model.pools[pool[server]].rate), [m - (k == server) for k, m in enumerate(lengths)]


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_rates_are_those_of_the_servers(d, replacement):
    third = [Pool(1 / 3, 2.0, 2), Pool(2 / 3, 0.5)]
    model, rng = SupermarketClasses(6, third, d, 0.75, replacement, levels=4), np.random.default_rng(d)
    law = jax.jit(lambda x: model.rates(x, 1 / 6))
    for case in range(8):
        lengths = [0] * 6 if case == 0 else [*rng.integers(0, 3, 2).tolist(), *rng.integers(0, 4, 4).tolist()]
        start, expected, found = np.concatenate(tails_of(model, lengths)), Counter(), Counter()
        for rate, after in protocol(model, lengths):
            expected[tuple((np.concatenate(tails_of(model, after)) - start).tolist())] += rate
        with jax.enable_x64(True):
            rates = np.asarray(law(start / 6)) * 6
        for jump, rate in zip(model.jumps, rates, strict=True):
            found[tuple(jump.tolist())] += float(rate)
        assert all(math.isclose(found[key], expected[key], rel_tol=1e-12, abs_tol=1e-14) for key in {*found, *expected})


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("buffer", [None, 5])
def test_one_pool_of_rate_one_is_the_supermarket_model(buffer, replacement):
    model = SupermarketClasses(30, [Pool(1.0, 1.0, buffer)], 3, 0.8, replacement, 5)
    plain = jaxq.Supermarket(30, 3, 0.8, replacement, buffer, levels=5)
    np.testing.assert_array_equal(model.jumps, plain.jumps)
    assert model.clock() == plain.clock()
    ours, theirs = jax.jit(model.rates), jax.jit(plain.rates)
    with jax.enable_x64(True):
        for counts in ([0] * 5, [30] * 5, [20, 7, 2, 1, 0], [30, 29, 4, 4, 2]):
            for inverse_n in (1 / 30, 0.0):
                x = np.array(counts) / 30
                np.testing.assert_allclose(ours(x, inverse_n), theirs(x, inverse_n), rtol=1e-12, atol=1e-15)
    if buffer is None:
        np.testing.assert_allclose(model.guess(), plain.guess(), rtol=1e-12)
    if replacement:  # the mean field is the same
        np.testing.assert_allclose(jaxq.fixed_point(model).tail[:5], jaxq.fixed_point(plain).tail[:5], rtol=1e-9, atol=1e-15)


def test_like_pools_are_one_pool():
    model = SupermarketClasses(4, [Pool(0.5, 1.0, 3), Pool(0.5, 1.0, 3)], 2, 0.9, False)
    np.testing.assert_allclose(exact.stationary(model).tail, exact.stationary(jaxq.Supermarket(4, 2, 0.9, False, 3)).tail,
                               rtol=1e-12)


# exact values

@pytest.mark.parametrize("replacement", [True, False])
def test_simulation_meets_the_exact_stationary_law(replacement):
    model = SupermarketClasses(5, [Pool(0.4, 2.0, 1), Pool(0.6, 0.5, 3)], 2, 1.0, replacement)
    law = exact.stationary(model)
    run = jaxq.simulate(model, [40.0, 80.0], 3, replicas=4096, save="paths")
    for k in range(2):
        assert np.all(np.abs(run.tail_mean[k][:3] - law.tail) < 5 * run.tail_stderr[k][:3])
        assert abs(run.mean_queue_length[k] - law.mean_queue_length) < 5 * run.mean_queue_length_stderr[k]
    served = law.probability @ law.states[:, [0, 1]] @ np.array([2.0, 0.5])  # by busy servers of each pool
    lost = np.diff(run.counter_paths["lost"], axis=0)[0] / 40.0
    assert abs(lost.mean() - (5 * 1.0 - served)) < 5 * lost.std() / 64
    assert lost.mean() > 0.1
    assert run.arrivals == run.counters["arrivals"]
    customers = run.paths[-1].sum()  # `departures` counts what left
    assert run.departures == run.arrivals - run.counters["lost"] - customers


def test_the_fixed_point_ends_the_flow():
    model = SupermarketClasses(100, FULL, 2, 0.7)
    point = jaxq.fixed_point(model)
    np.testing.assert_allclose(point.tail, jaxq.mean_field(model, [60.0]).tail[0], rtol=1e-6)


def test_levels_are_judged_in_the_pool_that_needs_them():
    """An unbounded pool at few levels beside a large buffer: the last tail fraction, the buffer's, is empty all the same.

    Like servers but for a buffer that is never full: the fixed point is lambda**(2**i - 1), of which half sit in each pool.
    """
    model = SupermarketClasses(100, [Pool(0.5), Pool(0.5, 1.0, 40)], 2, 0.9)
    object.__setattr__(model, "levels", 4)  # the class itself gives every pool the levels of the largest buffer
    assert model.depths == (4, 40)
    point = jaxq.fixed_point(model)
    np.testing.assert_allclose(point.tail[:10], 0.9 ** (2.0 ** np.arange(1, 11) - 1), rtol=1e-11, atol=1e-14)


def test_the_fixed_point_serves_every_customer():
    model = SupermarketClasses(100, UNBOUNDED, 2, 0.7)
    point = jaxq.fixed_point(model)
    busy = [tail[0] for tail in model.at_levels(point.tail.size).split(point.density)]
    assert 1.5 * busy[0] + 0.6 * busy[1] == pytest.approx(0.7, abs=1e-12)
    assert busy[1] / 0.75 > busy[0] / 0.25 > 0.3  # the slow servers are the busier ones


def test_overload_of_the_slow_servers_is_refused():
    """lambda = 0.8 is below the service rate 1.05 of all, but 0.8 * 0.75**2 = 0.45 is above 0.75 * 0.4 of the slow pool."""
    slow = Pool(0.75, 0.4)
    with pytest.raises(ValueError, match="fixed_point needs a load below 1"):
        jaxq.fixed_point(SupermarketClasses(100, [Pool(0.25, 3.0), slow], 2, 0.8))
    with pytest.raises(ValueError, match="fixed_point must fit in 1024 levels"):
        jaxq.fixed_point(SupermarketClasses(100, [Pool(0.25, 3.0, 3), slow], 2, 0.8))
    bounded = SupermarketClasses(100, [Pool(0.25, 3.0), Pool(0.75, 0.4, 3)], 2, 0.8)
    assert jaxq.fixed_point(bounded).residual < 1e-10


@pytest.mark.parametrize("replacement", [True, False])
def test_rates_have_derivatives_everywhere(replacement):
    model = SupermarketClasses(12, [MIXED[0], Pool(0.75, 0.5, 3)], 3, 0.7, replacement)
    with jax.enable_x64(True):
        slopes = jax.jit(jax.jacfwd(lambda x, e, m: m.rates(x, e), (0, 1, 2)))
        for x in (np.zeros(5), np.repeat([0.25, 0.75], [2, 3]), model.guess()):  # empty, full: no server of most lengths
            for inverse_n in (0.0, 1 / 12):
                in_x, in_n, in_model = slopes(x, inverse_n, jax.tree.map(np.float64, model))
                assert np.all(np.isfinite(in_x))
                ahead, behind = (model.rates(jnp.asarray(x), inverse_n + h) for h in (1e-6, -1e-6))
                np.testing.assert_allclose(in_n, (ahead - behind) / 2e-6, atol=1e-7)
                np.testing.assert_allclose(in_model.arrival_rate[:5], model.rates(jnp.asarray(x), inverse_n)[:5] / 0.7, rtol=1e-12)


# the same integers

def test_the_same_integers_for_any_replicas_blocks_chunks_and_x64():
    ts = [1.0, 4.0, 9.0]
    model = SupermarketClasses(12, MIXED, 2, 1.0)
    whole = jaxq.simulate(model, ts, 7, replicas=100, save="paths").paths
    assert whole.max() > 0
    for replicas, more in ((1, {}), (7, {"chunk": 5, "block": 2})):
        with jax.enable_x64(replicas == 1):
            part = jaxq.simulate(model, ts, 7, replicas=replicas, save="paths", **more).paths
        np.testing.assert_array_equal(*fit(part, whole[:, :, :replicas]))


def test_levels_grow_when_needed():
    few, many = (jaxq.simulate(SupermarketClasses(12, UNBOUNDED, 1, 1.0, levels=levels), [4.0], 7, replicas=20, save="paths").paths
                 for levels in (5, 10))
    assert few.shape[1] > 5
    np.testing.assert_array_equal(*fit(few, many))


def fit(*paths):
    levels = max(path.shape[1] for path in paths)
    return [np.pad(path, ((0, 0), (0, levels - path.shape[1]), (0, 0))) for path in paths]


def test_a_server_listed_twice_holds_two_places():
    model = SupermarketClasses(8, UNBOUNDED, 3, 0.7)
    tables, ties = model.tables(model.clock()), np.arange(0, 2**32, 2**32 // 3000, dtype=np.uint64).astype(np.uint32)
    mark = tuple(np.full(ties.size, server, np.int32) for server in (0, 5, 0))  # server 0 is in the first pool, 5 in the second
    _, state = model.init([[1], [3]], (np.zeros(ties.size, np.uint32),) * 2)
    x, arrivals = model.apply(tables, state, (*mark, ties))  # ranks 0 and 3: lengths 1 and 0
    np.testing.assert_array_equal(np.asarray(x).sum(axis=1)[8], ties.size * 4)
    _, state = model.init([[1], [4]], (np.zeros(ties.size, np.uint32),) * 2)
    x, arrivals = model.apply(tables, state, (*mark, ties))
    first, second = np.asarray(x)[1], np.asarray(x)[9]
    assert abs(first.mean() - 2 / 3) < 1e-3
    np.testing.assert_array_equal(first + second, 1)
    np.testing.assert_array_equal(arrivals, 1)


# words

def mark(model, words):
    return [int(np.asarray(part)[0]) for part in
            model.draw(model.tables(model.clock()), tuple(jnp.asarray([w], jnp.uint32) for w in words))]


def count_words(event):
    """How many 64-bit words come before `event(w)` first holds, for an event that then stays, by bisection."""
    low, high = 0, 2**64
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if event(middle) else (middle + 1, high)
    return low


def test_every_type_has_its_share_of_the_words():
    model = SupermarketClasses(100_000_000, [Pool(0.25, 3.0), Pool(0.75, 1e-7)], 1, 1e-3)
    total = Fraction(model.clock()) / model.n
    late = (2**32 - 1, 2**32 - 1)  # the last server
    arrivals = count_words(lambda w: mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[0] < 0)
    first = count_words(lambda w: mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[0] == ~24_999_999)
    both = count_words(lambda w: w >= 2**63 and mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[0] == ~99_999_999)
    assert abs(arrivals - Fraction(1e-3) / total * 2**64) <= 1
    assert abs((both - first) - Fraction(3, 4) / total * 2**64) <= 2
    assert abs((2**64 - both) - Fraction(3, 4) * Fraction(1e-7) / total * 2**64) <= 2


@pytest.mark.parametrize("rank", [0, 123_456, 99_999_999])
def test_every_server_of_a_hundred_million_has_its_share_of_the_words(rank):
    model = SupermarketClasses(100_000_000, UNBOUNDED, 2, 0.5)
    words = [count_words(lambda w, r=r: mark(model, (0, 0, 0, 0, w >> 32, w & 0xFFFFFFFF, 0))[1] >= r) for r in (rank, rank + 1)]
    assert abs((words[1] - words[0]) - Fraction(2**64, 100_000_000)) <= 1


@pytest.mark.parametrize("replacement", [True, False])
def test_samples_are_uniform_sets(replacement):
    model = SupermarketClasses(4, FULL, 2, 0.9, replacement)
    words = np.random.default_rng(0).integers(0, 2**32, (model.words, 60_000), dtype=np.uint32)
    first, second, _ = map(np.asarray, model.draw(model.tables(model.clock()), tuple(map(jnp.asarray, words))))
    taken = first >= 0
    seen = Counter(tuple(sorted(pair)) for pair in zip(first[taken].tolist(), second[taken].tolist(), strict=True))
    expected = {(a, b): (1 if a == b else 2) / 16 if replacement else 1 / 6 for a in range(4) for b in range(a, 4)
                if replacement or a != b}
    assert set(seen) == set(expected)
    for pair, p in expected.items():
        assert abs(seen[pair] / taken.sum() - p) < 5 * (p * (1 - p) / taken.sum()) ** 0.5


def test_a_clock_with_room_gives_null_ticks_that_change_nothing():
    model, lanes = CASES["three distinct, buffers"], 20_000
    tables = model.tables(2 * model.clock())
    words = tuple(jnp.asarray(w) for w in np.random.default_rng(0).integers(0, 2**32, (model.words, lanes), dtype=np.uint32))
    drawn = model.draw(tables, words)
    first = np.asarray(drawn[0])
    null, slow = first == ~model.n, (first < 0) & (~first < 6)
    for share, p in ((null, 0.5), (first >= 0, 24 * 1.4 / 2 / model.clock()), (slow, 6 * 0.5 / 2 / model.clock())):
        assert abs(share.mean() - p) < 5 * (p * (1 - p) / lanes) ** 0.5
    _, state = model.init([[6], [18, 18, 7]], (np.zeros(lanes, np.uint32),) * 2)
    after = model.apply(tables, state, drawn)
    for old, new in zip(state, after, strict=True):
        np.testing.assert_array_equal(np.asarray(new)[..., null], old[..., null])
    nothing = jax.tree.map(lambda part: jnp.full(lanes, part), model.null(tables))
    for old, new in zip(state, model.apply(tables, state, nothing), strict=True):
        np.testing.assert_array_equal(np.asarray(new), old)
    with pytest.raises(ValueError, match="clock must be at least"):
        model.tables(model.clock() / 2)


# states and arguments

def test_initial_states():
    model, keys = SupermarketClasses(12, MIXED, 2, 0.7), (np.zeros(3, np.uint32),) * 2
    grown, state = model.init([[2], np.arange(9, 0, -1)], keys)
    assert grown.depths == (2, 16)
    assert [tail[:, 0].tolist() for tail in grown.split(grown.counts(state))] == [[2, 0], [*range(9, 0, -1), *[0] * 7]]
    again, same = model.init(np.asarray(grown.counts(state))[:, 0], keys)
    assert again == grown
    np.testing.assert_array_equal(same[0], state[0])
    assert np.asarray(grown.tail(grown.counts(state)))[:3, 0].tolist() == [11, 8, 7]


def test_levels_hold_the_largest_buffer():
    """So that an empty last level of the tail means an empty last level of every pool without a buffer."""
    model = SupermarketClasses(4, [Pool(0.5, 1.0, 20), Pool(0.5, 1.0)], 2, 0.5, levels=3)
    assert model.depths == (20, 20)
    assert model.at_levels(5).depths == (20, 20)
    assert model.at_levels(40).depths == (20, 40)


@pytest.mark.parametrize(("initial", "message"), [
    ([[1, 2], [3]], r"initial\[0\] must be integer tail counts"), ([[4], [3]], r"initial\[0\] must be integer tail counts with 3"),
    ([[1], [3], [1]], "one list of tail counts for each of the 2 pools"), ([[1, 1, 1], [3]], r"above the buffer of 2"),
    ([1, 2, 3], "must be 10 integers"), ([0.5] * 10, "must be integer tail counts"), ("abc", "one list of tail counts")])
def test_impossible_initial_states_are_refused(initial, message):
    with pytest.raises(ValueError, match=message) as caught:
        SupermarketClasses(12, MIXED, 2, 0.7).init(initial, (np.zeros(1, np.uint32),) * 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"n": 0}, "n must be an integer at least 1"), ({"n": 2**31}, "at most 2147483647"), ({"n": 13}, "nearest n that do are 12 and 16"),
    ({"pools": []}, "pools must be a list of at least one jaxq.Pool"), ({"pools": [1.0]}, "pools must be a list"),
    ({"pools": [Pool(0.5)]}, "fractions of the pools must sum to 1"), ({"d": 0}, "d must be an integer at least 1"),
    ({"d": 9}, "d must be an integer at least 1 and at most 8; got 9"), ({"d": 1.5}, "d must be an integer"),
    ({"n": 4, "d": 5, "replacement": False}, "d must be at most n without replacement; got d=5 with n=4"),
    ({"arrival_rate": 0}, "arrival_rate must be a finite number above 0"), ({"arrival_rate": float("nan")}, "arrival_rate must be"),
    ({"levels": -1}, "levels must be an integer at least 1")])
def test_bad_parameters_are_refused_with_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        SupermarketClasses(**{"n": 12, "pools": MIXED, "d": 2, "arrival_rate": 0.5} | arguments)
    assert "\n" not in str(caught.value)
