"""The bad-input matrix of the Python functions: whatever is wrong, one sentence says what was required and what came."""

import contextlib
import functools
import inspect
import re
import time
from fractions import Fraction

import h5netcdf  # noqa: F401  (what jaxq imports when it is used: no case should wait for it)
import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from bad_values import (
    ABOVE_0,
    AX,
    BIG,
    COUNT,
    DEVICES,
    DIGITS,
    FILE,
    FLAG,
    GRID,
    HUGE,
    INF,
    KEPT,
    KEY,
    LATE,
    MODEL,
    MODELS,
    NAME,
    NAN,
    NUMBER,
    ONE,
    PATH,
    POOL_LISTS,
    POOLS,
    POSITIVE,
    PROGRESS,
    PULL,
    RESULT,
    RESULTS,
    RING,
    RUN,
    SEED,
    TABLE,
    TAILS,
    TIMES,
    TWO,
    VECTOR,
    bad_runs,
    but,
)

import jaxq
from jaxq import _check, bikes, exact, graphs, heavy_traffic, hosts, plot, pull_theory, testing
from jaxq.ensemble import Ensemble
from jaxq.graph_study import GraphStudy
from jaxq.heavy_traffic import finite_eta_path
from jaxq.steady_state import Stationary
from jaxq.study import Study

#: Every function: good arguments, and for each argument what must be refused.
CALLS = {
    jaxq.Supermarket: ({"n": 10, "d": 2, "arrival_rate": 0.5}, {
        "n": [*COUNT, 2**31], "d": [*COUNT, 65], "arrival_rate": [*ABOVE_0, 1e7, *BIG], "replacement": FLAG,
        "buffer": but(COUNT, None), "levels": but(SEED, 0), "eta": but(ABOVE_0, None)}),
    jaxq.Supermarket.heavy_traffic: ({"n": 100, "d": 2, "beta": 1.0}, {
        "n": [*COUNT, 2**31], "d": [*COUNT, 65], "beta": [*ABOVE_0, 10.0, *BIG], "alpha": [*but(ABOVE_0, None), 3, *BIG],
        "eta": [*but(ABOVE_0, None), 0.5, 1.0], "replacement": FLAG, "buffer": but(COUNT, None)}),
    jaxq.SupermarketClasses: ({"n": 20, "pools": POOLS, "d": 2, "arrival_rate": 0.5}, {
        "n": [*COUNT, 3, 2**31], "pools": POOL_LISTS, "d": [*COUNT, 65], "arrival_rate": [*ABOVE_0, *BIG], "replacement": FLAG, "levels": but(SEED, 0)}),
    jaxq.Pool: ({"fraction": 0.5}, {"fraction": [*ABOVE_0, 1.1, *BIG], "rate": [*ABOVE_0, *BIG], "buffer": but(COUNT, None, INF)}),
    jaxq.Pull: ({"n": 20, "pools": POOLS, "routers": 2, "arrival_rate": 0.5}, {
        "n": [*COUNT, 3, 2**31], "pools": POOL_LISTS, "routers": [*COUNT, 10**6], "arrival_rate": [*ABOVE_0, *BIG], "messages": NAME,
        "levels": but(SEED, 0)}),
    jaxq.GraphSupermarket: ({"graph": graphs.ring(4), "d": 2, "arrival_rate": 0.5}, {
        "graph": [None, 1, "ring", [[0, 1], [1, 0]], NAN], "d": [*COUNT, 65], "arrival_rate": [*ABOVE_0, *BIG], "replacement": FLAG,
        "buffer": but(COUNT, None), "levels": COUNT, "service_rates": but([*VECTOR, [1.0], [0, 0, 0, 0], [-1, 1, 1, 1]], None)}),
    jaxq.TwoQueues: ({"capacity": 2, "arrival_rate": 1.0}, {"capacity": but(COUNT, None, INF), "arrival_rate": [*ABOVE_0, *BIG], "levels": COUNT,
        "service_rates": [*VECTOR, None, [1.0], [1, 1, 1], [0, 1], [1, -1], [1, HUGE]]}),
    jaxq.simulate: (RUN | {"ts": [1.0]}, bad_runs(
        ts=LATE, save=NAME, algorithm=NAME, step=[*but(ABOVE_0, None), 1.0], order=[*but(COUNT, None), 1], chunk=COUNT, kernel=FLAG, **KEPT)),
    jaxq.stationary: (RUN, bad_runs(rel_error=[*ABOVE_0, 1.5, *BIG], warmup=but(POSITIVE, None), horizon=but(ABOVE_0, None), max_events=[*ABOVE_0, 0.5],
        algorithm=NAME, step=[*but(ABOVE_0, None), 1.0], order=[*but(COUNT, None), 1], **KEPT)),
    jaxq.sensitivity: (RUN | {"ts": [1.0]}, bad_runs(ts=LATE, wrt=[*NAME, "n", "beta", "d"], at=but(NUMBER, None), method=NAME,
        step=[*but(ABOVE_0, None), 0.5, 1e-12, *BIG], **PROGRESS)),
    jaxq.vertex_means: ({"model": RING, "key": 0, "replicas": 4, "warmup": 1.0, "horizon": 1.0}, bad_runs(
        model=[*MODELS, MODEL], replicas=[*COUNT, 1], warmup=[*POSITIVE, 1e300], horizon=[*ABOVE_0, 1e300], samples=COUNT,
        initial=[*but(TAILS, [21]), [1, 2, 3]])),
    jaxq.scaling_study: ({"d": 2, "beta": 1.0, "n": [100, 200], "t_end": 1.0, "replicas": 4, "key": 0}, {
        "d": [*COUNT, 65], "beta": [*ABOVE_0, 10.0, *BIG], "alpha": [*ABOVE_0, 3], "n": [*COUNT, [], [2, 1], [100, 100], [100, 2**31]],
        "t_end": [*ABOVE_0, 1e300], "replicas": COUNT, "key": KEY, "num_times": [*COUNT, 1], "start": [*NAME[:3], *VECTOR, [-1.0], [9, 1], [21]],
        "replacement": FLAG, "out_dir": [*but(PATH, None), "/dev/null/x", "/proc/x"], "algorithm": NAME,
        "step": [*but(ABOVE_0, None), 1.0], "order": [*but(COUNT, None), 1], "devices": DEVICES} | KEPT),
    jaxq.pull_study: ({"pools": POOLS, "arrival_rate": 0.5, "n": [20], "routers": [1], "replicas": 4, "key": 0}, {
        "pools": POOL_LISTS, "arrival_rate": [*ABOVE_0, *BIG], "n": [*COUNT, [], [40, 20], [20, 20]],
        "routers": [*ONE, [], [2, 1]], "replicas": [*COUNT, 1], "key": KEY, "messages": NAME, "warmup": but(ABOVE_0, None),
        "horizon": but(ABOVE_0, None)} | KEPT),
    jaxq.graph_study: ({"kinds": ["ring"], "degrees": [2], "n": 10, "d": 2, "arrival_rate": 0.5, "replicas": 4, "key": 0}, {
        "kinds": [*NAME, [], ["torus"]], "degrees": [*COUNT, [], [3], [10]], "n": COUNT, "d": [*COUNT, 65],
        "arrival_rate": [*ABOVE_0, 1.0], "replicas": [*COUNT, 1], "key": KEY, "graph_seed": but(SEED, *BIG, HUGE, DIGITS),
        "warmup": but(POSITIVE, None), "horizon": but(ABOVE_0, None), "replacement": FLAG, "devices": DEVICES} | KEPT),
    jaxq.fit_scaling: ({"data": TABLE, "d": 2}, {
        "data": [*but(FILE, ".", {}), 5, [5], {"n": [1]}, {"n": [10], "level": [1], "value": [0.7]}, [RESULT], RESULT, MODEL, NAN, [[]],
                 *(TABLE | wrong for wrong in ({"value": [0.7, 1j]}, {"value": [0.7]}, {"n": [10, HUGE]}, {"level": [1, [1]]}))],
        "d": [*but(COUNT, None), 65], "prediction": but(NAME, None), "fit_d": FLAG, "replacement": but(FLAG, None), "profile": FLAG,
        "levels": [*but(COUNT, None), 1], "times": [*but(TIMES, None, 1.0), [1.0]], "start": [*but(TAILS, None), [0.5]]}),
    jaxq.mean_field: ({"model": MODEL, "ts": [1.0]}, {
        "model": [*MODELS, RING, TWO], "ts": LATE, "initial": but(TAILS, None), "finite_n": FLAG, "levels": but(COUNT, None), "method": NAME}),
    jaxq.fixed_point: ({"model": MODEL}, {"model": [*MODELS, RING, TWO, jaxq.Supermarket(20, 2, 1.0)], "levels": but(COUNT, None)}),
    jaxq.refined: ({"model": MODEL}, {"model": [*MODELS, RING, TWO, jaxq.Supermarket(20, 2, 1.0)], "levels": but(COUNT, None)}),
    jaxq.linear_noise: ({"model": MODEL, "ts": [1.0]}, {"model": [*MODELS, RING, TWO], "ts": LATE, "initial": but(TAILS, None), "levels": but(COUNT, None)}),
    jaxq.pair_approximation: ({"k": 4, "arrival_rate": 0.5}, {
        "k": COUNT, "arrival_rate": [*ABOVE_0, 1.0, *BIG], "ts": but(LATE, None), "levels": [*but(COUNT, None), 1, 65]}),
    jaxq.load: ({"path": "x"}, {"path": FILE}),
    exact.stationary: ({"model": TWO}, {"model": [*MODELS, MODEL, RING, jaxq.TwoQueues(None, 1.0)]}),
    exact.transient: ({"model": TWO, "ts": [1.0]}, {
        "model": [*MODELS, MODEL, RING], "ts": LATE, "initial": [*but(VECTOR, None), [1], [3, 0], [-1, 0], [0.5, 0.5], [1, 1, 1]]}),
    exact.two_queues: ({"capacity": 2, "arrival_rate": 1.0}, {
        "capacity": [*but(COUNT, None, INF), 10**5], "arrival_rate": [*ABOVE_0, *BIG], "service_rates": [*VECTOR, None, [1.0], [0, 1]],
        "tolerance": [*ABOVE_0, 1.0, 1e-20]}),
    exact.blocking: ({"capacity": 2, "rho": 0.5}, {"capacity": COUNT, "rho": ABOVE_0}),
    exact.blocking_pooled: ({"capacity": 2, "rho": 0.5}, {"capacity": COUNT, "rho": ABOVE_0}),
    exact.blocking_single: ({"capacity": 2, "rho": 0.5}, {"capacity": COUNT, "rho": ABOVE_0}),
    graphs.complete: ({"n": 5}, {"n": [*COUNT, 2**31]}),
    graphs.ring: ({"n": 5}, {"n": [*COUNT, 2, 2**31 - 1], "degree": [*COUNT, 3, 6]}),
    graphs.torus: ({"rows": 3}, {"rows": [*COUNT, 2], "columns": [*but(COUNT, None), 2]}),
    graphs.random_regular: ({"n": 6, "degree": 3, "seed": 0}, {
        "n": [*COUNT, 5], "degree": [*but(COUNT, 0, 0.0), 6, 0.0], "seed": but(SEED, *BIG, HUGE, DIGITS)}),
    graphs.erdos_renyi: ({"n": 6, "mean_degree": 2.0, "seed": 0}, {
        "n": [*COUNT, 1], "mean_degree": [*POSITIVE, 6.0], "seed": but(SEED, *BIG, HUGE, DIGITS)}),
    graphs.from_adjacency: ({"adjacency": [[0, 1], [1, 0]]}, {
        "adjacency": [None, 1, "x", [], [[0, 2], [2, 0]], [[0, 1], [0, 0]], [[0, NAN], [NAN, 0]], [[0, 1j], [1j, 0]],
                      [[0, 1], [1]], np.zeros((2, 3)), {}], "name": [None, 1, 1j, [], NAN]}),
    graphs.load: ({"path": "x"}, {"path": [*FILE, __file__]}),
    graphs.ring(5).neighbours_of: ({"vertex": 0}, {"vertex": [*SEED, 5]}),
    bikes.bike_sharing: ({"places": 5, "rental_rate": 1.0, "trip_rate": 1.0}, {
        "places": [*COUNT, 1, 1001], "rental_rate": [*ABOVE_0, 1e308], "trip_rate": [*ABOVE_0, 1e308],
        "fleet": but([*VECTOR, [0.0], [-1.0], [2, 1], [1, 1], [1e300]], None)}),
    bikes.load: ({"places": 5, "rental_rate": 1.0, "trip_rate": 1.0, "fleet": 1.0}, {
        "places": COUNT, "rental_rate": ABOVE_0, "trip_rate": ABOVE_0, "fleet": [*ABOVE_0, 1e300], "choice": FLAG}),
    bikes.optimal_fleet: ({"places": 5, "rental_rate": 1.0, "trip_rate": 1.0}, {"places": COUNT, "rental_rate": ABOVE_0, "trip_rate": ABOVE_0}),
    bikes.paired: ({"places": 5, "rho": 1.0}, {"places": COUNT, "rho": [*ABOVE_0, 1e300]}),
    bikes.plain: ({"places": 5, "rho": 1.0}, {"places": COUNT, "rho": ABOVE_0}),
    pull_theory.equilibrium: ({"pools": POOLS, "arrival_rate": 0.5}, {"pools": POOL_LISTS, "arrival_rate": [*ABOVE_0, 2.0]}),
    pull_theory.many_routers_response_time: ({"r": 1.0, "arrival_rate": 0.5}, {"r": ABOVE_0, "arrival_rate": [*ABOVE_0, 1.0]}),
    pull_theory.messages_per_customer: ({"p_wait": 0.5, "p_block": 0.0}, {"p_wait": [*POSITIVE, 1.5], "p_block": [*POSITIVE, 0.6]}),
    heavy_traffic.green: ({"t": 1.0, "rows": [1], "cols": [1], "d": 2}, {
        "t": POSITIVE, "rows": [*VECTOR, [0], [1.5]], "cols": [*VECTOR, [0], [1.5]], "d": COUNT}),
    heavy_traffic.limit: ({"ts": [1.0], "initial": [1.0, 3.0], "d": 2}, {
        "ts": LATE, "initial": [*VECTOR, None], "d": COUNT, "above": NAME, "levels": but(COUNT, None), "method": NAME}),
    heavy_traffic.finite_eta: ({"ts": [1.0], "initial": [1.0, 3.0], "d": 2, "beta": 1.0, "eta": 10.0}, {
        "ts": LATE, "initial": [*VECTOR, None, [3.0, 1.0], [11.0], [-1.0]], "d": COUNT, "beta": [*ABOVE_0, 10.0],
        "eta": ABOVE_0, "levels": but(COUNT, None)}),
    finite_eta_path: ({"ts": [1.0], "initial": [1.0, 3.0], "d": 2, "beta": 1.0, "eta": 10.0}, {"d": COUNT, "method": NAME}),
    heavy_traffic.integral_equation: ({"ts": [1.0], "initial": [1.0, 3.0], "d": 2}, {
        "ts": LATE, "initial": [*VECTOR, None], "d": COUNT, "eta": but(ABOVE_0, INF), "beta": [*but(NUMBER, None), 1.0],
        "arrival_rate": [*but(NUMBER, None), 0.5], "above": NAME, "levels": but(COUNT, None), "step": but(ABOVE_0, None),
        "forcing": [1, "y", [], {}, ([0.0], [[1.0]]), ([0.0, 1.0], [[0.0]]), ([0.0, 1.0], [[0.0], ["1"]]), ([0.0, 1.0], [[0.0], [NAN]]),
                    lambda t: [1.0], lambda t: "x", lambda t: t, [1, 2, 3]]}),
    heavy_traffic.martingale: ({"times": [0.0, 1.0], "T": np.full((2, 2), 10.0), "d": 2, "eta": 10.0, "beta": 1.0}, {
        "times": but([*TIMES, [1.0, 2.0]], 1.0), "T": [*GRID, np.full((2, 2), 11.0), np.zeros((2, 2))], "d": COUNT, "eta": ABOVE_0,
        "beta": [*but(ABOVE_0), 10.0], "arrival_rate": but(ABOVE_0, None)}),
    heavy_traffic.stopping_time: ({"times": [0.0, 1.0], "T": np.ones((2, 2)), "eta": 10.0}, {
        "times": TIMES, "T": GRID, "eta": [*ABOVE_0, 0.5], "a": [*ABOVE_0, 0.5], "rho": [*but(ABOVE_0, None), 2], "d": COUNT}),
    heavy_traffic.pi: ({"levels": 3, "d": 2, "beta": 1.0}, {"levels": [*COUNT, 2000], "d": COUNT, "beta": ABOVE_0}),
    heavy_traffic.fixed_point_T: ({"levels": 3, "d": 2, "beta": 1.0, "eta": 10.0}, {"levels": COUNT, "d": COUNT, "beta": [*ABOVE_0, 10.0], "eta": ABOVE_0}),
    heavy_traffic.theorem5_bound: ({"levels": 3, "d": 2, "beta": 1.0, "eta": 10.0}, {
        "levels": COUNT, "d": COUNT, "beta": [*ABOVE_0, 10.0], "eta": ABOVE_0, "sharper": FLAG}),
    heavy_traffic.start_profile: ({"levels": 8, "d": 2, "beta": 1.0, "eta": 100.0}, {
        "levels": COUNT, "d": [*COUNT, 1], "beta": [*ABOVE_0, 100.0], "eta": ABOVE_0, "bump": [*POSITIVE, 1e300], "bump_levels": COUNT,
        "alpha": [*but(ABOVE_0, None), 3]}),
    heavy_traffic.tail_counts: ({"T": [1.0, 3.0], "n": 100, "eta": 10.0}, {"T": [*VECTOR, None, [3.0, 1.0], [11.0]], "n": COUNT, "eta": ABOVE_0}),
    hosts.start: ({"coordinator": "localhost:1234", "num_processes": 2, "process_id": 0}, {
        "coordinator": ["localhost", ":1", "a:b", "a:0", "a:65536", "a:²", 1, NAN, True, b"a:1", None, ""], "num_processes": COUNT,
        "process_id": [*SEED, 2]}),
    testing.check_model: ({"model": MODEL}, {"model": MODELS, "states": [1, "x", [], NAN], "law": [1, "x", {}, []], "view": [1, "x", {}],
        "lanes": [*COUNT, 10], "seed": KEY, "level": [*ABOVE_0, 1.0]}),
    plot.tails: ({"result": object.__new__(Ensemble)}, {
        "result": RESULTS, "mean_field": [1, "x", RESULT], "levels": but(COUNT, *BIG, HUGE, DIGITS), "ax": AX}),
    plot.curves: ({"times": [0.0, 1.0], "values": np.ones((2, 2)), "name": "$S_{}$", "label": "S"}, {
        "times": TIMES, "values": GRID, "name": [None, 1, 1j, []], "label": [1, 1j, []], "ax": AX}),
    plot.limit_paths: ({"study": object.__new__(Study)}, {"study": RESULTS, "levels": but(COUNT, *BIG, HUGE, DIGITS), "ax": AX}),
    plot.convergence: ({"study": object.__new__(Study)}, {"study": RESULTS, "ax": AX}), plot.study: ({}, {"result": RESULTS}),
    plot.stationary: ({"result": object.__new__(Stationary)}, {"result": RESULTS, "refined": [1, "x", RESULT], "exact": [1, "x", RESULT],
                                                                       "ax": AX}),
    plot.fit: ({}, {"result": RESULTS}), plot.pull: ({}, {"result": RESULTS}),
    plot.blocking: ({"rho": 0.8, "capacities": [1, 2]}, {"rho": ABOVE_0, "capacities": [*VECTOR, None, [0], [1.5], [10**13]],
        "runs": [1, "x", [1], [RESULT], RESULT], "ax": AX}),
    plot.bike_sharing: ({"result": object.__new__(bikes.BikeSharing)}, {"result": RESULTS, "ax": AX}),
    plot.graph_gap: ({"result": object.__new__(GraphStudy)}, {"result": RESULTS, "ax": AX}),
    plot.save: ({"axes": plt.Figure().subplots(), "path": "/"}, {"axes": [None, 1, "axes", [], RESULT], "path": [*FILE, "/tmp/x.nonsense"]}),
    RESULT.save: ({"path": "x"}, {"path": FILE}),
}

def called(function):
    return f"{function.__module__.removeprefix('jaxq.')}.{function.__qualname__}"


def texts(value):
    """What may stand for a value in a sentence: its repr on one line, its type, its shape, or one of its entries."""
    if callable(value) or isinstance(value, dict):  # what it returned, or a part, may be shown
        return {""}
    found = {type(value).__name__, str(np.shape(value) if isinstance(value, np.ndarray) else getattr(value, "fraction", "None"))}
    with contextlib.suppress(ValueError):  # integers of too many digits
        text = " ".join(repr(value).split())[:30]
        found |= {text, text[:-1] if len(text) > 3 else text, str(value)[:30] or text}
    if isinstance(value, (list, tuple, np.ndarray)) and len(value) < 5:
        found |= {text for one in value for text in texts(one)}
    if isinstance(value, (int, float)) and abs(value) < 1e308:
        found |= {f"{value:g}", repr(float(value))}
    return found


JARGON = re.compile(r"Traceback|Xla|XLA|jaxlib|jax\._src|Tracer|inhomogeneous|could not (convert|be broadcast)|truth value|ambiguous"
                    r"|unhashable|cannot be interpreted|object is not|has no attribute|not supported between|Exceeds the limit|__\w+__"
                    r"|0-dimensional|embedded null|allowed dimension|out of bounds")


def fault(call, parameter, value):
    """What is wrong with the answer to a bad input, or None."""
    began = time.process_time()
    try:
        call()
        return "accepted"
    except ValueError as error:
        message = str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if time.process_time() - began > 1:
        return f"only after {time.process_time() - began:.1f} s: {message}"
    name = "data|path|file|figure|folder|written" if parameter in ("path", "out_dir", "data", "checkpoint") else parameter.removesuffix("s") + "s?"
    if not re.search(rf"(?<![A-Za-z_])({name})(?![A-Za-z_])", message):
        return f"does not name it: {message}"
    if "\n" in message or len(message) > 400 or JARGON.search(message):
        return f"not a plain sentence: {message}"
    came = message.partition("got ")[2] or message
    return None if any(text in came for text in texts(value)) else f"does not show what came: {message}"


@pytest.mark.parametrize("function", CALLS, ids=called)
def test_every_bad_argument_is_answered_in_one_sentence(function, record_property):
    good, bad = CALLS[function]
    tried = [(name, value) for name, values in bad.items() for value in values]
    faults = [(name, value, wrong) for name, value in tried if (wrong := fault(functools.partial(function, **good | {name: value}), name, value))]
    record_property("bad_inputs", (len(tried), len(tried) - len(faults)))
    assert not faults, "\n".join(f"{name}={' '.join(texts(value))[:60]}: {wrong[:300]}" for name, value, wrong in faults)


def test_the_matrix_has_every_public_function_and_every_argument():
    modules = {exact: "two_queue_law", plot: "plot_steady", bikes: "", graphs: "", pull_theory: "", testing: ""}
    public = {one for one in vars(jaxq).values() if getattr(one, "__module__", "").startswith("jaxq")}
    public |= {one for module, other in modules.items() for name, one in vars(module).items() if inspect.isfunction(one)
               and one.__module__ in (module.__name__, f"jaxq.{other}") and not name.startswith("_")}
    public |= {getattr(heavy_traffic, name) for name in heavy_traffic.__all__ if inspect.isfunction(getattr(heavy_traffic, name))}
    assert {called(one) for one in public} <= {called(one) for one in CALLS}
    lacking = {called(function): missing for function, (_, bad) in CALLS.items() if function is not finite_eta_path  # checks nothing else
               if (missing := set(inspect.signature(function).parameters) - set(bad))}
    assert lacking == {}


@pytest.mark.parametrize(("function", "arguments", "name"), [
    (jaxq.sensitivity, RUN | {"ts": [1.0], "wrt": lambda rate: 1.0, "at": 0.5}, "wrt"),
    (jaxq.sensitivity, RUN | {"ts": [1.0], "wrt": lambda rate: RING, "at": 0.5}, "wrt"),
    (jaxq.sensitivity, RUN | {"ts": [1.0], "at": 0.5}, "at"), (jaxq.simulate, RUN | {"ts": [1e300], "algorithm": "leap"}, "ts"),
    (jaxq.simulate, RUN | {"ts": [1.0], "algorithm": "leap", "model": RING}, "leap"),
    (jaxq.simulate, RUN | {"ts": [1.0], "algorithm": "bulk", "model": PULL}, "bulk"),
    (jaxq.simulate, RUN | {"ts": [1.0], "resume": True}, "checkpoint"),
    (jaxq.stationary, RUN | {"model": jaxq.Supermarket(20, 2, 1.0)}, "arrival_rate"),
    (jaxq.Supermarket.heavy_traffic, {"n": 100, "d": 2, "beta": 1.0, "alpha": 0.5, "eta": 10.0}, "alpha"),
    (jaxq.fit_scaling, CALLS[jaxq.fit_scaling][0] | {"fit_d": True}, "fit_d"),
    (heavy_traffic.integral_equation, {"ts": [1.0], "initial": [1.0], "d": 2, "eta": 10.0}, "beta"),
    (graphs.random_regular, {"n": 5, "degree": 3, "seed": 0}, "degree"),
    (jaxq.Supermarket, {"n": 2, "d": 3, "arrival_rate": 0.5, "replacement": False}, "replacement")])
def test_arguments_that_contradict_each_other(function, arguments, name):
    assert fault(lambda: function(**arguments), name, lambda: None) is None


def test_odd_but_good_input_works(tmp_path):
    for n, d, rate, replacement in ((np.int64(20), np.int32(2), np.float32(0.5), np.True_), (20, 2, Fraction(1, 2), 1),
                                    (np.uint8(20), 2, np.array(0.5), True)):
        assert jaxq.Supermarket(n, d, rate, replacement) == MODEL
    assert jaxq.Pool(1, buffer=INF) == jaxq.Pool(1.0, 1)
    for ts in (range(3), (0, 1, 2), np.arange(3, dtype=np.int8), [Fraction(0), 1, 2.0], jax.numpy.arange(3.0)):
        assert _check.times(ts).tolist() == [0.0, 1.0, 2.0]
    assert _check.devices(tuple(jax.devices())) == jax.devices()
    path = tmp_path / "ü 漢字 \'quoted\'.nc"
    RESULT.save(path)
    assert jaxq.load(str(path)).blocking == jaxq.load(path).blocking == RESULT.blocking
    scipy.sparse.save_npz(tmp_path / "é.npz", scipy.sparse.csr_array([[0, 1], [1, 0]]))
    assert graphs.load(tmp_path / "é.npz").name == "é.npz"
