"""Commands that run nothing: which models there are, shell completion, and what a run would take (`--dry-run`)."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import flags, flags_models, tables

SHELLS = ("bash", "zsh", "tcsh")
_CLASSES = {"supermarket": "Supermarket", "graph": "GraphSupermarket", "pull": "Pull", "two-queues": "TwoQueues"}


def models(options: argparse.Namespace) -> None:
    """`jaxq models`."""
    verbs = options.top.commands()
    rows = [{"model": name, "python": f"jaxq.{_CLASSES[name]}", "commands": [verb for verb, of in verbs.items() if name in of],
             "description": text, "example": f"jaxq simulate {name} {example} --t-end 10 --replicas 1000"}
            for name, text, *_, example in options.systems]
    if options.json:
        print(json.dumps({"models": rows}))
        return
    for row in rows:
        told = [f"{row['description']} ({row['python']})", ", ".join(row["commands"]), row["example"]]
        print(tables.lines([(row["model"] if k == 0 else "", line) for k, line in enumerate(told)], width=13))


def completion(options: argparse.Namespace) -> None:
    """`jaxq completion SHELL`."""
    import shtab

    print(shtab.complete(options.top, options.shell))


@dataclass(frozen=True)
class _Planned:
    """An ensemble that a command would run: ticks of each replica, and bytes of memory."""

    model: Any
    replicas: int
    ticks: float
    memory: int


def dry_run(options: argparse.Namespace) -> None:
    """What the command would take; the time comes from a trial of about a second with the largest ensemble of each kind of
    model, for a study of graphs simulates the complete graph too, much faster."""
    from .algorithms import choose

    planned, least = _planned(options, choose)
    kinds: dict[type, list[_Planned]] = {}
    for run in planned:
        kinds.setdefault(type(run.model), []).append(run)
    events, seconds, compiled = 0.0, 0.0, 0.0
    for runs in kinds.values():
        rate, once = _trial(max(runs, key=lambda run: run.ticks * run.replicas * run.model.work))
        own = sum(run.ticks * run.replicas for run in runs)
        events, seconds, compiled = events + own, seconds + own / rate, compiled + once * len(runs)
    found = {"ensembles": len(planned), "events": round(events), "at_least": least, "memory": max(run.memory for run in planned),
             "compile_seconds": compiled, "seconds": seconds, "events_per_second": events / seconds}
    if options.json:
        print(json.dumps(found))
        return
    more = "at least " if least else ""
    first = ", the warm-up and the shortest window; --rel-error decides how many more" if least else ""
    print(tables.lines([
        ("ensembles", f"{len(planned)} of {planned[0].replicas} replicas"),
        ("events", f"{more}{events:.3g}{first}"),
        ("memory", f"{found['memory'] / 2**30:.2g} GiB beside that of Python and JAX"),
        ("compilation", f"{compiled:.1f} s" + (" at most: ensembles of one shape share it" if len(planned) > 1 else "")),
        ("time", f"{more}{seconds:.3g} s at {events / seconds:.2g} events a second, as "
                 + ("the ensemble" if len(planned) == 1 else "the largest ensemble of each model") + " just had in a trial")]))


def _trial(run: _Planned) -> tuple[float, float]:
    """Events a second of an ensemble, and seconds of compilation."""
    from .engine import Engine

    engine = Engine(run.model, None, np.zeros(2, np.uint32), run.replicas)
    began, ticks = time.perf_counter(), 0
    engine.advance(np.zeros((1, run.replicas), np.int64))
    while engine.agree(time.perf_counter() - began - engine.compile_seconds < 1.0 and ticks < 2**40):
        engine.advance(np.full((1, run.replicas), engine.call))
        ticks += engine.call
    return ticks * run.replicas / (time.perf_counter() - began - engine.compile_seconds), engine.compile_seconds


def _planned(options: argparse.Namespace, choose: Any) -> tuple[list[_Planned], bool]:
    """The ensembles, and whether they may have more ticks than told."""
    import jax

    from . import memory
    from .time_average import SEGMENTS as LOOKS

    if options.verb == "simulate" or (options.verb, options.model) == ("study", "supermarket"):
        return _transient(options, choose), False
    if options.verb == "stationary":
        models, windows = [choose(options.build(options), **flags.algorithm(options))], (options.warmup, options.horizon)
    else:
        models, windows = _studied(options)
    runs = []
    for model in models:
        relaxation = model.steady().relaxation or 0.0
        warmup = max(10 * relaxation, 64.0) if windows[0] is None else windows[0]  # at least: it is found on the way
        ticks = model.clock() * (warmup + (warmup / 4 if windows[1] is None else windows[1]))
        need = memory.of_stationary(model, model.steady().starts[0], options.replicas, LOOKS, jax.devices())
        runs.append(_Planned(model, options.replicas, ticks, need.host))
    found = windows[0] is None and any(not model.steady().relaxation for model in models)
    return runs, windows[1] is None or found


def _transient(options: argparse.Namespace, choose: Any) -> list[_Planned]:
    import jax

    from . import memory
    from .engine import SEGMENTS
    from .models.supermarket import Supermarket

    if options.verb == "simulate":
        chain, save = [options.build(options)], options.save
    else:
        chain, save = [Supermarket.heavy_traffic(n, options.d, options.beta, options.alpha, replacement=not options.no_replacement)
                       for n in options.n], "paths"
    chosen, times = [choose(model, **flags.algorithm(options)) for model in chain], flags.times(options)
    return [_Planned(model, options.replicas, model.clock() * options.t_end, memory.of_simulate(
        model, None, options.replicas, times.size, save, SEGMENTS, jax.devices()).host) for model in chosen]


def _studied(options: argparse.Namespace) -> tuple[list[Any], tuple[Any, Any]]:
    """The models of a study of steady states, warm-up and window."""
    from .graph_study import draw_graph, study_window
    from .models.graph import GraphSupermarket
    from .models.pull import Pull
    from .models.supermarket import Supermarket
    from .pull_study import rival, study_horizon

    if options.model == "pull":
        pools = flags_models.pools(options)
        models: list[Any] = [Pull(n, pools, routers, options.arrival_rate, options.messages)
                             for n in options.n for routers in options.routers]
        window = options.warmup, study_horizon(models, options.horizon)
        for n in options.n:
            with contextlib.suppress(ValueError):  # at this load it may have no steady state
                (other := rival(n, pools, options.arrival_rate)).steady()
                models.append(other)
        return models, window
    models = [Supermarket(options.n, options.d, options.arrival_rate, options.replacement)]  # the complete graph
    models += [GraphSupermarket(draw_graph(kind, options.n, degree, options.graph_seed), options.d, options.arrival_rate,
                               options.replacement) for kind in options.kinds for degree in options.degrees]
    return models, study_window(options.arrival_rate, options.warmup, options.horizon)
