"""Queue-length vectors on the complete graph: the hand-written law of one tick, and agreement with the occupancy form."""

import itertools

import jax
import numpy as np
import pytest

import jaxq
from jaxq.testing import check_model


def law(model):
    """The law of one tick of the vector chain: every set (or list) of d servers alike, ties uniform."""
    n, d, rate = model.n, model.d, model.arrival_rate

    def transitions(q):
        after = {}

        def add(server, step, probability):
            target = q.copy()
            target[server] += step
            after[tuple(target.tolist())] = after.get(tuple(target.tolist()), 0.0) + probability

        choices = list(itertools.product(range(n), repeat=d) if model.replacement else itertools.combinations(range(n), d))
        for servers in choices:
            shortest = [s for s in servers if q[s] == min(q[s] for s in servers)]
            for server in shortest:
                full = model.buffer is not None and q[server] >= model.buffer
                add(server, 0 if full else 1, rate / (1 + rate) / len(choices) / len(shortest))
        for server in range(n):
            add(server, -1 if q[server] > 0 else 0, 1 / (1 + rate) / n)
        return after

    return transitions


@pytest.mark.parametrize(("n", "d", "replacement", "buffer"), [
    (32, 2, False, None), (32, 2, True, None), (9, 3, False, 3), (9, 3, True, 3), (5, 1, False, None), (4, 4, False, None)])
def test_one_tick_follows_the_hand_written_law(n, d, replacement, buffer):
    model = jaxq.GraphSupermarket(jaxq.graphs.complete(n), d, 0.7, replacement, buffer)
    rng, top = np.random.default_rng(2), buffer or 4
    states = [np.zeros(n, int), np.full(n, top), np.full(n, top - 1), np.arange(n) % (top + 1)]
    states += [rng.integers(0, top + 1, n) for _ in range(16)]
    check_model(model, states, law=law(model), view=lengths)


def lengths(state):
    return state[0]


def test_a_wrong_law_fails_the_contract():
    model = jaxq.GraphSupermarket(jaxq.graphs.complete(8), 2, 0.7)
    other = jaxq.GraphSupermarket(jaxq.graphs.complete(8), 2, 0.7, replacement=True)
    with pytest.raises(AssertionError, match="does not follow the law"):
        check_model(model, [np.arange(8)], law=law(other), view=lengths)
    with pytest.raises(ValueError, match=r"check_model needs law=\.\.\. for GraphSupermarket"):
        check_model(model)


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("d", [2, 3])
def test_vectors_and_occupancy_agree_in_law(d, replacement):
    """Every level and time within 5 joint standard errors, from a start that is not empty."""
    start = np.array([0.9, 0.5, 0.2])
    ts = [0.5, 2.0, 8.0]
    one = jaxq.simulate(jaxq.Supermarket(30, d, 0.8, replacement), ts, 1, replicas=4000, initial=start)
    two = jaxq.simulate(jaxq.GraphSupermarket(jaxq.graphs.complete(30), d, 0.8, replacement), ts, 2, replicas=4000,
                        initial=start)
    for field in ("tail", "mean_queue_length"):
        a, b = getattr(one, field if "mean" in field else "tail_mean"), getattr(two, field if "mean" in field else "tail_mean")
        error = np.hypot(getattr(one, f"{field}_stderr"), getattr(two, f"{field}_stderr"))
        seen = error > 1e-5
        assert np.all(np.abs(a - b)[seen] < 5 * error[seen])
    assert abs(one.tail_variance[-1, 1] / two.tail_variance[-1, 1] - 1) < 5 * np.sqrt(2 * 2 / 4000)


def test_ties_are_uniform_over_servers():
    """All servers empty: each gets the first customer equally often, also among distinct choices."""
    model = jaxq.GraphSupermarket(jaxq.graphs.complete(6), 3, 1.0)
    found = check_model(model, [np.zeros(6, int)], law=law(model), view=lengths, lanes=2**21)
    assert found.least_p > 1e-6


@pytest.mark.parametrize(("make", "message"), [
    (lambda: jaxq.GraphSupermarket(7, 2, 0.5), "graph must come from jaxq.graphs"),
    (lambda: jaxq.GraphSupermarket(jaxq.graphs.complete(3), 4, 0.5), "d must be at most n"),
    (lambda: jaxq.GraphSupermarket(jaxq.graphs.complete(3), 2, -0.5), "arrival_rate must be a finite number above 0"),
    (lambda: jaxq.graphs.complete(0), "n must be an integer at least 1")])
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("initial", "message"), [
    ([1, 2], r"must be n = 3 queue lengths.*shape \(2,\)"), ([1, -1, 0], "queue lengths"), ([0.1, 0.5], "fractions 1 >= S_1"),
    ([9, 0, 0], "at most buffer = 4")])
def test_impossible_starts_are_refused(initial, message):
    model = jaxq.GraphSupermarket(jaxq.graphs.complete(3), 2, 0.5, buffer=4)
    with pytest.raises(ValueError, match=message):
        jaxq.simulate(model, [1.0], 0, replicas=1, initial=initial)


def test_customers_are_conserved_server_by_server():
    model = jaxq.GraphSupermarket(jaxq.graphs.complete(12), 2, 0.9, buffer=3)
    result = jaxq.simulate(model, [50.0], 3, replicas=20, devices=jax.devices()[:1])
    lost = result.counters["lost"]
    assert result.arrivals - lost - result.departures == round(result.mean_queue_length[-1] * 12 * 20)
    assert lost > 0
