"""Join the shortest of d sampled queues with pools: the protocol server by server, the contract, exact values."""

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


def test_a_fixed_point_with_more_levels_than_the_model_is_split_by_pools():
    model = SupermarketClasses(100, [Pool(0.25, 2.0), Pool(0.75, 0.6)], 2, 0.7, levels=4)
    density = jaxq.fixed_point(model).density
    fast, slow = model.split(density)
    assert density.size > 2 * model.levels
    assert 2.0 * fast[0] + 0.6 * slow[0] == pytest.approx(0.7, rel=1e-9)  # served as fast as they arrive
    with pytest.raises(ValueError, match="tails of one pool after the other"):
        model.split(density[:-1])


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
