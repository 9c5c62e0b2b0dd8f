"""Queue-length vectors on graphs: the hand-written law of one tick, and agreement with the occupancy form on the complete
graph."""

import itertools
import time

import jax
import networkx as nx
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine, graphs
from jaxq.models import graph as graph_model
from jaxq.models import graph_draw
from jaxq.testing import check_model


def law(model):
    """The law of one tick of the vector chain: every set (or list) a customer may ask alike, ties uniform."""
    n, d, graph = model.n, model.d, model.graph
    rates = np.ones(n) if model.service_rates is None else np.asarray(model.service_rates)
    total = n * model.arrival_rate + rates.sum()

    def transitions(q):
        after = {}

        def add(server, step, probability):
            target = q.copy()
            target[server] += step
            after[tuple(target.tolist())] = after.get(tuple(target.tolist()), 0.0) + probability

        for own in range(n):
            others = graph.neighbours_of(own).tolist()
            asked = list(itertools.product([own, *others], repeat=d - 1) if model.replacement else
                         itertools.combinations(others, min(d - 1, len(others))))
            for chosen in asked:
                servers = [own, *chosen]
                shortest = [s for s in servers if q[s] == min(q[s] for s in servers)]
                for server in shortest:
                    full = model.buffer is not None and q[server] >= model.buffer
                    add(server, 0 if full else 1, model.arrival_rate / total / len(asked) / len(shortest))
        for server in range(n):
            add(server, -1 if q[server] > 0 else 0, rates[server] / total)
        return after

    return transitions


def states_of(n, top, count=8):
    rng = np.random.default_rng(2)
    return [np.zeros(n, int), np.full(n, top), np.arange(n) % (top + 1)] + [rng.integers(0, top + 1, n) for _ in range(count)]


@pytest.mark.parametrize(("n", "d", "replacement", "buffer"), [
    (32, 2, False, None), (32, 2, True, None), (9, 3, False, 3), (9, 3, True, 3), (5, 1, False, None), (4, 4, False, None)])
def test_one_tick_follows_the_hand_written_law_on_the_complete_graph(n, d, replacement, buffer):
    model = jaxq.GraphSupermarket(graphs.complete(n), d, 0.7, replacement, buffer)
    check_model(model, states_of(n, buffer or 4, 4), law=law(model), view=lengths, lanes=2**19)


def irregular():
    """A path of three, a star of five leaves, a triangle and an isolated vertex."""
    return graphs.from_adjacency(nx.disjoint_union_all([nx.path_graph(3), nx.star_graph(5), nx.cycle_graph(3), nx.empty_graph(1)]))


GRAPHS = {"ring": lambda: graphs.ring(7), "wide ring": lambda: graphs.ring(9, 4), "irregular": irregular,
          "edgeless": lambda: graphs.erdos_renyi(4, 0, 1)}


@pytest.mark.parametrize(("name", "d", "replacement", "buffer", "unequal"), [
    ("ring", 2, False, None, False), ("ring", 3, True, None, True), ("wide ring", 3, False, 3, False),
    ("irregular", 2, False, 2, True), ("irregular", 2, True, None, False), ("irregular", 3, False, None, False),
    ("irregular", 4, False, None, True), ("irregular", 3, True, 2, False), ("irregular", 1, False, None, True),
    ("edgeless", 2, False, None, False), ("edgeless", 3, False, 2, False)])
def test_one_tick_follows_the_hand_written_law_on_graphs(name, d, replacement, buffer, unequal):
    graph = GRAPHS[name]()
    rates = np.random.default_rng(5).integers(0, 7, graph.n) / 2 + (np.arange(graph.n) == 1) if unequal else None
    model = jaxq.GraphSupermarket(graph, d, 0.7, replacement, buffer, service_rates=rates)
    check_model(model, states_of(graph.n, buffer or 4, 3), law=law(model), view=lengths, lanes=2**18)


@pytest.mark.parametrize("size", ["packed", "packed large", "narrow", "wide"])
def test_every_way_to_draw_follows_the_law(size, monkeypatch):
    monkeypatch.setattr(graph_model.graph_draw, "word_size", lambda *args: size)
    for d, replacement in ((2, False), (3, False), (3, True)):
        model = jaxq.GraphSupermarket(graphs.ring(8, 4), d, 0.7, replacement, service_rates=[1, 2, 0, 1, 1, 3, 1, 0.5])
        check_model(model, states_of(8, 3, 2), law=law(model), view=lengths, lanes=2**18)


def lengths(state):
    return state[0]


def test_a_wrong_law_fails_the_contract():
    model = jaxq.GraphSupermarket(graphs.complete(8), 2, 0.7)
    other = jaxq.GraphSupermarket(graphs.complete(8), 2, 0.7, replacement=True)
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
    two = jaxq.simulate(jaxq.GraphSupermarket(graphs.complete(30), d, 0.8, replacement), ts, 2, replicas=4000,
                        initial=start)
    for field in ("tail", "mean_queue_length"):
        a, b = getattr(one, field if "mean" in field else "tail_mean"), getattr(two, field if "mean" in field else "tail_mean")
        error = np.hypot(getattr(one, f"{field}_stderr"), getattr(two, f"{field}_stderr"))
        seen = error > 1e-5
        assert np.all(np.abs(a - b)[seen] < 5 * error[seen])
    assert abs(one.tail_variance[-1, 1] / two.tail_variance[-1, 1] - 1) < 5 * np.sqrt(2 * 2 / 4000)


def test_ties_are_uniform_over_servers():
    """All servers empty: each gets the first customer equally often, also among distinct choices."""
    model = jaxq.GraphSupermarket(graphs.complete(6), 3, 1.0)
    found = check_model(model, [np.zeros(6, int)], law=law(model), view=lengths, lanes=2**21)
    assert found.least_p > 1e-6


@pytest.mark.parametrize(("make", "message"), [
    (lambda: jaxq.GraphSupermarket(7, 2, 0.5), "graph must come from jaxq.graphs"),
    (lambda: jaxq.GraphSupermarket(graphs.complete(3), 4, 0.5), "d must be at most n"),
    (lambda: jaxq.GraphSupermarket(graphs.complete(3), 2, -0.5), "arrival_rate must be a finite number above 0"),
    (lambda: jaxq.GraphSupermarket(graphs.ring(3), 0, 0.5), "d must be an integer at least 1"),
    (lambda: jaxq.GraphSupermarket(graphs.ring(3), 2, 0.5, service_rates=[1, 2]), r"service_rates must be n = 3 .*shape \(2,\)"),
    (lambda: jaxq.GraphSupermarket(graphs.ring(3), 2, 0.5, service_rates=[1, -2, 1]), "service_rates must be n = 3 finite rates"),
    (lambda: jaxq.GraphSupermarket(graphs.ring(3), 2, 0.5, service_rates=[0, 0, 0]), "not all 0"),
    (lambda: jaxq.mean_field(jaxq.GraphSupermarket(graphs.ring(9), 2, 0.5), [1.0]), "occupancy is not closed.*pair approximation")])
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("initial", "message"), [
    ([1, 2], r"must be n = 3 queue lengths.*shape \(2,\)"), ([1, -1, 0], "queue lengths"), ([0.1, 0.5], "fractions 1 >= S_1"),
    ([9, 0, 0], "at most buffer = 4")])
def test_impossible_starts_are_refused(initial, message):
    model = jaxq.GraphSupermarket(graphs.complete(3), 2, 0.5, buffer=4)
    with pytest.raises(ValueError, match=message):
        jaxq.simulate(model, [1.0], 0, replicas=1, initial=initial)


def test_customers_are_conserved_server_by_server():
    model = jaxq.GraphSupermarket(graphs.complete(12), 2, 0.9, buffer=3)
    result = jaxq.simulate(model, [50.0], 3, replicas=20, devices=jax.devices()[:1])
    lost = result.counters["lost"]
    assert result.arrivals - lost - result.departures == round(result.mean_queue_length[-1] * 12 * 20)
    assert lost > 0


def test_alias_tables_share_out_the_words_of_services():
    """Alias tables give vertex v its share of the words of services, to within one unit of 2**-32 a column."""
    rates = np.random.default_rng(0).gamma(0.3, size=1000)
    rates[:5] = 0
    own, alias = graph_draw.alias(rates, 2**31)
    kept = own.astype(np.int64) - 2**31 + (own == 2**32 - 1)
    share = kept + np.bincount(alias, 2**31 - kept, minlength=1000)
    assert np.max(np.abs(share / 2**31 - rates * 1000 / rates.sum())) < 1e-6
    assert not share[:5].any()


def test_fractions_go_to_random_vertices_each_replica_its_own():
    model = jaxq.GraphSupermarket(graphs.ring(500), 2, 0.5)
    keys = bits.fold_in(bits.key_words(1), np.arange(3, dtype=np.uint32))
    _, (q, highest, *_) = model.init([0.5, 0.2], keys)
    assert ((q >= 1).sum(axis=0) == 250).all()
    assert ((q >= 2).sum(axis=0) == 100).all()
    assert (highest == 2).all()
    assert (np.abs((q[:250] >= 1).sum(axis=0) - 125) < 5 * 5.6).all()  # standard deviation sqrt(500)/4
    assert not np.array_equal(q[:, 0], q[:, 1])
    _, (alone, *_) = model.init([0.5, 0.2], tuple(key[1:2] for key in keys))
    np.testing.assert_array_equal(alone[:, 0], q[:, 1])


SYSTEMS = {"ring": lambda: jaxq.GraphSupermarket(graphs.ring(50, 4), 2, 0.9),
           "irregular": lambda: jaxq.GraphSupermarket(irregular(), 3, 0.6, service_rates=np.arange(1.0, 14.0)),
           "large": lambda: jaxq.GraphSupermarket(graphs.ring(2**16 + 1), 2, 0.9)}


@pytest.mark.parametrize("name", SYSTEMS)
def test_replicas_blocks_chunks_and_devices_do_not_matter(name):
    model = SYSTEMS[name]()

    def final(replicas=5, calls=1, **options):
        run = engine.Engine(model, np.array([0.8, 0.3]), bits.key_words(9), replicas, **options)
        for _ in range(calls):
            run.advance(np.full((1, replicas), 280 // calls))
        return np.asarray(run.state[0])[:, :min(replicas, 5)]

    wanted = final()
    np.testing.assert_array_equal(final(replicas=1), wanted[:, :1])
    np.testing.assert_array_equal(final(replicas=7, block=2), wanted)
    np.testing.assert_array_equal(final(chunk=7, calls=4), wanted)
    np.testing.assert_array_equal(final(devices=jax.devices()[:1]), wanted)


ALONE = {"one choice": lambda: jaxq.GraphSupermarket(graphs.ring(9), 1, 0.8, buffer=2),
         "buffer": lambda: jaxq.GraphSupermarket(graphs.ring(12, 4), 2, 1.3, buffer=2),
         "replacement": lambda: jaxq.GraphSupermarket(irregular(), 2, 0.7, replacement=True),
         "three": lambda: jaxq.GraphSupermarket(irregular(), 3, 1.2, buffer=3, service_rates=np.arange(1.0, 14.0)),
         "complete": lambda: jaxq.GraphSupermarket(graphs.complete(10), 2, 0.9)}


@pytest.mark.parametrize("name", ["buffer", "replacement", *(pytest.param(name, marks=pytest.mark.slow)
                                                             for name in ("one choice", "three", "complete"))])
def test_one_replica_at_a_time_makes_the_same_integers(name):
    """Scalar reads and writes against gathers and scatters, with null ticks: the replicas have had unequal numbers."""
    def run(**options):
        run = engine.Engine(ALONE[name](), None, bits.key_words(4), 4, devices=jax.devices()[:1], **options)
        for _ in range(2):
            counts, totals = run.advance(np.array([[350, 301, 17, 0]]))
        return [*(np.asarray(leaf)[..., :4] for leaf in run.state[:2]), counts, *totals.values()]

    for alone, together in zip(run(block=1), run(block=4), strict=True):
        np.testing.assert_array_equal(alone, together)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "buffer"), [(2, None), (2, 5), (3, None)])
def test_a_tick_of_a_large_graph_copies_nothing(d, buffer):
    """Ticks at n = 1e6 take at most 30 times as long as at n = 1000, where copying the queues would take 1000 times."""
    def seconds(n):
        model = jaxq.GraphSupermarket(graphs.ring(n, 4), d, 0.9, buffer=buffer)
        run = engine.Engine(model, None, bits.key_words(1), 1, block=1)
        takes = np.full((1, 1), 100_000)
        run.advance(takes)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            run.advance(takes)
            times.append(time.perf_counter() - start)
        return min(times)

    assert jaxq.GraphSupermarket(graphs.ring(10**6), d, 0.9).block == 1
    assert seconds(10**6) < 30 * seconds(1000)


@pytest.mark.slow
def test_lanes_widen_when_queues_grow():
    """At twice the capacity queues pass 127 customers: int8 lanes give way, and no customer is lost."""
    model = jaxq.GraphSupermarket(graphs.ring(3), 2, 4.0)
    assert model.lane == "int8"
    result = jaxq.simulate(model, [60.0], 3, replicas=4)
    assert result.mean_queue_length[-1] > 150
    assert result.arrivals - result.departures == round(result.mean_queue_length[-1] * 3 * 4)
    np.testing.assert_array_equal(result.tail_mean[-1, :8], 1.0)


def test_real_networks_run():
    for make in (nx.karate_club_graph, nx.les_miserables_graph):
        graph = graphs.from_adjacency(make())
        result = jaxq.simulate(jaxq.GraphSupermarket(graph, 3, 0.5), [2.0], 1, replicas=4)
        assert 0 < result.mean_queue_length[-1] < 2
        assert result.model["graph"].startswith(f"Graph(n={graph.n}")
