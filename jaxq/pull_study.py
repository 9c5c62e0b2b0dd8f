"""PULL against n and the number of routers, beside join the shortest of two at the same load."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check, bits, files
from .chain import Model
from .checkpoint import EVERY, Checkpoint
from .ensemble import Result
from .models.classes import SupermarketClasses
from .models.pools import Pool, listed
from .models.pull import Pull
from .models.supermarket import Supermarket
from .stationary import stationary
from .steady_state import Stationary

_MEASURES = ("p_wait", "p_block", "messages_per_customer", "mean_response_time")


@dataclass(frozen=True)
class PullStudy(Result):
    """Steady-state measures of PULL, (n, routers), with standard errors over replicas, from `pull_study`.

    p_wait: a customer joins a busy server; p_block: it is lost; messages_per_customer: pull messages sent per arrival;
    mean_response_time: of customers that are served, by Little's law, in the unit of the rates.
    supermarket_p_wait, supermarket_p_block, supermarket_response_time (n,): join the shorter of two, with replacement, on the
    same servers at the same load, nan where it has no steady state. It asks two servers per customer.
    warmup (n, routers), horizon: time left out, and the window, in the unit of the rates.

    Example, with nearly one message per customer and hardly any waiting::

        >>> study = jaxq.pull_study([jaxq.Pool(1.0)], 0.5, n=[10, 40], routers=1, replicas=64, key=0, warmup=10.0, horizon=40.0)
        >>> study.messages_per_customer.round(1).tolist(), study.mean_response_time.round(1).tolist()
        ([[1.0], [1.0]], [[1.0], [1.0]])
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "n": ("n",), "routers": ("routers",), "warmup": ("n", "routers"),
        **{name + suffix: ("n", "routers") for name in _MEASURES for suffix in ("", "_stderr")},
        **{f"supermarket_{name}{suffix}": ("n",) for name in ("p_wait", "p_block", "response_time") for suffix in ("", "_stderr")}}
    json_keys: ClassVar[tuple[str, ...]] = (*dims, "arrival_rate", "horizon", "replicas", "seed")

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
    warmup: np.ndarray
    arrival_rate: float
    horizon: float
    replicas: int
    seed: int

    def coordinates(self) -> dict[str, Any]:
        """Labels of the dimensions."""
        return {"n": self.n, "routers": self.routers}

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per n and number of routers."""
        names = [name + suffix for name in _MEASURES for suffix in ("", "_stderr")]
        files.write_csv(path, ["n", "routers", *names], (
            [int(n), int(routers), *(float(getattr(self, name)[i, j]) for name in names)]
            for i, n in enumerate(self.n) for j, routers in enumerate(self.routers)))


def pull_study(pools: Sequence[Pool], arrival_rate: float, *, n: Any, routers: Any, replicas: int, key: Any,
               messages: str = "withdraw", warmup: float | None = None, horizon: float | None = None,
               checkpoint: Any = None, every: float = EVERY, resume: bool = False, progress: bool | None = None) -> PullStudy:
    """Simulate PULL in steady state for every n and number of routers, with the supermarket model (d = 2) beside it.

    Args:
      pools, arrival_rate, messages: as in `Pull`. n, routers: increasing lists.
      replicas: independent copies, at least 2.
      key: as in `simulate`; every (n, routers) has its own.
      warmup, horizon: time before the window, and the window, in the unit of the pools' rates. None: what `stationary` finds
        for each system, and 40 times the longest relaxation time that theory knows.
      checkpoint, every, resume: as in `stationary`; a study also goes on with more n and routers.

    Returns `PullStudy`. Raises ValueError for bad input and for an overloaded system. Source: Stolyar, arXiv:1512.07873.

    Example: P(wait) vanishes as n grows, and tends to lambda**2 = 0.25 with the shorter of two::

        >>> study = jaxq.pull_study([jaxq.Pool(1.0)], 0.5, n=[10, 40], routers=1, replicas=64, key=0, warmup=10.0, horizon=40.0)
        >>> study.p_wait.round(3).tolist(), study.supermarket_p_wait.round(3).tolist()
        ([[0.025], [0.0]], [0.284, 0.258])
    """
    sizes, counts = (_increasing(name, value) for name, value in (("n", n), ("routers", routers)))
    _check.integer("replicas", replicas, 2, 2**31 - 1, "the errors come from independent replicas")
    pools = listed(pools)
    models = {(size, count): Pull(size, pools, count, arrival_rate, messages) for size in sizes for count in counts}
    warmup = None if warmup is None else _check.real("warmup", warmup, 0.0, open_low=True)
    horizon = study_horizon(models.values(), horizon)
    words = bits.key_words(key)
    file = Checkpoint.of(checkpoint, every, resume, "pull_study")

    spent = {"seconds": 0.0, "compile_seconds": 0.0}

    def run(model: Any, routers: int) -> Stationary:
        result = stationary(model, _own(words, model.n, routers), replicas=replicas, warmup=warmup, horizon=horizon,
                            checkpoint=file.part(f"n={model.n} routers={routers}"), progress=progress)
        for name in spent:
            spent[name] += getattr(result, name)
        return result

    table: dict[str, list[Any]] = {name: [] for name in PullStudy.dims if name not in ("n", "routers")}
    for size in sizes:
        row = [run(models[size, count], count) for count in counts]
        try:
            other = run(rival(size, pools, arrival_rate), 0)
        except ValueError:  # at this load it has no steady state
            other = None
        for name in (*_MEASURES, "warmup"):
            for suffix in ("", "_stderr") if name in _MEASURES else ("",):
                table[name + suffix].append([getattr(result, name + suffix) for result in row])
        for name, measure in (("p_wait", "p_wait"), ("p_block", "p_block"), ("response_time", "mean_response_time")):
            for suffix in ("", "_stderr"):
                table[f"supermarket_{name}{suffix}"].append(getattr(other, measure + suffix, np.nan))
    attributes = {"pools": [str(pool) for pool in pools], "messages": messages} | spent
    return PullStudy(attributes, np.array(sizes), np.array(counts), **{name: np.array(values) for name, values in table.items()},
                     arrival_rate=arrival_rate, horizon=horizon, replicas=replicas,
                     seed=int(words[0]) << 32 | int(words[1]))


def rival(n: int, pools: Sequence[Pool], arrival_rate: float) -> Model:
    """Join the shorter of two on the same servers."""
    alike = all(pool.rate == 1 and pool.buffer is None for pool in pools)
    return Supermarket(n, 2, arrival_rate) if alike else SupermarketClasses(n, pools, 2, arrival_rate)


def study_horizon(models: Iterable[Pull], horizon: float | None) -> float:
    """The window of every system, as given or 40 times the longest relaxation time that theory knows."""
    if horizon is not None:
        return float(_check.real("horizon", horizon, 0.0, open_low=True))
    return 40 * max(model.steady().relaxation or 1.0 for model in models)


def _increasing(name: str, value: Any) -> list[int]:
    values = [_check.integer(name, item, 1, 2**31 - 1) for item in np.atleast_1d(np.asarray(value, object))]
    if not values or sorted(set(values)) != values:
        raise ValueError(f"{name} must be an increasing list; got {values}; sort it and drop duplicates")
    return values


def _own(words: np.ndarray, n: int, routers: int) -> int:
    one = np.concatenate(bits.fold_in(words, np.array([n], np.uint32)))
    high, low = (int(part[0]) for part in bits.fold_in(one, np.array([routers], np.uint32)))
    return high << 32 | low
