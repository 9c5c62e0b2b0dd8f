"""Time until the mean queue length Q of n = 1000 servers, d = 2, lambda = 0.9, is known to a standard error, in steady state.

The clock runs from the start of the program, so it counts imports, compilation, the warm-up and the window. For jaxq it is the
wall time of its command. C is compiled and run, two processes. For the packages it is their time to a first result, and the
events it takes at the speed they had: every exact simulator needs the same simulated time, sigma^2 / error^2 over all replicas,
where sigma^2 is the asymptotic variance of the time average of Q; looking at Q is left out, in their favour.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provenance import CORES

N, ARRIVAL_RATE, D = 1000, 0.9, 2
ERRORS = (1e-3, 1e-4)
WARMUP = 10 / ((1 - ARRIVAL_RATE) * math.log(D))  # ten relaxation times, which leave exp(-10) of the start


def command(replicas: int, *more: str) -> tuple[float, dict[str, Any]]:
    """Wall seconds of `jaxq stationary` and what it says, in a fresh process."""
    words = ["stationary", "supermarket", "--n", str(N), "--d", str(D), "--arrival-rate", str(ARRIVAL_RATE), "--replicas",
             str(replicas), "--no-progress", "--json", *more]
    began = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", "import sys, jaxq.cli; sys.exit(jaxq.cli.main())", *words], capture_output=True,
                         text=True)
    seconds = time.perf_counter() - began
    if run.returncode:
        raise RuntimeError(f"jaxq {' '.join(words)} failed: {run.stderr.strip()}")
    return seconds, json.loads(run.stdout)


@dataclass(frozen=True)
class Variance:
    """sigma^2 and its relative error."""

    sigma2: float
    relative_error: float


def variance(replicas: int, horizon: float) -> Variance:
    """From the spread of the replicas' averages over a window of many relaxation times."""
    _, found = command(replicas, "--horizon", repr(horizon), "--seed", "11")
    plain = found["mean_queue_length"]["stderr"] ** 2 * found["control_gain"]  # of the mean over replicas, without controls
    return Variance(plain * replicas * horizon, math.sqrt(2 / (replicas - 1)))


def jaxq_seconds(error: float, seed: int, replicas: int = 128) -> tuple[float, dict[str, Any]]:
    """Wall seconds with control variates, and what the command says."""
    return command(replicas, "--rel-error", repr(error / 2.36), "--seed", str(seed))


def jaxq_plain_seconds(error: float, sigma2: float, seed: int, replicas: int = 128) -> float:
    """Wall seconds of a window so long that the error is `error` without control variates."""
    return command(replicas, "--horizon", repr(sigma2 / error**2 / replicas), "--seed", str(seed))[0]


def c_seconds(program: str, form: str, error: float, sigma2: float, processes: int) -> float:
    """Wall seconds of C, one process a core: both warm-ups and the window."""
    events = (1 + ARRIVAL_RATE) * N * (processes * WARMUP + sigma2 / error**2)
    ticks = str(int(events / processes / 1.25))  # it warms up for a quarter of what it is asked for
    began = time.perf_counter()
    runs = [subprocess.Popen([program, form, str(N), str(ARRIVAL_RATE), ticks, str(seed)], stdout=subprocess.DEVNULL)
            for seed in range(processes)]
    for run in runs:
        run.wait()
    return time.perf_counter() - began


def package_seconds(first: float, rate: float, error: float, sigma2: float, at_once: int) -> float:
    """Seconds of a package with that rate of real events, which advances so many replicas at once, each with its warm-up."""
    return first + 2 * ARRIVAL_RATE * N * (at_once * WARMUP + sigma2 / error**2) / rate


class Contest:
    """jaxq with and without control variates and C in turns; `seconds` by (name, error), `said` by jaxq's last command."""

    def __init__(self, program: str, c_build: float, forms: Sequence[str], replicas: int) -> None:
        self.program, self.c_build, self.forms, self.processes = program, c_build, forms, CORES
        self.variance = variance(replicas, 1000.0)
        self.seconds: dict[tuple[str, float], list[float]] = {}
        self.said: dict[str, Any] = {}

    def round(self, seed: int) -> None:
        """One turn of each: C's forms and jaxq without control variates to the larger error only."""
        for error in ERRORS:
            seconds, self.said = jaxq_seconds(error, seed)
            self._add("jaxq", error, seconds)
        self._add("jaxq plain", ERRORS[0], jaxq_plain_seconds(ERRORS[0], self.variance.sigma2, seed))
        for form in self.forms:
            self._add(f"C {form}", ERRORS[0], c_seconds(self.program, form, ERRORS[0], self.variance.sigma2, self.processes))

    def _add(self, name: str, error: float, seconds: float) -> None:
        self.seconds.setdefault((name, error), []).append(seconds)
