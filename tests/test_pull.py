"""PULL: the protocol server by server against the rates, the rates against the chain, and the words of a tick."""

import math
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pull_protocol import MODELS, counted, protocol, some_servers
from words import count_words, mark

from jaxq.models.pools import Pool
from jaxq.models.pull import Pull
from jaxq.testing import check_model


def states(model):
    rng = np.random.default_rng(3)
    if model.n > 10**4:  # classes of any size, one almost empty
        counts = []
        for _ in range(5):
            whole = np.zeros(model.classes.size, int)
            for pool, size in enumerate(model.servers):
                room = model.depths[pool] - (model.buffers[pool] is None)
                mine = np.flatnonzero((model.classes.pool == pool) & (model.classes.length <= room))
                whole[mine] = rng.multinomial(size - mine.size, rng.dirichlet(np.full(mine.size, 0.3))) + 1
            counts.append(whole[model.classes.kept])
        return counts
    kinds = ["empty", "full", "below"] + ["any"] * 5
    return [counted(model, some_servers(model, rng, kind)) for kind in kinds]


@pytest.mark.parametrize("name", MODELS)
def test_one_tick_follows_the_rates(name):
    check_model(MODELS[name], states(MODELS[name]), seed=5, lanes=2**16)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].n < 100])
def test_rates_are_those_of_the_protocol(name):
    model, rng = MODELS[name], np.random.default_rng(1)
    for kind in ["empty", "full", "below"] + ["any"] * 30:
        servers = some_servers(model, rng, kind)
        expected = Counter()
        start = np.array(counted(model, servers))
        for rate, after, _ in protocol(model, servers):
            change = tuple((np.array(counted(model, after)) - start).tolist())
            if any(change):
                expected[change] += rate
        found = Counter()
        with jax.enable_x64(True):
            rates = np.asarray(model.rates(jnp.asarray(start / model.n), 1 / model.n)) * model.n
        for jump, rate in zip(model.jumps, rates, strict=True):
            found[tuple(jump.tolist())] += rate
        assert all(math.isclose(found[key], expected[key], rel_tol=1e-12, abs_tol=1e-14) for key in {*found, *expected})


class Greedy(Pull, leaves=("n", "pools", "arrival_rate")):
    """Takes the first pool's messages first."""

    def draw(self, tables, words):
        server, move, pick = super().draw(tables, words)
        return server, move, tuple(word & np.uint32(0) for word in pick)


def test_a_broken_choice_of_message_fails_the_contract():
    model = Greedy(10, [Pool(0.4, 1.5, 1), Pool(0.6, 0.5, 3)], 2, 0.8)
    with pytest.raises(AssertionError, match="one tick from"):
        check_model(model, [None], lanes=2**14)


# words

def test_every_type_has_its_share_of_the_words():
    model = Pull(100_000_000, [Pool(0.25, 3.0), Pool(0.75, 1e-7)], 2, 1e-3)
    total = Fraction(model.clock()) / model.n  # at most one float above the sum of the rates
    assert 0 <= total - (Fraction(1e-3) + Fraction(3, 4) + Fraction(3, 4) * Fraction(1e-7)) < 1e-15
    late = (2**32 - 1, 2**32 - 1)  # the last router and server
    arrivals = count_words(lambda w: mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[1] < 0)
    first = count_words(lambda w: mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[0] == 24_999_999)
    both = count_words(lambda w: w >= 2**63 and mark(model, (w >> 32, w & 0xFFFFFFFF, *late))[0] == 99_999_999)
    assert abs(arrivals - Fraction(1e-3) / total * 2**64) <= 1
    assert abs((both - first) - Fraction(3, 4) / total * 2**64) <= 2
    assert abs((2**64 - both) - Fraction(3, 4) * Fraction(1e-7) / total * 2**64) <= 2


def test_every_server_of_a_hundred_million_has_its_share_of_the_words():
    model = Pull(100_000_000, [Pool(1.0)], 3, 0.5)

    def reached(word, rank):  # of the words of router 1
        server, router, *_ = mark(model, (0, 0, word >> 32, word & 0xFFFFFFFF))
        return (router, server) >= (1, rank)

    for rank in (0, 123_456, 99_999_999):
        words = [count_words(lambda w, r=r: reached(w, r)) for r in (rank, rank + 1)]
        assert abs((words[1] - words[0]) - Fraction(2**64, 300_000_000)) <= 2


@pytest.mark.parametrize("name", ["two pools", "many servers, stale"])
def test_a_clock_with_room_gives_null_ticks_that_change_nothing(name):
    model, lanes = MODELS[name], 200_000
    tables = model.tables(2 * model.clock())
    words = tuple(jnp.asarray(w) for w in np.random.default_rng(0).integers(0, 2**32, (model.words, lanes), dtype=np.uint32))
    server, move, pick = model.draw(tables, words)
    null, arrival = np.asarray(server) == model.n, np.asarray(move) >= 0
    assert not (null & arrival).any()
    rates = [size * pool.rate / (2 * model.clock()) for size, pool in zip(model.servers, model.pools, strict=True)]
    first = ~null & ~arrival & (np.asarray(server) < model.servers[0])
    for share, p in ((null, 0.5), (arrival, 0.5 - sum(rates)), (first, rates[0])):
        assert abs(share.mean() - p) < 5 * (p * (1 - p) / lanes) ** 0.5
    _, (ends, counters) = model.init(None, tuple(np.zeros((2, 1), np.uint32)))
    before = np.repeat(ends, lanes, axis=1), np.repeat(counters, lanes, axis=1)
    after = model.apply(tables, before, (server, move, pick))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(np.asarray(new)[:, null], old[:, null])
    empty = jax.tree.map(lambda part: jnp.full(3, part), model.null(tables))
    after = model.apply(tables, (before[0][:, :3], before[1][:, :3]), empty)
    np.testing.assert_array_equal(np.asarray(after[0]), before[0][:, :3])
    with pytest.raises(ValueError, match="clock must be at least"):
        model.tables(model.clock() / 2)
