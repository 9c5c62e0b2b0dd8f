"""Good arguments, and what is bad wherever a number, a count, a path, ... is asked for."""

import jax
import numpy as np

import jaxq
from jaxq import exact, graphs
from jaxq.models.pools import Pool

NAN, INF, HUGE, DIGITS, BIG = float("nan"), float("inf"), 10**400, 10**5000, [2**64, 10**30]
MODEL, POOLS, RESULT = jaxq.Supermarket(20, 2, 0.5), [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], exact.two_queues(2, 1.0)
RING, PULL, TWO = jaxq.GraphSupermarket(graphs.ring(4), 2, 0.5), jaxq.Pull(20, POOLS, 2, 0.5), jaxq.TwoQueues(2, 1.0)
RUN, TABLE = {"model": MODEL, "key": 0, "replicas": 4}, {"n": [10, 20], "level": [1, 1], "value": [0.7, 0.8], "stderr": [0.01, 0.01]}

# what is bad wherever a number, a count, ... is asked for
NUMBER = [NAN, INF, -INF, "1", "", b"1", 1j, 1 + 0j, True, [1.0], [1, [2]], {}, HUGE, -HUGE, DIGITS, np.ones(2), MODEL, None]
POSITIVE = [*NUMBER, -1.0, -1e-9]
ABOVE_0 = [*POSITIVE, 0.0, -0.0, 0]
COUNT = [*ABOVE_0, -1, -(2**64), 1.5, np.bool_(True), np.array([1, 2]), *BIG]
FLAG = ["yes", "no", "", "False", 2, -1, NAN, 1j, None, [], [True], np.array([True, False])]
NAME = ["", "Exact", "é", 0, 1.0, True, NAN, 1j, b"exact", ["exact"], {}, np.array(["a", "b"]), None]
VECTOR = [NAN, "1 2", "", b"", 1j, True, [], [[1.0]], [1, [2]], ["1", "2"], [True, False], [1j], [NAN], [0.5, INF], [None], {},
          {1.0}, [HUGE], np.zeros((2, 2)), object(), np.zeros(0)]
TIMES = [*VECTOR, None, 1.0, [-1.0], [0.0, -INF], [1.0, 0.5], [1.0, 1.0], [1.0, 2.0, 2.0], np.array([0.0, NAN]), (x for x in [1.0])]
LATE = [*TIMES, [1e300]]
MODELS = [None, 1, "supermarket", {}, jaxq.Supermarket, POOLS, NAN, 1j]
KEY = [None, -1, *BIG, DIGITS, 1.0, NAN, "0", True, 1j, [0], np.array([0, 1]), jax.random.key(0, impl="rbg"),
       jax.random.split(jax.random.key(0), 2)]
DEVICES = ["cpu", 1, [], ["cpu"], [None], {}, NAN]
PATH = [None, 1, 1.0, True, NAN, 1j, b"x", "", "a\0b", [], {}]
FILE = [*PATH, "/", ".", "/nowhere/ü.nc", "/proc/nowhere/x", "x" * 5000, "/dev/null/x.nc", "/tmp/ü\n/x"]
POOL_LISTS = [None, [], 1, "pools", [1.0], [None], POOLS[0], [*POOLS, 1], [Pool(0.5)], [Pool(0.5), Pool(0.4)], {}]
GRID = [None, 1.0, "T", [], [1.0], [[1j], [1j]], [["1"], ["2"]], np.zeros((3, 2)), np.zeros((2, 0)), np.full((2, 2), NAN), [[1], [1, 2]]]
RESULTS = [None, 1, "result", {}, MODEL, RESULT, RESULT.to_xarray(), [], NAN]
AX = [1, "axes", [], {}, NAN, RESULT]


def but(values, *good):
    """The values without those that a function takes after all."""
    plain = (int, float, str, list, tuple)
    return [x for x in values if not any(x is y or (isinstance(x, plain) and isinstance(y, plain) and x == y) for y in good)]


SEED, ONE = but(COUNT, 0), [x for x in COUNT if not isinstance(x, np.ndarray)]
TAILS = but([*VECTOR, [1.5], [-1], [0.5, 0.7], [21], [1, 2], [1e300]], [])


PROGRESS = {"progress": but(FLAG, None)}
KEPT = {"checkpoint": but(FILE, None), "every": POSITIVE, "resume": FLAG} | PROGRESS  # of every long run


def bad_runs(**more):
    """Of everything that runs the chain."""
    return {"model": MODELS, "key": KEY, "replicas": COUNT, "initial": but(TAILS, None), "devices": but(DEVICES, None),
            "block": but(COUNT, None, *BIG, HUGE, DIGITS)} | more
