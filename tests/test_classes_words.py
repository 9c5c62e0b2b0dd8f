"""The supermarket model with pools: the same integers however a run is cut, the words of the draws, starts and arguments."""
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from words import count_words, mark

import jaxq
from jaxq import Pool
from jaxq.models.classes import SupermarketClasses

UNBOUNDED = [Pool(0.25, 1.5), Pool(0.75, 0.6)]
MIXED = [Pool(0.25, 2.0, 2), Pool(0.75, 0.5)]
FULL = [Pool(0.25, 0.5, 1), Pool(0.75, 1.5, 3)]


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
    model, lanes = SupermarketClasses(24, FULL, 3, 1.4, False), 20_000
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
