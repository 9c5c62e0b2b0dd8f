"""What holds for every model, load, start and seed: conservation, monotone tails, coupling, scaling, independence, invariance.

Examples differ in numbers only, which are leaves: each test compiles once per kind of model.
"""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxq
from jaxq import bits, engine, exact, graphs
from jaxq.bulk import Bulk
from jaxq.leap import Leap
from jaxq.models.classes import SupermarketClasses
from jaxq.models.pools import Pool
from jaxq.ticks import PoissonPath

SEEDS = st.integers(0, 2**64 - 1)
LOADS = st.integers(1, 60).map(lambda k: k / 20 + 0.013)  # 0.06 to 3, not so near 1 that ranks get longer words
RATES = st.sampled_from([0.3, 1.0, 2.5])
TICKS = 48


def tails_of(n, levels):
    """Tail counts n >= x_1 >= ... >= 0."""
    return st.lists(st.integers(0, n), min_size=levels, max_size=levels).map(lambda tail: np.array(sorted(tail, reverse=True)))


@st.composite
def supermarkets(draw, **options):
    n = draw(st.integers(3, 5000))
    return jaxq.Supermarket(n, arrival_rate=draw(LOADS), **options), draw(tails_of(n, 3))


@st.composite
def pools(draw):
    sizes = draw(st.lists(st.integers(1, 30), min_size=2, max_size=2))
    kinds = [Pool(size / sum(sizes), draw(RATES), buffer) for size, buffer in zip(sizes, (None, 2), strict=True)]
    return SupermarketClasses(sum(sizes), kinds, 2, draw(LOADS), levels=64), [draw(tails_of(size, 2)).tolist() for size in sizes]


@st.composite
def rings(draw):
    lengths = draw(st.lists(st.integers(0, 3), min_size=12, max_size=12))
    return jaxq.GraphSupermarket(graphs.ring(12), 2, draw(LOADS), buffer=3), np.array(lengths)


@st.composite
def pairs(draw):
    model = jaxq.TwoQueues(draw(st.integers(4, 9)), draw(LOADS), (draw(RATES), draw(RATES)), levels=4)
    return model, np.array(draw(st.lists(st.integers(0, 4), min_size=2, max_size=2)))


@st.composite
def pulls(draw):
    sizes = draw(st.lists(st.integers(1, 20), min_size=2, max_size=2))
    kinds = [Pool(size / sum(sizes), draw(RATES), buffer) for size, buffer in zip(sizes, (None, 2), strict=True)]
    return jaxq.Pull(sum(sizes), kinds, 2, draw(LOADS), "stale", levels=32), [[draw(st.integers(0, size))] for size in sizes]


KINDS = {
    "supermarket": supermarkets(d=2, levels=64),
    "supermarket with a buffer": supermarkets(d=3, replacement=False, buffer=3),
    "classes": pools(),
    "ring": rings(),
    "two queues": pairs(),
    "stale": pulls(),
}


def every_tick(model, initial, seed, replicas=4, ticks=TICKS, **options):
    """Tails (ticks + 1, levels, replicas) and the counters' totals after every single tick, and before the first."""
    run = engine.Engine(model, initial, bits.key_words(seed), replicas, segments=ticks + 1, **options)
    takes = np.ones((ticks + 1, replicas), np.int64)
    takes[0] = 0
    counts, totals = run.advance(takes)
    return np.array([np.asarray(run.model.tail(one)) for one in counts]), totals


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "stale" else []) for name in KINDS])
def test_every_tick_moves_one_customer_at_most_and_none_is_lost_uncounted(name):
    @settings(max_examples=15)
    @given(KINDS[name], SEEDS)
    def holds(case, seed):
        model, initial = case
        tails, totals = every_tick(model, initial, seed)
        assert (np.diff(tails, axis=1) <= 0).all()
        assert tails.min() >= 0
        assert tails.max() <= model.n
        come, lost = np.diff(totals["arrivals"], axis=0), np.diff(totals.get("lost", np.zeros_like(totals["arrivals"])), axis=0)
        change = np.diff(tails.sum(axis=1), axis=0)
        assert set(np.unique(come)) <= {0, 1}
        assert ((lost >= 0) & (lost <= come)).all()
        gone = come - lost - change  # start + arrivals - lost - departures = present
        assert set(np.unique(gone)) <= {0, 1}
        assert not (gone * come).any(), "an arrival and a departure in one tick"
        if name in ("two queues", "supermarket with a buffer", "ring"):  # a full server takes nobody
            full = (model.n if name != "two queues" else 2) * (getattr(model, "buffer", None) or getattr(model, "capacity", None))
            assert tails.sum(axis=1).max() <= full

    holds()


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(3, 5000), LOADS, SEEDS)
def test_leaps_count_all_that_happens(n, rate, seed):
    """Events that are counted are arrivals that join and departures; each changes the number of customers by one."""
    run = engine.Engine(Leap(jaxq.Supermarket(n, 2, rate, buffer=3), 1 / 8), [n // 2], bits.key_words(seed), 4)
    counts, totals = run.advance(np.tile([[0], [1], [3], [8], [2]], (1, 4)))
    tails = np.array([run.model.tail(one) for one in counts])
    joined = totals["arrivals"] - totals["lost"]
    np.testing.assert_array_equal(tails.sum(axis=1), n // 2 + joined - (totals["events"] - joined))
    assert (np.diff(tails, axis=1) <= 0).all()
    assert tails.min() >= 0
    assert tails.max() <= n


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(1000, 1500), LOADS, SEEDS)  # which share a program
def test_batches_count_every_tick_once(n, rate, seed):
    run = engine.Engine(Bulk(jaxq.Supermarket(n, 2, rate, buffer=3)), [n, n // 2], bits.key_words(seed), 4)
    takes = np.tile([[0], [1], [40], [300], [7]], (1, 4))
    counts, totals = run.advance(takes)
    gone = n + n // 2 + totals["arrivals"] - totals["lost"] - counts.sum(axis=1)
    services = np.cumsum(takes, axis=0) - totals["arrivals"]
    assert (np.diff(gone, axis=0) >= 0).all()
    assert (np.diff(services - gone, axis=0) >= 0).all(), "a departure without a service"
    assert (np.diff(counts, axis=1) <= 0).all()
    assert counts.max() <= n


@pytest.mark.parametrize("options", [{"d": 2, "levels": 64}, {"d": 3, "replacement": False, "buffer": 3}],
                         ids=["unbounded", "buffer"])
def test_more_arrivals_make_no_queue_shorter(options):
    """One clock, the same words: the arrivals of the lower rate are among those of the higher, at the same ranks."""
    @settings(max_examples=25)
    @given(st.integers(3, 5000), st.lists(LOADS, min_size=2, max_size=2), SEEDS, st.data())
    def holds(n, rates, seed, data):
        models = [jaxq.Supermarket(n, arrival_rate=rate, **options) for rate in sorted(rates)]
        starts = data.draw(st.lists(tails_of(n, 3), min_size=2, max_size=2))
        low, high = (every_tick(model, start, seed, clock=models[1].clock())
                     for model, start in zip(models, (np.minimum(*starts), np.maximum(*starts)), strict=True))
        assert (low[0] <= high[0]).all()
        for counter, total in low[1].items():
            assert (total <= high[1][counter]).all()

    holds()


def test_null_ticks_leave_the_law_as_it_is():
    """A clock with room, and more ticks: mean tails of the exact law, and Poisson numbers of arrivals, at 5 standard errors."""
    replicas, t = 4000, 1.5

    @settings(max_examples=6)
    @given(st.sampled_from([1.0, 1.5, 2.0, 6.0]), st.sampled_from([0.4, 0.9, 1.6]), st.integers(0, 2**32))
    def holds(room, rate, seed):
        model = jaxq.Supermarket(3, 2, rate, buffer=4)
        run = engine.Engine(model, [2, 1], bits.key_words(seed), replicas, clock=room * model.clock())
        path = PoissonPath(run.clock, tuple(key[:replicas] for key in run.keys))
        tail, totals = run.advance(path.count(t)[None])
        wanted = exact.transient(model, [t], initial=[2, 1])
        assert run.ticks[:replicas].mean() == pytest.approx(run.clock * t, abs=5 * (run.clock * t / replicas) ** 0.5)
        error = tail[0].std(axis=1) / 3 / replicas**0.5
        assert (np.abs(tail[0].mean(axis=1) / 3 - wanted.tail[0]) < 5 * error + 1e-9).all()
        arrivals, mean = totals["arrivals"][0], 3 * rate * t
        assert abs(arrivals.mean() - mean) < 5 * (mean / replicas) ** 0.5
        assert abs(arrivals.var() / mean - 1) < 5 * ((2 + 1 / mean) / replicas) ** 0.5

    holds()


def correlation(one, other):
    return abs(np.corrcoef(np.ravel(one).astype(float), np.ravel(other).astype(float))[0, 1])


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**63 + 12345])
def test_words_of_neighbours_are_independent(seed):
    """A million words of each: of the next replica, seed, tick and block, and as sums of equal bits; 5 standard errors."""
    def words(seed, first=0, tick=0, block=0):
        keys = bits.fold_in(bits.key_words(seed), np.arange(first, first + 1000, dtype=np.uint32))
        ticks = np.arange(tick, tick + 1000, dtype=np.uint32)[:, None]
        return np.stack(bits.tick_block(*(key[None] for key in keys), ticks, np.zeros_like(ticks), block))

    here = words(seed)
    others = {"replica": words(seed, first=1), "seed": words(seed + 1), "high word of the seed": words(seed ^ 1 << 32),
              "tick": words(seed, tick=1), "block": words(seed, block=1), "half": here[::-1]}
    for name, there in others.items():
        for one, other in zip(here, there, strict=True):
            assert correlation(one, other) < 5e-3, name
            equal = np.bitwise_count(~(one ^ other)).mean()
            assert abs(equal - 16) < 5 * 8**0.5 / 1e3, name  # of 32 bits


def test_replicas_and_seeds_give_independent_queues():
    """One busy queue, 20 000 replicas: customers present, arrivals and ticks of neighbours; 5 standard errors."""
    replicas, seen = 20_000, []
    for seed in (4, 5):
        result = jaxq.simulate(jaxq.Supermarket(1, 1, 0.8, levels=64), [6.0], seed, replicas=replicas, save="paths")
        seen.append([result.paths[0].sum(axis=0), result.counter_paths["arrivals"][0]])
    for one, other in zip(*seen, strict=True):
        assert one.std() > 1
        assert correlation(one, other) < 5 / replicas**0.5
        for step in (1, 2, 512):  # neighbours, and the same lane of the next block
            assert correlation(one[step:], one[:-step]) < 5 / replicas**0.5


@pytest.mark.parametrize("name", ["supermarket", "two queues"])
def test_how_a_run_is_cut_does_not_matter(name):
    """Blocks, chunks, devices and replicas at once, and calls and segments that end at any ticks."""
    options = [{}, {"chunk": 5, "block": 2}, {"devices": jax.devices()[:1], "block": 3}]

    @settings(max_examples=8)
    @given(KINDS[name], SEEDS, st.lists(st.integers(0, 90), min_size=3, max_size=3), st.integers(1, 5))
    def holds(case, seed, cuts, more):
        (model, initial), total = case, 120
        wanted = None
        for option in options:
            replicas = 5 if wanted is None else 3
            run = engine.Engine(model, initial, bits.key_words(seed), replicas, segments=4, **option)
            ends = sorted(cuts) if option else [0, 0, 0]
            parts = np.repeat(np.diff([0, *ends, total])[:, None], replicas, axis=1)
            split = more % 4 if option else 0
            for rows in (parts[:split], parts[split:]):
                if len(rows):
                    counts, totals = run.advance(rows)
            found = {"tail": counts[-1], **{counter: value[-1] for counter, value in totals.items()}}
            wanted = wanted or found
            for part, value in found.items():
                np.testing.assert_array_equal(value, wanted[part][..., :replicas])

    holds()
