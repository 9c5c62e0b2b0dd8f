"""PULL: the protocol server by server against the rates, the rates against the chain, exact values, and its states."""

import dataclasses
import math
from collections import Counter
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

import jaxq
from jaxq import bits, engine, pull_theory
from jaxq.models import pull_start
from jaxq.models.pools import Pool
from jaxq.models.pull import Pull
from jaxq.testing import check_model

MODELS = {
    "one pool, one router": Pull(6, [Pool(1.0, 1.0, 4)], 1, 0.8),
    "no buffer": Pull(7, [Pool(1.0, 0.7)], 2, 0.6, levels=3),
    "two pools": Pull(10, [Pool(0.4, 1.5, 1), Pool(0.6, 0.5, 3)], 2, 0.8),
    "three pools": Pull(9, [Pool(1 / 3, 1.5, 2), Pool(2 / 9, 0.5), Pool(4 / 9, 0.9, 1)], 3, 0.7, levels=4),
    "stale, one router": Pull(6, [Pool(0.5, 1.2, 2), Pool(0.5, 0.7, 3)], 1, 0.8, "stale"),
    "stale, one pool": Pull(7, [Pool(1.0, 1.3, 2)], 2, 1.1, "stale"),
    "stale, three routers": Pull(8, [Pool(0.25, 1.5, 1), Pool(0.75, 0.5)], 3, 0.6, "stale", levels=3),
    "many servers": Pull(3_000_000, [Pool(1 / 3, 1.5, 2), Pool(2 / 3, 0.5)], 2, 0.7, levels=3),
    "many servers, stale": Pull(3_000_000, [Pool(1 / 3, 1.5, 2), Pool(2 / 3, 0.5, 1)], 2, 0.7, "stale"),
}


# the protocol, server by server: a server is (pool, customers, router that holds its message or None)

def protocol(model, servers):
    """(rate, servers after, what happened) of everything that can happen next."""
    servers = [tuple(server) for server in servers]

    def put(k, length, router):
        return [*servers[:k], (servers[k][0], length, router), *servers[k + 1:]]

    for router in range(model.routers):
        holders = [k for k, server in enumerate(servers) if server[2] == router]
        candidates = holders or range(len(servers))
        rate = model.n * model.arrival_rate / model.routers / len(candidates)
        for k in candidates:
            pool, length, message = servers[k]
            if holders or (length == 0 and model.messages == "withdraw"):
                message = None
            full = model.buffers[pool] is not None and length == model.buffers[pool]
            yield rate, put(k, length + (not full), message), "lost" if full else "waited" if length else "found idle"
    for k, (pool, length, message) in enumerate(servers):
        if length == 1 and message is None:
            for router in range(model.routers):
                yield model.pools[pool].rate / model.routers, put(k, 0, router), "message"
        elif length:
            yield model.pools[pool].rate, put(k, length - 1, message), "service"


def counted(model, servers):
    """Counts (states,) of a list of servers."""
    found = Counter((pool, length, -1 if router is None else router) for pool, length, router in servers)
    classes = model.classes
    rows = list(zip(classes.pool.tolist(), classes.length.tolist(), classes.router.tolist(), strict=True))
    assert set(found) <= set(rows)
    return [found[rows[k]] for k in classes.kept]


def some_servers(model, rng, kind="any"):
    """A possible state of every server: any, nobody present, all full, or all but one customer."""
    servers = []
    for pool, (size, depth) in enumerate(zip(model.servers, model.depths, strict=True)):
        depth -= model.buffers[pool] is None  # room for one more
        for k in range(size):
            length = {"any": rng.integers(0, depth + 1) * rng.integers(0, 2), "empty": 0, "full": depth,
                      "below": depth - (k == 0)}[kind]
            router = rng.integers(model.routers) if length == 0 or (model.stale and rng.integers(2)) else None
            servers.append((pool, int(length), None if router is None else int(router)))
    return servers


def states(model):
    rng = np.random.default_rng(3)
    if model.n > 10**4:  # classes of any size, one almost empty
        counts = []
        for _ in range(6):
            whole = np.zeros(model.classes.size, int)
            for pool, size in enumerate(model.servers):
                room = model.depths[pool] - (model.buffers[pool] is None)
                mine = np.flatnonzero((model.classes.pool == pool) & (model.classes.length <= room))
                whole[mine] = rng.multinomial(size - mine.size, rng.dirichlet(np.full(mine.size, 0.3))) + 1
            counts.append(whole[model.classes.kept])
        return counts
    kinds = ["empty", "full", "below"] + ["any"] * 8
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


# exact values

def case_model(case):
    n = sum(case["pools"])
    pools = [Pool(size / n, rate, buffer) for size, rate, buffer in
             zip(case["pools"], case["service_rates"], case["buffers"], strict=True)]
    return Pull(n, pools, case["routers"], case["arrival_rate"], case["messages"])


def stationary(model, start):
    """(counts of every state, their stationary probabilities), from jumps and rates by enumeration."""
    jumps, index, todo, entries = model.jumps, {tuple(start): 0}, [tuple(start)], []
    rates_at = jax.jit(model.rates)
    while todo:
        state = todo.pop()
        rates = np.asarray(rates_at(np.array(state) / model.n, 1 / model.n)) * model.n
        for jump, rate in zip(jumps, rates, strict=True):
            if rate > 0 and jump.any():
                after = tuple((np.array(state) + jump).tolist())
                if after not in index:
                    index[after] = len(index)
                    todo.append(after)
                entries.append((index[state], index[after], rate))
    row, column, rate = map(np.array, zip(*entries, strict=True))
    size = len(index)
    flow = scipy.sparse.coo_matrix((rate, (column, row)), (size, size)).tocsr()
    balance = (flow - scipy.sparse.diags(np.asarray(flow.sum(axis=0)).ravel())).tolil()
    balance[0] = 1.0
    return np.array(list(index)), scipy.sparse.linalg.spsolve(balance.tocsc(), np.eye(size)[0])


@pytest.mark.parametrize("which", range(3))
def test_rates_meet_the_exact_stationary_values(reference, which):
    case = reference("pull")[which]
    model = case_model(case)
    with jax.enable_x64(True):
        counts, pi = stationary(model, counted(model, [(pool, 0, 0) for pool, size in enumerate(case["pools"])
                                                       for _ in range(size)]))
    mu = np.array(case["service_rates"])
    busy = model.busy(counts.T) @ pi
    np.testing.assert_allclose(busy, case["busy"], rtol=1e-9)
    arrivals = model.n * case["arrival_rate"]
    p_block = 1 - busy @ (mu * case["pools"]) / arrivals  # what is let in leaves
    classes = model.classes
    last = (model.occupancy(counts.T) @ pi) @ (mu[classes.pool] * (classes.length == 1))  # rate of becoming idle, and busy
    assert p_block == pytest.approx(case["p_block"], rel=1e-9, abs=1e-14)
    assert 1 - p_block - last / arrivals == pytest.approx(case["p_wait"], rel=1e-9)
    assert model.tail(counts.T).sum(axis=0) @ pi / model.n == pytest.approx(case["mean_queue_length"], rel=1e-9)


def z_score(values, exact):
    """(standard scores of the mean over replicas against an exact value, its relative standard error)."""
    error = values.std(ddof=1) / values.size**0.5
    return (values.mean() - exact) / error, error / values.mean()


@pytest.mark.parametrize(("which", "step", "count"), [(0, 3.0, 100), (1, 3.0, 100), (2, 8.0, 400)])
def test_simulation_meets_the_exact_stationary_values(reference, which, step, count):
    """Within 5 standard errors of this run, replicas as batches; the slowest relaxation takes about 3 time units."""
    case, replicas = reference("pull")[which], 4096
    model = case_model(case)
    result = jaxq.simulate(model, 30 + step * np.arange(count), 11, replicas=replicas, save="paths")
    window = {name: path[-1] - path[0] for name, path in result.counter_paths.items()}
    arrivals = window["arrivals"].mean()
    for name, counter in (("p_wait", "waited"), ("p_block", "lost")):
        exact = case[name]
        if exact < 1e-3:  # the count test: Poisson at least, so 5 sd of the count
            mean = exact * arrivals * replicas
            assert abs(window[counter].sum() - mean) < 5 * (2 * mean) ** 0.5 + 5
            continue
        z, relative = z_score(window[counter] / arrivals, exact)
        assert abs(z) < 5
        assert relative < 1e-2
    z, relative = z_score(result.paths.sum(axis=1).mean(axis=0) / model.n, case["mean_queue_length"])
    assert abs(z) < 5
    assert relative < 1e-3

    run = engine.Engine(model, None, bits.key_words(12), replicas)
    rows = np.full((8, replicas), int(3 * model.clock()))
    run.advance(np.full((1, replicas), int(30 * model.clock())))
    busy = np.concatenate([model.busy(counts)[None] for _ in range(4) for counts in run.advance(rows)[0]]).mean(axis=0)
    for pool, exact in enumerate(case["busy"]):
        assert abs(z_score(busy[pool], exact)[0]) < 5
    gained = run.totals["messages"].sum() / run.totals["arrivals"].sum()
    if case["messages"] == "withdraw":
        assert gained == pytest.approx(1 - case["p_wait"] - case["p_block"], rel=5e-3)


# invariants

def follow(model, initial=None, replicas=6, ticks=400, seed=4, calls=1, **options):
    """Counts and counters' totals after calls * 8 segments, (segments, ..., replicas), and the first counts."""
    run = engine.Engine(model, initial, bits.key_words(seed), replicas, **options)
    first = run.advance(np.zeros((1, replicas), int))[0][0]
    saved = [run.advance(np.full((8 // calls, replicas), ticks // 8)) for _ in range(calls)]
    rows = max(counts.shape[1] for counts, _ in saved)
    assert all(counts.shape[1] == rows for counts, _ in saved)
    return run.model, first, np.concatenate([counts for counts, _ in saved]), {
        name: np.concatenate([totals[name] for _, totals in saved]) for name in saved[0][1]}


@settings(max_examples=6, deadline=None, derandomize=True)
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
    same(wanted, follow(model, replicas=7, block=2, chunk=5), 7)
    same(wanted, follow(model, replicas=7, calls=4, devices=jax.devices()[:1]), 7)
    with jax.enable_x64(not jax.config.jax_enable_x64):
        same(wanted, follow(model, replicas=7), 7)


@pytest.mark.parametrize("messages", ["withdraw", "stale"])
def test_the_number_of_levels_never_changes_a_path(messages):
    pools = [Pool(0.4, 0.8), Pool(0.2, 0.5, 2), Pool(0.4, 0.6)]
    small, _, few, few_totals = follow(Pull(5, pools, 2, 0.9, messages, levels=2), ticks=160)
    large, _, many, many_totals = follow(Pull(5, pools, 2, 0.9, messages, levels=32), ticks=160)
    assert 2 < small.levels < 32
    rows = large.classes.length <= np.array(small.depths)[large.classes.pool]
    everyone = np.array([large.occupancy(counts) for counts in many])
    np.testing.assert_array_equal(np.array([small.occupancy(counts) for counts in few]), everyone[:, rows])
    assert not everyone[:, ~rows].any()
    for name, total in few_totals.items():
        np.testing.assert_array_equal(total, many_totals[name])


def test_counts_restart_the_same_state():
    for model in (MODELS["three pools"], MODELS["stale, three routers"]):
        grown, _, saved, _ = follow(model, replicas=2)
        again, state = model.init(saved[-1][:, 1], tuple(np.zeros((2, 3), np.uint32)))
        assert again.levels == grown.levels
        np.testing.assert_array_equal(np.asarray(again.counts(state)), np.repeat(saved[-1][:, 1:], 3, axis=1))


# words

def mark(model, words):
    return [int(np.asarray(part)[0]) for part in
            model.draw(model.tables(model.clock()), tuple(jnp.asarray([w], jnp.uint32) for w in words))[:2]]


def count_words(event):
    """How many 64-bit words come before `event(w)` first holds, for an event that then stays, by bisection."""
    low, high = 0, 2**64
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if event(middle) else (middle + 1, high)
    return low


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
        server, router = mark(model, (0, 0, word >> 32, word & 0xFFFFFFFF))
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


# first messages

def test_first_messages_are_uniform_and_each_replica_has_its_own():
    keys = tuple(np.random.default_rng(0).integers(0, 2**32, (2, 3000), dtype=np.uint32))
    for idle, routers in ((5, 3), (1000, 7), (100_000, 5), (30_000_000, 3)):
        rows = pull_start.split(idle, routers, keys, 1)
        assert (rows.sum(axis=0) == idle).all()
        assert (rows >= 0).all()
        for row in rows:  # binomial: its deciles hold what they should
            edges = np.unique(binom.ppf(np.arange(1, 10) / 10, idle, 1 / routers))
            expected = np.diff([0, *binom.cdf(edges, idle, 1 / routers), 1]) * 3000
            seen = np.bincount(np.searchsorted(edges, row), minlength=edges.size + 1)
            assert chi2.sf(((seen - expected) ** 2 / expected)[expected > 0].sum(), edges.size) > 1e-6
        correlation = np.corrcoef(rows[0], rows[1])[0, 1]
        assert abs(correlation + 1 / (routers - 1)) < 5 / 3000**0.5
        np.testing.assert_array_equal(pull_start.split(idle, routers, tuple(part[5:9] for part in keys), 1), rows[:, 5:9])
        assert (pull_start.split(idle, routers, keys, 0) != rows).any()


def test_initial_states():
    model = MODELS["three pools"]
    keys = tuple(np.zeros((2, 4), np.uint32))
    grown, state = model.init([[3, 1], [2, 2, 1, 1, 1], []], keys)
    assert grown.levels == 8
    counts = np.asarray(grown.counts(state))
    assert grown.tail(counts)[:, 0].tolist() == [5, 3, 1, 1, 1, 0, 0, 0]
    assert grown.outstanding(counts).sum(axis=1)[:, 0].tolist() == [0, 0, 4]
    np.testing.assert_allclose(grown.busy(counts)[:, 0], [1, 1, 0])


@pytest.mark.parametrize(("initial", "message"), [
    ([[3]], "one list of tail counts for each of the 2 pools"), (5, "one list of tail counts"), ("ab", "one list of tail counts"),
    ([[5], [1]], r"initial\[0\] must be integer tail counts with 4 >= x_1"), ([[1, 2], []], r"initial\[0\] must be integer tail"),
    ([[0.5], []], r"initial\[0\] must be integer tail"), ([[2, 1], []], "no customers above the buffer of 1; got 2 levels"),
    ([3, 1], r"must be 6 integers >= 0 with at most \[4, 6\] servers in the pools; got \[3, 1\]"),
    ([5, 0, 0, 0, 0, 0], "must be 6 integers"), ([-1, 0, 0, 0, 0, 0], "must be 6 integers")])
def test_impossible_initial_states_are_refused(initial, message):
    with pytest.raises(ValueError, match=message) as caught:
        MODELS["two pools"].init(initial, tuple(np.zeros((2, 1), np.uint32)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"n": 0}, "n must be an integer at least 1"), ({"n": 10.0}, "n must be an integer"),
    ({"n": 7}, r"n=7 with fractions \[0.4, 0.6\]; the nearest n that do are 5 and 10"),
    ({"n": 1}, "whole number above 0 for every pool; got n=1"), ({"pools": []}, "pools must be a list of at least one"),
    ({"pools": [Pool(0.5), Pool(0.4)]}, "must sum to 1; got .* with sum 0.9"), ({"pools": 3}, "pools must be a list"),
    ({"pools": [Pool(math.pi / 4), Pool(1 - math.pi / 4)]}, "round the fractions to fewer digits"),
    ({"routers": 0}, "routers must be an integer at least 1"), ({"arrival_rate": 0}, "arrival_rate must be a finite number"),
    ({"messages": "lost"}, "messages must be one of 'withdraw', 'stale'; got 'lost'"),
    ({"routers": 5000}, "must make at most 8191 classes of servers; got 10004")])
def test_bad_parameters_are_refused_with_one_sentence(arguments, message):
    good = {"n": 10, "pools": [Pool(0.4, 1.5, 1), Pool(0.6, 0.5, 3)], "routers": 2, "arrival_rate": 0.5}
    with pytest.raises(ValueError, match=message) as caught:
        Pull(**good | arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"fraction": 0}, "fraction must be a finite number above 0 and at most 1"), ({"fraction": 1.1}, "fraction must be"),
    ({"rate": 0}, "rate must be a finite number above 0"), ({"buffer": 0}, "buffer must be an integer at least 1"),
    ({"buffer": 1.5}, "buffer must be an integer")])
def test_bad_pools_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Pool(**{"fraction": 0.5} | arguments)


def test_an_infinite_buffer_is_no_buffer():
    assert Pool(1.0, 1.0, math.inf) == Pool(1.0)


# theory

def test_equilibrium_is_a_fixed_point_of_the_drift():
    for model in MODELS.values():
        if model.arrival_rate < sum(pool.fraction * pool.rate for pool in model.pools):
            with jax.enable_x64(True):
                density = jnp.asarray(model.guess())
                assert float(jnp.max(jnp.abs(model.drift(density)))) < 1e-14
                assert np.ptp(np.asarray(model.held(density))) < 1e-15


def test_equilibrium_of_two_pools():
    """By hand: beta = 1/2, mu = 3/2 and 1/2, lambda = 0.8; 3 g/(4 g + 6) + g/(4 g + 2) = 0.8 is 0.8 g^2 - 3.4 g - 2.4 = 0
    after multiplying out, g = (3.4 + sqrt(19.24))/1.6."""
    found = pull_theory.equilibrium([Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 0.8)
    g = (3.4 + 19.24**0.5) / 1.6
    assert found.flow == pytest.approx(g, rel=1e-12)
    np.testing.assert_allclose(found.busy, [g / (g + 1.5), g / (g + 0.5)], rtol=1e-12)
    assert found.mean_response_time == pytest.approx(found.nu.sum() / 0.8)
    assert set(found.to_json()) == {"nu", "busy", "flow", "mean_queue_length", "mean_response_time"}


def test_equilibrium_of_an_overloaded_system_is_refused():
    for rate in (1.0, 1.5):
        with pytest.raises(ValueError, match=r"needs arrival_rate below sum beta_j mu_j = 1; got 1") as caught:
            pull_theory.equilibrium([Pool(1.0)], rate)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="needs arrival_rate below"):
        Pull(10, [Pool(1.0)], 2, 1.2).guess()


def test_many_routers_between_one_server_each_and_one_router():
    """r -> infinity: nobody waits. r -> 0: no router holds a message, customers go anywhere, M/M/1."""
    assert pull_theory.many_routers_response_time(1e4, 0.9) == pytest.approx(1, abs=2e-3)
    assert pull_theory.many_routers_response_time(1e-9, 0.9) == pytest.approx(10, rel=1e-6)
    times = [pull_theory.many_routers_response_time(r, 0.9) for r in (1, 5, 10, 50)]
    assert times == sorted(times, reverse=True)
    with pytest.raises(ValueError, match="arrival_rate must be a finite number above 0 and below 1"):
        pull_theory.many_routers_response_time(10, 1.0)


def test_a_gradient_passes_where_a_router_is_empty():
    model = MODELS["two pools"]
    with jax.enable_x64(True):
        full = jnp.asarray([0.4, 0.0, 0.0, 0.0, 0.6, 0.0])  # everybody busy
        assert np.isfinite(np.asarray(jax.jacfwd(model.rates)(full))).all()
        slope = jax.grad(lambda rate: model_drift(model, rate))(0.8)
    assert np.isfinite(slope)


def model_drift(model, rate):
    return jnp.sum(dataclasses.replace(model, arrival_rate=rate).drift(jnp.asarray(model.guess())) ** 2)


# measured elsewhere, by an independent program

PUBLISHED = {
    "n=100, R=1": (Pull(100, [Pool(1.0)], 1, 0.9), [[90]], "waited", 0.0623, 0.0008),
    "n=100, R=2": (Pull(100, [Pool(1.0)], 2, 0.9), [[90]], "waited", 0.144, 0.001),
    "n=1000, R=2": (Pull(1000, [Pool(1.0)], 2, 0.9), [[900]], "waited", 0.0098, 0.0002),
    "two pools, waiting": (Pull(1000, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 2, 0.8), [[382], [453]], "waited", 0.0025, 0.0001),
    "two pools, blocked": (Pull(1000, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 2, 0.8), [[382], [453]], "lost", 0.0022, 0.0001),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_simulation_meets_what_was_measured_elsewhere(name):
    """Within 5 joint standard errors."""
    model, initial, counter, value, error = PUBLISHED[name]
    found = jaxq.simulate(model, [60.0, 160.0], 1, replicas=200_000 // model.n + 300, initial=initial,
                          save="paths")
    share = np.diff(found.counter_paths[counter], axis=0)[0] / np.diff(found.counter_paths["arrivals"], axis=0).mean()
    own = share.std(ddof=1) / share.size**0.5
    assert own < max(error, 1e-4)
    assert abs(share.mean() - value) < 5 * math.hypot(own, error)


@pytest.mark.slow
def test_many_routers_meet_what_was_measured_elsewhere_and_come_near_the_formula():
    """T = Q/lambda by Little; n = 1000, R = 100: 1.7714 (0.0013) measured, 1.7654 as n grows."""
    model = Pull(1000, [Pool(1.0)], 100, 0.9)
    found = jaxq.simulate(model, np.linspace(60, 150, 31), 1, replicas=256, initial=[[960, 300, 100, 30, 10]], save="paths")
    times = found.paths.sum(axis=1).mean(axis=0) / 900
    own = times.std(ddof=1) / times.size**0.5
    assert abs(times.mean() - 1.7714) < 5 * math.hypot(own, 0.0013)
    assert abs(times.mean() - pull_theory.many_routers_response_time(10, 0.9)) < 0.02
