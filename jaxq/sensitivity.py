"""`sensitivity`: derivatives of simulated expectations in a parameter of the model.

Common marks: the models at theta + h and theta - h run with the same words and the same tick counts on one clock that is fast
enough for both. A tick's arrivals are the lowest words and its services the highest, so more arrivals turn null ticks into
arrivals and nothing else: the two paths differ by the few customers that came extra, and their difference has a small variance.
Where a model orders its ticks otherwise (`TwoQueues`) the laws are the same and the paths further apart.

Weak derivative: moving the probability p of an arrival in a tick from nothing to it changes E f after N ticks at the rate
sum over ticks of E[f | that tick an arrival] - E[f | that tick null]; one tick a replica, chosen uniformly, stands for the sum.
It has no bias and more noise. Sources: Glasserman and Yao 1992, doi:10.1287/mnsc.38.6.884 (common random numbers); Heidergott
and Vazquez-Abad 2008, doi:10.1007/s10957-007-9297-7 (weak derivatives).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import jax
import numpy as np

from . import _check, bits, weak
from .chain import Model, PopulationModel
from .cohort import Cohort
from .engine import SEGMENTS, Engine
from .ensemble import Result, describe, describe_start
from .moments import Moments
from .rates_model import RatesModel
from .simulate import progress_bar

METHODS = ("common-marks", "weak")


@dataclass(frozen=True)
class Sensitivity(Result):
    """Derivatives in a parameter theta on a time grid, from `jaxq.sensitivity`; level 1 first.

    times: (time,), in units of the model's rates.
    tail_derivative: (time, level), of E S_i(t), the expected fraction of servers with at least i customers.
    mean_queue_length_derivative: (time,), of E Q(t), customers per server.
    *_stderr: standard errors over replicas; with one replica nan.
    *_bias: estimates of the O(step**2) error of the central difference, 4/3 of its change when the step is halved (the same
      words), and *_bias_stderr their standard errors. Derivative less bias errs by O(step**4) only, with about 1.5 times
      the noise. None for the weak derivative, which has none.
    wrt, at, step: the parameter, its value, and the step h of the difference (None: weak), in the parameter's unit.
    events: ticks of all replicas in all runs, null ones included. seconds: wall time without compile_seconds.

    Example::

        >>> found = jaxq.sensitivity(jaxq.Supermarket(10, 1, 0.2), [20.0], key=0, replicas=500)
        >>> found.wrt, found.at, found.step, found.tail_derivative.shape
        ('arrival_rate', 0.2, 0.05, (1, 8))
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "times": ("time",), "tail_derivative": ("time", "level"), "tail_derivative_stderr": ("time", "level"),
        "tail_derivative_bias": ("time", "level"), "tail_derivative_bias_stderr": ("time", "level"),
        "mean_queue_length_derivative": ("time",), "mean_queue_length_derivative_stderr": ("time",),
        "mean_queue_length_derivative_bias": ("time",), "mean_queue_length_derivative_bias_stderr": ("time",)}
    json_keys: ClassVar[tuple[str, ...]] = (*dims, "wrt", "at", "step", "method", "events", "seconds", "compile_seconds",
                                            "replicas", "seed", "model")

    times: np.ndarray
    tail_derivative: np.ndarray
    tail_derivative_stderr: np.ndarray
    tail_derivative_bias: np.ndarray | None
    tail_derivative_bias_stderr: np.ndarray | None
    mean_queue_length_derivative: np.ndarray
    mean_queue_length_derivative_stderr: np.ndarray
    mean_queue_length_derivative_bias: np.ndarray | None
    mean_queue_length_derivative_bias_stderr: np.ndarray | None
    wrt: str
    at: float
    step: float | None
    method: str
    events: int
    replicas: int
    seed: int
    seconds: float
    compile_seconds: float
    model: dict[str, Any]


def sensitivity(model: Model, ts: Any, key: Any, *, replicas: int, wrt: str | Callable[[float], Model] = "arrival_rate",
                at: float | None = None, step: float | None = None, initial: Any = None, method: str = "common-marks",
                devices: Sequence[Any] | None = None, block: int | None = None, progress: bool | None = None) -> Sensitivity:
    """Derivative of E S_i(t) and E Q(t) in one parameter of the model, from the exact chain, with standard errors.

    Args:
      model, ts, key, replicas, initial, devices, block, progress: as for `simulate`; the start is the same at every theta.
      wrt: "arrival_rate" or the name of another number of the model; "beta" where `Supermarket` knows its eta (lambda =
        1 - beta/eta at that eta); or a function theta -> model, with its value `at` the model given.
      step: h of the central difference in theta, at least 1e-9 of it. The noise falls about like h**-1/2, the bias grows like h**2.
        None: for the arrival rate (and beta, by eta) a quarter of |lambda - c| + 1/t_end, c the rate that keeps every server
        busy, since expectations up to t_end vary on that scale; at most c/20 and lambda/4. Otherwise 5 % of theta.
      method: "common-marks", or "weak" as a check that shares little with it (wrt="arrival_rate" only).

    The bias is estimated by a second pair of runs at h/2 with the same words, so common marks cost four runs.

    Raises ValueError for bad input, for a step that ends where a model draws its ticks in another way (|1 - lambda| < 1e-4;
    a default step is shortened instead), and for a parameter on which the chain does not depend. Sources: Glasserman and Yao,
    doi:10.1287/mnsc.38.6.884; Heidergott and Vazquez-Abad, doi:10.1007/s10957-007-9297-7.

    Example, M/M/1 near its steady state, where Q = lambda/(1 - lambda) and dQ/dlambda = 1/(1 - lambda)**2 = 1.5625::

        >>> found = jaxq.sensitivity(jaxq.Supermarket(10, 1, 0.2), [20.0], key=0, replicas=500)
        >>> found.mean_queue_length_derivative.round(2), found.mean_queue_length_derivative_stderr.round(2)
        (array([1.55]), array([0.06]))
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a jaxq model such as jaxq.Supermarket(...); got {type(model).__name__}")
    ts, words = _check.times(ts), bits.key_words(key)
    _check.choice("method", method, METHODS)
    family, theta = _family(model, wrt, at)
    name = wrt if isinstance(wrt, str) else getattr(wrt, "__name__", "function")
    started = time.perf_counter()
    combine: Callable[..., dict[str, np.ndarray]]
    if method == "weak":
        if step is not None or wrt != "arrival_rate" or isinstance(model, RatesModel):
            raise ValueError('method="weak" needs wrt="arrival_rate", no step, and a model that draws the types of its ticks; '
                             f"got {name!r}, step={step!r} and {type(model).__name__}; use method=\"common-marks\"")
        clock = model.clock()
        ticks, chosen = weak.one_tick(clock, ts[-1], words, _check.integer("replicas", replicas, 1, 2**31 - 1))
        models: list[Model] = [weak.forced(model, clock, chosen, arrival) for arrival in (True, False)]
        scale = _growth(model) / clock

        def combine(arrival: np.ndarray, null: np.ndarray) -> dict[str, np.ndarray]:
            return {"": ticks * (arrival - null)}
    else:
        steps = _default_steps(model, wrt, theta, ts[-1]) if step is None else [step]
        step, models = _alike(family, theta, [_check.real("step", h, 1e-9 * abs(theta), open_low=True) for h in steps])
        clock = max(one.clock() for one in models)
        if _same(models[0].tables(clock), models[1].tables(clock)):
            raise ValueError(f"wrt must be a parameter that the chain depends on; {name!r} is none between {theta - step:g} and "
                             f"{theta + step:g}; use another, or a larger step")
        scale = 1 / (2 * step)

        def combine(up: np.ndarray, down: np.ndarray, half_up: np.ndarray, half_down: np.ndarray) -> dict[str, np.ndarray]:
            return {"": up - down, "_bias": up - down - 2 * (half_up - half_down)}

    segments = min(SEGMENTS, 1 << (ts.size - 1).bit_length())
    runs = [Cohort(Engine(one, initial, words, replicas, devices=devices, block=block, segments=segments, clock=clock), ts, "paths")
            for one in models]
    moments: dict[str, list[Moments]] = {}
    with progress_bar(int(len(runs) * clock * ts[-1] * replicas), progress) as bar:
        for tails in _together(runs, bar):
            for which, difference in combine(*tails).items():
                moments.setdefault(which, []).append(Moments.of(difference))
    used = max((saved.used for run in runs for saved in run.moments), default=0)
    levels = min(max(used, 8), max(len(saved.sums) - 1 for saved in moments[""]))
    values: dict[str, Any] = dict.fromkeys((field for field in Sensitivity.dims if "_bias" in field), None)
    for which, saved in moments.items():
        factor = scale / int(model.n) * (4 / 3 if which else 1.0)
        mean = factor * np.array([one.mean(levels) for one in saved])
        stderr = factor * np.sqrt(np.array([one.variance(levels) for one in saved]) / replicas)
        for error, rows in (("", mean), ("_stderr", stderr)):
            values[f"mean_queue_length_derivative{which}{error}"] = rows[:, 0]
            values[f"tail_derivative{which}{error}"] = rows[:, 1:]
    compiled = sum(run.engine.compile_seconds for run in runs)
    return Sensitivity(
        attributes={"initial": describe_start(initial)}, times=ts, wrt=name, at=theta, step=step, method=method, replicas=replicas,
        events=sum(int(run.engine.ticks[:replicas].sum()) for run in runs), seed=int(words[0]) << 32 | int(words[1]),
        seconds=time.perf_counter() - started - compiled, compile_seconds=compiled, model=describe(model), **values)


def _family(model: Any, wrt: Any, at: Any) -> tuple[Callable[[float], Model], float]:
    """theta -> model, and theta."""
    if callable(wrt):
        theta = _check.real("at", at, -math.inf, hint="give the value of theta at which the function gives the model")
        made = _check.instance("wrt(at)", wrt(theta), Model, "the model given")
        if describe(made) != describe(model):
            raise ValueError(f"wrt(at) must be the model given; got {_check.shown(made)} where the model is {_check.shown(model)}")
        return wrt, theta
    if at is not None:
        raise ValueError(f"at goes with a function wrt; got at={_check.shown(at)} with wrt={_check.shown(wrt)}; leave it out")
    eta = getattr(model, "eta", None)
    wrt = wrt if isinstance(wrt, str) else _check.shown(wrt)
    if wrt == "beta" and eta is not None:
        return lambda beta: replace(model, arrival_rate=1 - beta / eta), eta * (1 - model.arrival_rate)
    numbers = [field.name for field in fields(model) if field.init and isinstance(getattr(model, field.name), float)]
    numbers = [name for name in numbers if name != "eta"] + ["beta"] * (eta is not None)
    if wrt not in numbers:
        raise ValueError(f"wrt must be one of {', '.join(map(repr, numbers))} for this {type(model).__name__}, or a function "
                         f"theta -> model; got {wrt!r}")
    return lambda theta: replace(model, **{wrt: theta}), getattr(model, wrt)


def _growth(model: Any) -> float:
    """Ticks per unit time for each unit of the arrival rate: n for a rate per server."""
    rate = model.arrival_rate / 2
    return float((model.clock() - replace(model, arrival_rate=rate).clock()) / rate)


def _default_steps(model: Any, wrt: Any, theta: float, end: float) -> list[float]:
    """The default, then shorter ones in case a model at the end of a step draws its ticks in another way."""
    step = 0.05 * abs(theta)
    if wrt in ("arrival_rate", "beta"):
        rate = model.arrival_rate
        capacity = model.clock() / _growth(model) - rate  # the arrival rate that keeps every server busy
        step = min(capacity / 20, rate / 4, (abs(capacity - rate) + 1 / max(end, 1e-9)) / 4)
        step *= model.eta if wrt == "beta" else 1.0
    return [0.9**k * float(step) for k in range(8)]


def _alike(family: Callable[[float], Model], theta: float, steps: list[float]) -> tuple[float, list[Model]]:
    """The first step h, and the models at theta + h, - h, + h/2, - h/2, that one compiled program, and so the same words, serves.

    Raises ValueError where there is none.
    """
    for step in steps:
        try:
            models = [family(theta + k * step) for k in (1, -1, 0.5, -0.5)]
        except ValueError as error:
            raise ValueError(f"step must lead to parameters that a model can have; got {step:g} at theta = {theta:g} ({error})"
                             ) from None
        levels = max(getattr(one, "levels", 0) for one in models)
        models = [one.at_levels(levels) if isinstance(one, PopulationModel) else one for one in models]
        if all(one.program() == models[0].program() and int(one.n) == int(models[0].n) for one in models):
            return step, models
    raise ValueError("models at theta +- step and +- step/2 must have the same n and draw their ticks in the same way; those of "
                     f"step {steps[0]:g} do not; use another step (near lambda = 1 ticks are drawn with more bits)")


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def _together(runs: list[Cohort], bar: Any) -> Iterator[list[np.ndarray]]:
    """Advance the runs call by call, all on one clock, and give their tails (levels, replicas) int64 at each save time."""
    for ticks in zip(*runs, strict=True):
        bar.update(sum(ticks))
        saved = [run.paths for run in runs]
        for run in runs:
            run.paths = []
            run.counters.clear()
        for tails in zip(*saved, strict=True):
            rows = max(tail.shape[0] for tail in tails)  # a run that met longer queues has grown
            yield [np.pad(tail.astype(np.int64), ((0, rows - tail.shape[0]), (0, 0))) for tail in tails]
