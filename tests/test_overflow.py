"""Running out of levels in the middle of a run: the call is done again with more of them, and nothing else is changed.

Every model starts with few levels, at a load at which queues pass them call after call, and is compared with one that had
levels enough from the start: the same tails and counters after every segment, on two devices, and the same results.
"""

import networkx as nx
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine, graphs
from jaxq.bulk import Bulk
from jaxq.leap import Leap
from jaxq.models.classes import SupermarketClasses
from jaxq.models.pools import Pool
from jaxq.time_average import balance

MIXED = [Pool(0.5, 1.0), Pool(0.5, 0.5, 3)]
SEED, REPLICAS = 2**33 + 9, 5


def supermarket(levels, n=6, d=2, rate=1.7, **options):
    return jaxq.Supermarket(n, d, rate, levels=levels, **options)


def classes(levels):
    return SupermarketClasses(6, MIXED, 2, 2.6, levels=levels)


def irregular(levels):
    graph = graphs.from_adjacency(nx.disjoint_union(nx.star_graph(3), nx.cycle_graph(3)))
    return jaxq.GraphSupermarket(graph, 3, 2.5, levels=levels, service_rates=np.arange(1.0, 8.0) / 4)


#: The model with so many levels, few and enough levels, and (segments, ticks of each) of three calls, the first of which fits.
CASES = {
    "supermarket": (supermarket, 4, 16, [(8, 3), (8, 7), (8, 14)]),
    "classes": (classes, 4, 16, [(8, 3), (8, 7), (8, 24)]),
    # bytes at first, 16 bits a length from 128 levels on
    "graph": (lambda levels: jaxq.GraphSupermarket(graphs.ring(3), 2, 4.0, levels=levels), 64, 256, [(8, 20), (8, 50), (8, 55)]),
    "pull": (lambda levels: jaxq.Pull(6, MIXED, 2, 1.4, levels=levels), 4, 16, [(8, 2), (4, 5), (8, 15)]),
    "two queues": (lambda levels: jaxq.TwoQueues(None, 4.0, (1.0, 0.5), levels=levels), 4, 16, [(8, 1), (6, 2), (6, 3)]),
    "distinct": (lambda levels: supermarket(levels, d=3, replacement=False), 4, 16, [(8, 3), (8, 10), (8, 14)]),
    "shortest of all": (lambda levels: supermarket(levels, n=66, d=66, rate=3.0), 2, 8, [(8, 20), (8, 40), (8, 60)]),
    "irregular graph": (irregular, 4, 16, [(8, 1), (8, 6), (8, 9)]),
    "large graph": (lambda levels: jaxq.GraphSupermarket(graphs.ring(20_001), 2, 5.0, levels=levels), 1, 8,
                    [(8, 1), (8, 300), (8, 3000)]),
    "stale": (lambda levels: jaxq.Pull(6, MIXED, 2, 1.4, "stale", levels=levels), 4, 16, [(8, 2), (4, 5), (8, 15)]),
    "leap": (lambda levels: Leap(supermarket(levels, n=50), 1 / 8, 1), 4, 16, [(2, 1), (8, 2), (8, 3)]),
    "bulk": (lambda levels: Bulk(supermarket(levels, n=200)), 4, 16, [(8, 100), (8, 250), (8, 450)]),
    "kernel": (supermarket, 4, 16, [(8, 3), (8, 7), (8, 14)]),
}
OFTEN = ("supermarket", "classes", "graph", "two queues")


def levels_of(model):
    return getattr(model, "model", model).levels


def follow(make, levels, calls, **options):
    """Levels after each call, and of all segments the tails and the counters' totals."""
    run = engine.Engine(make(levels), None, bits.key_words(SEED), REPLICAS, **options)
    assert len(run._mesh.devices) == 2
    history, tails, totals = [], [], []
    for segments, ticks in calls:
        counts, counters = run.advance(np.full((segments, REPLICAS), ticks))
        history.append(levels_of(run.model))
        tails += [np.asarray(run.model.tail(one)) for one in counts]
        totals.append(counters)
    return history, tails, {name: np.concatenate([each[name] for each in totals]) for name in totals[0]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in CASES])
def test_a_run_that_grows_is_that_of_levels_enough(name):
    make, few, enough, calls = CASES[name]
    options = {"kernel": True} if name == "kernel" else {}
    history, tails, totals = follow(make, few, calls, **options)
    assert history == [few, *history[1:]]
    assert few < history[1] < history[2] == enough, "it grows in the second call and in the third"
    steady, wanted, counted = follow(make, enough, calls)
    assert steady == [enough] * 3
    for one, other in zip(tails, wanted, strict=True):
        np.testing.assert_array_equal(one, other[: len(one)])
        assert not other[len(one):].any()
    assert totals.keys() == counted.keys()
    for counter, total in totals.items():
        np.testing.assert_array_equal(total, counted[counter])
    assert totals["arrivals"][-1].min() > 0
    if name in ("classes", "pull", "stale"):  # the pool with a buffer goes on losing customers
        assert totals["lost"][-1].min() > 0


@pytest.mark.parametrize("name", ["supermarket", "classes", pytest.param("leap", marks=pytest.mark.slow)])
def test_results_do_not_show_where_levels_ran_out(name, monkeypatch):
    """Moments, paths, counters and what follows from them, by calls of some 30 ticks, and of a leap also between two ticks."""
    make, few, enough, _ = CASES[name]
    seen, advance = [], engine.Engine.advance

    def watched(self, takes):
        done = advance(self, takes)
        seen.append(levels_of(self.model))
        return done

    monkeypatch.setattr(engine, "_CALL", 200.0)
    monkeypatch.setattr(engine.Engine, "advance", watched)
    results = []
    for levels in (few, enough):
        model, options = make(levels), {}
        if name == "leap":
            model, options = model.model, {"algorithm": "leap", "step": 1 / 8, "order": 1}
        results.append(jaxq.simulate(model, np.linspace(0.1, 12.0, 9), SEED, replicas=REPLICAS, save="paths", **options))
    grown = seen[: len(seen) // 2]
    assert grown[0] == few
    assert len(set(grown)) == 3
    assert seen[len(seen) // 2:] == [enough] * (len(seen) // 2)
    one, other = results
    for field in ("paths", "tail_mean", "tail_variance", "mean_queue_length", "mean_queue_length_variance"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    for field in ("events", "arrivals", "departures", "counters"):
        assert getattr(one, field) == getattr(other, field)
    for counter, path in one.counter_paths.items():
        np.testing.assert_array_equal(path, other.counter_paths[counter])
    if name == "leap":
        np.testing.assert_array_equal(one.tail_step_error, other.tail_step_error)


STEADY = {"supermarket": lambda levels: jaxq.Supermarket(20, 2, 0.9, levels=levels),
          "two queues": lambda levels: jaxq.TwoQueues(None, 1.5, (1.0, 1.0), levels=levels),
          "classes": lambda levels: SupermarketClasses(10, [Pool(0.5, 1.0), Pool(0.5, 0.8)], 2, 0.7, levels=levels)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "supermarket" else pytest.mark.slow) for name in STEADY])
def test_steady_states_do_not_depend_on_the_levels(name):
    """Neither the start, nor the controls: servers at the last level take arrivals to one that the model does not have."""
    few, many = (jaxq.stationary(STEADY[name](levels), 1, replicas=64, warmup=20.0, horizon=200.0) for levels in (1, 32))
    assert few.events == many.events
    for field in ("mean_queue_length", "mean_queue_length_stderr", "p_wait", "control_gain"):
        np.testing.assert_allclose(getattr(few, field), getattr(many, field), rtol=1e-9)
    size = min(few.tail.size, many.tail.size)
    np.testing.assert_allclose(few.tail[:size], many.tail[:size], rtol=1e-9, atol=1e-12)
    if name == "supermarket":  # the total flow balances in every sample
        assert abs(few.tail[0] - 0.9) < 1e-9


def test_flows_from_the_last_level_are_those_of_a_larger_model():
    counts = np.array([[20, 20, 20], [12, 0, 7], [5, 0, 0]])
    small, large = (balance(jaxq.Supermarket(20, 2, 0.9, levels=levels)) for levels in (3, 6))
    tail = counts[None] / 20
    flow, second = small(counts, tail, tail.sum(axis=(0, 1)))
    wanted, also = large(np.pad(counts, ((0, 3), (0, 0))), np.pad(tail, ((0, 0), (0, 3), (0, 0))), tail.sum(axis=(0, 1)))
    np.testing.assert_allclose(flow, wanted, rtol=1e-13)
    np.testing.assert_allclose(second, also, rtol=1e-13)
    assert flow[0, 3, 0] == pytest.approx(0.9 * 0.25**2)


@pytest.mark.parametrize("which", [0, REPLICAS - 1])
def test_one_replica_that_runs_out_takes_the_others_along(which):
    """Replicas with unlike numbers of ticks: only one passes the levels, on the first or on the second device."""
    takes = np.full((1, REPLICAS), 2)
    takes[0, which] = 200
    runs = [engine.Engine(supermarket(levels), None, bits.key_words(SEED), REPLICAS) for levels in (4, 16)]
    (one, counted), (other, wanted) = (run.advance(takes) for run in runs)
    assert runs[0].model.levels > 4
    assert np.flatnonzero(one[0, 4]).tolist() == [which]
    np.testing.assert_array_equal(one, other[:, : one.shape[1]])
    np.testing.assert_array_equal(counted["arrivals"], wanted["arrivals"])
