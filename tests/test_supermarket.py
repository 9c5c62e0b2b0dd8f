"""The supermarket model: the one-tick contract, exact ranks and thresholds, and its states."""

import dataclasses
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxq
from jaxq import bits
from jaxq.models import ranks, supermarket
from jaxq.testing import check_model

CASES = {
    "packed": jaxq.Supermarket(20, 2, 0.9),
    "packed buffer": jaxq.Supermarket(300, 2, 0.8, buffer=5),
    "packed distinct": jaxq.Supermarket(30, 3, 0.7, replacement=False),
    "narrow": jaxq.Supermarket(100_000, 3, 0.6),
    "narrow distinct": jaxq.Supermarket(40, 12, 0.8, replacement=False),
    "wide": jaxq.Supermarket(50, 2, 0.99995, levels=12),
    "one choice": jaxq.Supermarket(40, 1, 0.7, levels=12),
    "all, with replacement": jaxq.Supermarket(70, 70, 0.9),
    "all, distinct": jaxq.Supermarket(70, 70, 0.9, replacement=False),
}


def states(model):
    """Empty, full, one below the buffer, near the fixed point and random tail counts, 20 in all."""
    rng, n = np.random.default_rng(1), model.n
    full = np.full(model.levels if model.buffer else 4, n)
    below = full.copy()
    below[-1] = 0
    near = np.floor(n * model.guess() + 0.5).astype(int)
    tails = [np.zeros(1, int), full, below, near]
    while len(tails) < 20:
        tails.append(np.sort(rng.integers(0, n + 1, rng.integers(1, full.size + 1)))[::-1])
    return tails


@pytest.mark.parametrize("name", CASES)
def test_one_tick_follows_the_rates(name):
    found = check_model(CASES[name], states(CASES[name]), seed=5)
    assert found.states == 20
    assert found.lanes == 2**20


def test_reached_states_follow_the_rates():
    check_model(jaxq.Supermarket(6, 2, 0.8), lanes=2**17)


@dataclasses.dataclass(frozen=True)
class Crooked(supermarket.Supermarket, leaves=("n", "arrival_rate", "eta")):
    """Serves the shortest sampled server's queue instead of a uniform one."""

    def draw(self, tables, words):
        picks, (hi, _) = self._ranks(tables["n"], words, self.d)
        largest = ranks.largest(picks, tables["n"], distinct=False)
        return jnp.where(hi < tables["arrival"][0], largest, ~largest).astype(np.int32).astype(self.lane)


@dataclasses.dataclass(frozen=True)
class Leaky(supermarket.Supermarket, leaves=("n", "arrival_rate", "eta")):
    """Lets customers into full servers."""

    def counts(self, state):
        return state[0][:-1] + state[0][-1:]


def test_broken_models_fail_the_contract():
    with pytest.raises(AssertionError, match="does not follow the law"):
        check_model(Crooked(20, 2, 0.9), [[15, 5]], lanes=2**17)
    with pytest.raises(AssertionError, match="a transition of probability 0 occurred"):
        check_model(Leaky(20, 2, 0.9, buffer=2), [[20, 20]], lanes=2**17)


def service_or_arrival(model, words):
    return int(np.asarray(model.draw(model.tables(model.clock()), tuple(jnp.asarray([w], jnp.uint32) for w in words)))[0])


def count_words(event, hi=2**64):
    """How many 64-bit words w (0, 1, ...) come before `event(w)` first holds, for an event that then stays, by bisection."""
    low, high = 0, hi
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if event(middle) else (middle + 1, high)
    return low


def test_an_arrival_of_probability_one_in_1e9_has_its_share_of_the_words():
    rate = 1e-9 / (1 - 1e-9)
    model = jaxq.Supermarket(100_000, 2, rate)
    exact = Fraction(rate) / (1 + Fraction(rate)) * 2**64
    words = count_words(lambda w: service_or_arrival(model, (w >> 32, w & 0xFFFFFFFF, 5, 6)) < 0)
    assert abs(words - exact) <= 1


@pytest.mark.parametrize("rank", [0, 1, 123_456_789, 10**9 - 1])
def test_every_server_of_a_billion_has_its_share_of_the_words(rank):
    model = jaxq.Supermarket(10**9, 2, 1e-12)  # with this second word every tick is a service
    reaches = [count_words(lambda w, r=r: ~service_or_arrival(model, (w >> 32, w & 0xFFFFFFFF, *[2**32 - 1] * 2)) >= r)
               for r in (rank, rank + 1)]
    assert abs((reaches[1] - reaches[0]) - 2**64 / 10**9) <= 1


def test_the_type_of_a_wide_tick_is_decided_by_what_both_ranks_leave():
    """Words made backwards from the fractions they leave: equal high words leave the decision to the second rank's."""
    n = 10**9 + 7
    model = jaxq.Supermarket(n, 2, 0.7)
    bound = bits.threshold64(n * Fraction(0.7), model.clock())
    inverse = pow(n, -1, 2**64)

    def mark(first, second):
        words = [(fraction << 32) * inverse % 2**64 for fraction in (first, second)]
        return service_or_arrival(model, [half for word in words for half in (word >> 32, word & 0xFFFFFFFF)])

    high, low = bound >> 32, bound & 0xFFFFFFFF
    assert [mark(high, low - 1) >= 0, mark(high, low + 1) >= 0] == [True, False]
    assert [mark(high - 1, 2**32 - 1) >= 0, mark(high + 1, 0) >= 0] == [True, False]


def test_every_server_of_ten_million_is_chosen():
    """1e8 ranks drawn with n = 1e7: the number never chosen is Poisson-like with mean n exp(-10) = 454; 5 sd is 107."""
    n, seen = 10**7, np.zeros(10**7, bool)

    @jax.jit
    def ranks(block):
        at = jnp.arange(2**20, dtype=jnp.uint32)
        return bits.mulhi64(*bits.threefry(jnp.uint32(3), jnp.uint32(4), at, block), jnp.uint32(n))

    for block in range(96):
        seen[np.asarray(ranks(np.uint32(block)))] = True
    mean = n * np.exp(-96 * 2**20 / n)
    assert abs((~seen).sum() - mean) < 5 * mean**0.5


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("n", [65, 300])
def test_the_shortest_of_all_by_one_word_is_exact(n, replacement):
    exact = [(n - j) ** n * 2**64 // n**n for j in range(1, n)] if replacement else [0]
    assert ranks.full_thresholds(n, replacement) == ([t for t in exact if t > 0] or [0])


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_floyd_samples_are_distinct_and_their_maximum_is_right(data):
    n = data.draw(st.integers(2, 12))
    d = data.draw(st.integers(1, n))
    picks = [data.draw(st.integers(0, n - 1 - k)) for k in range(d)]
    chosen = []
    for k in reversed(range(d)):
        chosen.append(n - 1 - k if picks[k] in chosen else picks[k])
    assert len(set(chosen)) == d
    ours = ranks.largest([np.array([p], np.uint32) for p in picks], np.uint32(n), distinct=True)
    assert int(ours[0]) == max(chosen)


def test_clock_with_room_gives_null_ticks_and_the_same_law():
    model = jaxq.Supermarket(50, 2, 0.9)
    tables = model.tables(2 * model.clock())
    words = tuple(jnp.asarray(w) for w in np.random.default_rng(0).integers(0, 2**32, (2, 200_000), dtype=np.uint32))
    mark = np.asarray(model.draw(tables, words))
    null = mark == ~50
    for share, p in ((null.mean(), 0.5), ((mark >= 0).mean(), 0.45 / 1.9), (((mark < 0) & ~null).mean(), 0.5 / 1.9)):
        assert abs(share - p) < 5 * (p * (1 - p) / 200_000) ** 0.5
    with pytest.raises(ValueError, match="clock must be at least"):
        model.tables(model.clock() / 2)


@pytest.mark.parametrize("replacement", [True, False])
def test_joins_is_the_chance_that_all_sampled_lie_below(replacement):
    from math import comb

    model = jaxq.Supermarket(9, 3, 0.7, replacement)
    for k in range(10):
        exact = comb(k, 3) / comb(9, 3) if not replacement else (k / 9) ** 3
        with jax.enable_x64(True):
            assert abs(float(model.joins(jnp.asarray(k / 9), 1 / 9)) - exact) < 1e-14


def test_initial_states():
    model = jaxq.Supermarket(10, 2, 0.5)
    assert model.initial_tail([7, 2, 0]).tolist() == [7, 2]
    assert model.initial_tail([0.75, 0.25, 0.04]).tolist() == [8, 3]  # half up
    assert model.initial_tail(None).size == 0
    grown, state = model.init(np.arange(40, 0, -1) // 4, tuple(np.zeros((2, 3), np.uint32)))
    assert grown.levels >= 37
    assert np.asarray(grown.counts(state)).sum(axis=0).tolist() == [sum(np.arange(40, 0, -1) // 4)] * 3


@pytest.mark.parametrize(("initial", "message"), [
    ([3, 5], r"tail counts with n = 10 >= x_1 >= x_2"), ([11], "tail counts with n = 10"), ([-1], "tail counts"),
    ([1.5], r"fractions S_i in \[0, 1\]; got 1.5"), ([np.nan], "one-dimensional list of finite numbers"),
    ([[1, 2]], "one-dimensional"), ("abc", "one-dimensional"), ([], "one-dimensional")])
def test_impossible_initial_states_are_refused(initial, message):
    with pytest.raises(ValueError, match=message):
        jaxq.Supermarket(10, 2, 0.5).initial_tail(initial)


def test_a_start_above_the_buffer_is_refused():
    with pytest.raises(ValueError, match="no customers above the buffer of 2"):
        jaxq.simulate(jaxq.Supermarket(10, 2, 0.5, buffer=2), [1.0], 0, replicas=1, initial=[5, 4, 3])


@pytest.mark.parametrize(("arguments", "message"), [
    ({"n": 0}, "n must be an integer at least 1"), ({"n": 2.5}, "n must be an integer"), ({"n": 2**31}, "at most 2147483647"),
    ({"n": True}, "n must be an integer"), ({"d": 0}, "d must be an integer at least 1"), ({"d": 1.5}, "d must be an integer"),
    ({"d": 65}, "d must be at most 64, or equal to n"), ({"n": 70_000, "d": 70_000}, "d must be at most 64, or equal to n"),
    ({"d": 11, "replacement": False}, "d must be at most n without replacement; got d=11 with n=10"),
    ({"arrival_rate": 0}, "arrival_rate must be a finite number above 0"), ({"arrival_rate": -1}, "arrival_rate"),
    ({"arrival_rate": float("nan")}, "arrival_rate must be a finite number"), ({"arrival_rate": "x"}, "arrival_rate"),
    ({"arrival_rate": float("inf")}, "arrival_rate"), ({"buffer": 0}, "buffer must be an integer at least 1"),
    ({"buffer": 1.5}, "buffer must be an integer")])
def test_bad_parameters_are_refused_with_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        jaxq.Supermarket(**{"n": 10, "d": 2, "arrival_rate": 0.5} | arguments)
    assert "\n" not in str(caught.value)


def test_heavy_traffic_sets_the_load():
    model = jaxq.Supermarket.heavy_traffic(10_000, 2, beta=1.5)
    assert model.arrival_rate == 1 - 1.5 / 100
    assert model.eta == 100
    assert jaxq.Supermarket.heavy_traffic(10_000, 2, 1.0, 0.25).arrival_rate == 0.9
    assert jaxq.Supermarket.heavy_traffic(7, 2, 1.0, eta=4).arrival_rate == 0.75


@pytest.mark.parametrize(("arguments", "message"), [
    ({"beta": 10.0}, "beta must be below eta"), ({"beta": 0.0}, "beta must be a finite number above 0"),
    ({"alpha": 0.5, "eta": 3.0}, "give one of alpha and eta"), ({"eta": 0.5}, "eta must be a finite number at least 1"),
    ({"alpha": float("nan")}, "alpha must be a finite number")])
def test_heavy_traffic_refuses_impossible_scales(arguments, message):
    with pytest.raises(ValueError, match=message):
        jaxq.Supermarket.heavy_traffic(**{"n": 100, "d": 2, "beta": 1.0} | arguments)
