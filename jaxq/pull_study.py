"""PULL against n and the number of routers, beside join the shortest of two at the same load."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check, bits
from .ensemble import Result, provenance
from .models.classes import SupermarketClasses
from .models.pools import Pool
from .models.pull import Pull
from .models.supermarket import Supermarket
from .simulate import simulate

_SAVES = 64   # states looked at in the window
_MEASURES = ("p_wait", "p_block", "messages_per_customer", "mean_response_time")


@dataclass(frozen=True)
class PullStudy(Result):
    """Steady-state measures of PULL, (n, routers), with standard errors over replicas, from `pull_study`.

    p_wait: a customer joins a busy server; p_block: it is lost; messages_per_customer: pull messages sent per arrival;
    mean_response_time: of customers that are served, by Little's law, in the unit of the rates.
    supermarket_p_wait, supermarket_p_block, supermarket_response_time (n,): join the shorter of two, with replacement, on the
    same servers at the same load. It asks two servers per customer.
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "n": ("n",), "routers": ("routers",),
        **{name + suffix: ("n", "routers") for name in _MEASURES for suffix in ("", "_stderr")},
        **{f"supermarket_{name}{suffix}": ("n",) for name in ("p_wait", "p_block", "response_time") for suffix in ("", "_stderr")}}
    json_keys: ClassVar[tuple[str, ...]] = (*dims, "arrival_rate", "warmup", "horizon", "replicas", "seed")

    n: np.ndarray
    routers: np.ndarray
    p_wait: np.ndarray
    p_wait_stderr: np.ndarray
    p_block: np.ndarray
    p_block_stderr: np.ndarray
    messages_per_customer: np.ndarray
    messages_per_customer_stderr: np.ndarray
    mean_response_time: np.ndarray
    mean_response_time_stderr: np.ndarray
    supermarket_p_wait: np.ndarray
    supermarket_p_wait_stderr: np.ndarray
    supermarket_p_block: np.ndarray
    supermarket_p_block_stderr: np.ndarray
    supermarket_response_time: np.ndarray
    supermarket_response_time_stderr: np.ndarray
    arrival_rate: float
    warmup: float
    horizon: float
    replicas: int
    seed: int

    def coordinates(self) -> dict[str, Any]:
        """Labels of the dimensions."""
        return {"n": self.n, "routers": self.routers}

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per n and number of routers."""
        names = [name + suffix for name in _MEASURES for suffix in ("", "_stderr")]
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["n", "routers", *names])
            for i, n in enumerate(self.n):
                for j, routers in enumerate(self.routers):
                    writer.writerow([int(n), int(routers), *(float(getattr(self, name)[i, j]) for name in names)])


def pull_study(pools: Sequence[Pool], arrival_rate: float, *, n: Any, routers: Any, replicas: int, key: Any,
               messages: str = "withdraw", warmup: float | None = None, horizon: float | None = None,
               progress: bool | None = None) -> PullStudy:
    """Simulate PULL in steady state for every n and number of routers, with the supermarket model (d = 2) beside it.

    Args:
      pools, arrival_rate, messages: as in `Pull`. n, routers: increasing lists.
      replicas: independent copies, at least 2; the errors are those of their ratio estimates.
      key: as in `simulate`; every (n, routers) has its own.
      warmup, horizon: time from empty before the window, and the window. None: with slack s = 1 - lambda / capacity,
        20/s + 3 n s**2 at the largest n (the queues, and the split of the messages over routers), and 4 times that.

    Returns `PullStudy`. Raises ValueError for bad input and for an overloaded system. Source: Stolyar, arXiv:1512.07873.
    """
    sizes, counts = (_increasing(name, value) for name, value in (("n", n), ("routers", routers)))
    _check.integer("replicas", replicas, 2, hint="the errors come from independent replicas")
    capacity = sum(pool.fraction * pool.rate for pool in pools)
    slack = 1 - arrival_rate / capacity
    if slack <= 0:
        raise ValueError(f"arrival_rate must be below the servers' capacity {capacity:g} for a steady state; "
                         f"got {arrival_rate:g}; lower it")
    warmup = 20 / slack + 3 * sizes[-1] * slack**2 if warmup is None else _check.real("warmup", warmup, 0.0, open_low=True)
    horizon = 4 * warmup if horizon is None else _check.real("horizon", horizon, 0.0, open_low=True)
    words = bits.key_words(key)
    ts = warmup + np.linspace(0, horizon, _SAVES + 1)
    table: dict[str, list[Any]] = {name: [] for name in PullStudy.dims if name not in ("n", "routers")}
    for size in sizes:
        row: dict[str, list[float]] = {name + suffix: [] for name in _MEASURES for suffix in ("", "_stderr")}
        for count in counts:
            run = simulate(Pull(size, list(pools), count, arrival_rate, messages), ts, _own(words, size, count),
                           replicas=replicas, save="paths", progress=progress)
            for name, (value, error) in _measures(run, size, arrival_rate).items():
                row[name].append(value)
                row[f"{name}_stderr"].append(error)
        for name, values in row.items():
            table[name].append(values)
        other = _supermarket(size, pools, arrival_rate, ts, _own(words, size, 0), replicas, progress)
        for name, value in zip([name for name in table if name.startswith("supermarket")], other, strict=True):
            table[name].append(value)
    return PullStudy(provenance(), np.array(sizes), np.array(counts), **{name: np.array(values) for name, values in table.items()},
                     arrival_rate=arrival_rate, warmup=warmup, horizon=horizon, replicas=replicas,
                     seed=int(words[0]) << 32 | int(words[1]))


def _increasing(name: str, value: Any) -> list[int]:
    values = [_check.integer(name, item, 1, 2**31 - 1) for item in np.atleast_1d(np.asarray(value, object))]
    if not values or sorted(set(values)) != values:
        raise ValueError(f"{name} must be an increasing list; got {values}; sort it and drop duplicates")
    return values


def _own(words: np.ndarray, n: int, routers: int) -> int:
    one = np.concatenate(bits.fold_in(words, np.array([n], np.uint32)))
    high, low = (int(part[0]) for part in bits.fold_in(one, np.array([routers], np.uint32)))
    return high << 32 | low


def _measures(run: Any, n: int, arrival_rate: float) -> dict[str, tuple[float, float]]:
    window = _window(run)
    arrivals = window["arrivals"]
    return {"p_wait": _ratio(window["waited"], arrivals), "p_block": _ratio(window["lost"], arrivals),
            "messages_per_customer": _ratio(window["messages"], arrivals),
            "mean_response_time": _response(run, window, n, arrival_rate)}


def _window(run: Any) -> dict[str, np.ndarray]:
    """Counters of each replica between the first and the last save."""
    window = {name: (path[-1] - path[0]).astype(float) for name, path in run.counter_paths.items()}
    return {"lost": np.zeros_like(window["arrivals"])} | window


def _response(run: Any, window: dict[str, np.ndarray], n: int, arrival_rate: float) -> tuple[float, float]:
    """Mean response time of the customers served, by Little's law, and its error."""
    queue = run.paths[1:].sum(axis=1).mean(axis=0) / n
    return _ratio(queue, (window["arrivals"] - window["lost"]) / window["arrivals"].mean() * arrival_rate)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, float]:
    """Ratio of means over replicas and its standard error, by linearisation."""
    value = numerator.mean() / denominator.mean()
    residual = (numerator - value * denominator) / denominator.mean()
    return float(value), float(residual.std(ddof=1) / residual.size**0.5)


def _supermarket(n: int, pools: Sequence[Pool], arrival_rate: float, ts: np.ndarray, key: int, replicas: int,
                 progress: bool | None) -> list[float]:
    """P(wait), P(block) and mean response time of the shorter of two on the same servers, each with its error."""
    alike = all(pool.rate == 1 and pool.buffer is None for pool in pools)
    model = Supermarket(n, 2, arrival_rate) if alike else SupermarketClasses(n, list(pools), 2, arrival_rate)
    run = simulate(model, ts, key, replicas=replicas, save="paths", progress=progress)
    assert run.paths is not None  # save="paths"
    window = _window(run)
    blocked = window["lost"] / window["arrivals"].mean()
    waits = ((run.paths[1:, 0] / n) ** 2).mean(axis=0) - blocked  # both sampled servers busy, and not both full
    measures = (_ratio(waits, np.ones(replicas)), _ratio(window["lost"], window["arrivals"]),
                _response(run, window, n, arrival_rate))
    return [number for measure in measures for number in measure]
