"""`jaxq bench`: how fast this installation is on this machine, and whether its integers are the ones they must be."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check, tables
from .commands import finish, no_plot
from .ensemble import Result
from .simulate import simulate

REPLICAS = 1024
_LONGEST = 64    # times as long as the check, a measured run may be at most


@dataclass(frozen=True)
class Case:
    """A model from empty to `t`, and the customers of replicas 0 to 7 with seed 0: the same with any version, devices and x64."""

    name: str
    model: Callable[[], Any]
    t: float
    customers: tuple[int, ...]


def _supermarket(n: int) -> Any:
    from .models.supermarket import Supermarket

    return Supermarket(n, 2, 0.9)


def _pull() -> Any:
    from .models.pools import Pool
    from .models.pull import Pull

    return Pull(1000, [Pool(0.5, 1.5, 1), Pool(0.5, 0.5, 3)], 2, 0.8)


def _graph() -> Any:
    from . import graphs
    from .models.graph import GraphSupermarket

    return GraphSupermarket(graphs.ring(1000, 4), 2, 0.9)


def _two_queues() -> Any:
    from .models.two_queues import TwoQueues

    return TwoQueues(None, 1.9)


#: One case for each kind of state: 16-bit counts, 32-bit counts, pools and messages, server by server, queue by queue.
CASES = (
    Case("supermarket, n = 1000", lambda: _supermarket(1000), 5.0, (1394, 1437, 1373, 1468, 1486, 1353, 1371, 1442)),
    Case("supermarket, n = 10^6", lambda: _supermarket(10**6), 0.01, (8891, 8911, 8707, 8998, 9104, 9089, 8876, 8852)),
    Case("PULL, n = 1000, 2 pools, 2 routers", _pull, 2.0, (695, 729, 703, 778, 726, 731, 690, 690)),
    Case("ring of degree 4, n = 1000", _graph, 2.0, (981, 861, 899, 849, 922, 807, 864, 909)),
    Case("two queues", _two_queues, 400.0, (20, 6, 7, 3, 25, 41, 9, 22)),
)


@dataclass(frozen=True)
class Benchmark(Result):
    """What `jaxq bench` measured, one entry for each case.

    ticks_per_second: all replicas together, all devices, from the call of `simulate` to its result, compilation apart.
    compile_seconds: of the first call. reproduced: seed 0 gave the integers stored with the case.
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(
        ("ticks_per_second", "compile_seconds", "reproduced"), ("case",))
    json_keys: ClassVar[tuple[str, ...]] = ("cases", "ticks_per_second", "compile_seconds", "reproduced", "replicas", "seconds")

    cases: tuple[str, ...]
    ticks_per_second: np.ndarray
    compile_seconds: np.ndarray
    reproduced: np.ndarray
    replicas: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line, with versions and devices."""
        return super().to_json() | self.attributes


def bench(options: argparse.Namespace) -> None:
    """`jaxq bench`."""
    no_plot(options)
    result = measure(_check.real("--seconds", options.seconds, 0.0, 1e6, open_low=True))
    wrong = [name for name, same in zip(result.cases, result.reproduced, strict=True) if not same]
    if wrong:
        warnings.warn(f"seed 0 did not give the integers it must in {'; '.join(wrong)}: do not trust this installation on this "
                      "device", stacklevel=2)

    def text() -> str:
        rows = [[name, f"{rate / 1e6:.0f}" if rate >= 1e8 else f"{rate / 1e6:.3g}", f"{compiled:.1f}", "yes" if same else "NO"]
                for name, rate, compiled, same in zip(result.cases, result.ticks_per_second, result.compile_seconds,
                                                      result.reproduced, strict=True)]
        seen = result.attributes
        return (tables.table(["model", "million ticks/s", "compile (s)", "same integers"], rows)
                + f"\n{seen['devices']} x {seen['device']}, {result.replicas} replicas, jaxq {seen['jaxq_version']}, "
                  f"JAX {seen['jax_version']}, Python {seen['python_version']}, {result.seconds:.0f} s")

    finish(options, result, text)


def measure(seconds: float) -> Benchmark:
    """Check every case and measure it for about its share of `seconds`; compilation comes on top."""
    began = time.perf_counter()
    found = [_measure(case, seconds / len(CASES)) for case in CASES]
    rates, compiled, same = (np.array(column) for column in zip(*found, strict=True))
    return Benchmark({}, tuple(case.name for case in CASES), rates, compiled, same, REPLICAS,
                     time.perf_counter() - began)


def _measure(case: Case, seconds: float) -> tuple[float, float, bool]:
    """Ticks per second, compile seconds, and whether the integers are right."""
    model = case.model()
    first = simulate(model, [case.t], 0, replicas=REPLICAS, save="paths", progress=False)
    assert first.paths is not None
    customers = first.paths[0, :, :len(case.customers)].sum(axis=0)
    lasted = max(first.seconds, 1e-3)
    longer = float(np.clip(seconds / 2 / lasted, 1, _LONGEST))
    rates: list[float] = []
    until = time.perf_counter() + seconds
    while not rates or time.perf_counter() < until:
        start = time.perf_counter()
        run = simulate(model, [longer * case.t], 0, replicas=REPLICAS, progress=False)
        rates.append(run.events / (time.perf_counter() - start))
    return float(np.median(rates)), first.compile_seconds, customers.tolist() == list(case.customers)
