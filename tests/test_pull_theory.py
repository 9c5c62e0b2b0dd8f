"""PULL: where it starts, what it refuses, and its closed theory."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pull_protocol import MODELS
from scipy.stats import binom, chi2

from jaxq import pull_theory
from jaxq.models import pull_start
from jaxq.models.pools import Pool
from jaxq.models.pull import Pull


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


def test_many_routers_balance_their_messages():
    """A router's messages are a birth-death chain: births r lambda (1 - lambda q), deaths lambda r + k lambda q. Its law must
    have q at 0 and the mean r (1 - lambda), the idle servers."""
    for r, rate in ((0.3, 0.9), (4.0, 0.7), (10.0, 0.95)):
        q = (1 - 1 / pull_theory.many_routers_response_time(r, rate)) / rate
        k = np.arange(1, 3000)
        law = np.append(1.0, np.cumprod(r * rate * (1 - rate * q) / (rate * r + k * rate * q)))
        law /= law.sum()
        assert law[0] == pytest.approx(q, rel=1e-10)
        assert law[1:] @ k == pytest.approx(r * (1 - rate), rel=1e-9)


def test_a_gradient_passes_where_a_router_is_empty():
    model = MODELS["two pools"]
    with jax.enable_x64(True):
        full = jnp.asarray([0.4, 0.0, 0.0, 0.0, 0.6, 0.0])  # everybody busy
        assert np.isfinite(np.asarray(jax.jacfwd(model.rates)(full))).all()
        slope = jax.grad(lambda rate: model_drift(model, rate))(0.8)
    assert np.isfinite(slope)


def model_drift(model, rate):
    return jnp.sum(dataclasses.replace(model, arrival_rate=rate).drift(jnp.asarray(model.guess())) ** 2)
