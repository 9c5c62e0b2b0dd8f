"""The scaling study: T^n = eta_n (1 - S^n) at growing n beside its limit, with errors, fluctuations and their slopes in n."""

from __future__ import annotations

import itertools
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from . import _check, bits, files, heavy_traffic
from .algorithms import choose
from .checkpoint import EVERY, Checkpoint
from .ensemble import Result, describe_start
from .models.supermarket import Supermarket
from .rescaling import fixed_point_T, pi
from .rescaling import profile as check_profile
from .simulate import simulate

LEVELS = 8       # levels reported
_SEEN = 4        # levels that bias and fluctuation look at, each weighted by d**-i
_RESAMPLES = 400
_ROW = ("n", "eta", "arrival_rate", "replicas", "seed", "bias", "bias_stderr", "bias_finite", "fluctuation",
        "fluctuation_stderr")


@dataclass(frozen=True)
class Study(Result):
    """T^n against its limit for each n, from `scaling_study`; n is the first dimension, level 1 first.

    times: (time,), in mean service times. n, eta, arrival_rate (per server), seed: (n,).
    T_mean, T_stderr, T_std: (n, time, level), mean, its standard error and standard deviation over replicas.
    T_limit: the linear system (10) from the limit of the start. T_finite: the finite-eta system from the rounded start.
    bias: (n,) sup over t <= t_end and i <= 4 of d**-i |T_mean - T_limit|; bias_finite: the same of T_finite.
    fluctuation: (n,) the same sup of d**-i T_std. *_stderr: bootstrap over replicas. A sup over times of noisy estimates lies
      above the sup of what they estimate: the fluctuation by about a tenth at 200 replicas, much the same at every n.
    slopes: least squares of ln bias and ln fluctuation in ln n; None with one n.

    Example::

        >>> study = jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3)
        >>> study.T_mean.shape, study.eta.tolist(), study.slopes["bias"]["asymptotic"]
        ((2, 3, 8), [50.0, 100.0], -0.5)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "times": ("time",), "n": ("n",), "eta": ("n",), "arrival_rate": ("n",), "seed": ("n",), "bias": ("n",),
        "bias_stderr": ("n",), "bias_finite": ("n",), "fluctuation": ("n",), "fluctuation_stderr": ("n",),
        "T_mean": ("n", "time", "level"), "T_stderr": ("n", "time", "level"), "T_std": ("n", "time", "level"),
        "T_limit": ("n", "time", "level"), "T_finite": ("n", "time", "level")}
    json_keys: ClassVar[tuple[str, ...]] = ("times", "rows", "slopes")

    times: np.ndarray
    n: np.ndarray
    eta: np.ndarray
    arrival_rate: np.ndarray
    seed: np.ndarray
    bias: np.ndarray
    bias_stderr: np.ndarray
    bias_finite: np.ndarray
    fluctuation: np.ndarray
    fluctuation_stderr: np.ndarray
    T_mean: np.ndarray
    T_stderr: np.ndarray
    T_std: np.ndarray
    T_limit: np.ndarray
    T_finite: np.ndarray
    slopes: dict[str, dict[str, float]] | None
    replicas: int
    d: int
    beta: float
    alpha: float
    replacement: bool

    def coordinates(self) -> dict[str, Any]:
        """Labels of the dimensions, n among them."""
        return super().coordinates() | {"n": self.n}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per n, as in the JSON object."""
        names = ("n", "eta", "arrival_rate", "T_mean", "T_stderr", "T_limit", "T_finite", "bias", "bias_stderr",
                 "bias_finite", "fluctuation", "fluctuation_stderr", "seed")
        return [{name: getattr(self, name)[k] for name in names} for k in range(self.n.size)]

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per n: parameters, bias, fluctuation and their errors. Raises ValueError if it cannot.

        Example::

            >>> study = jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3)
            >>> study.save_csv("study.csv")
            >>> np.genfromtxt("study.csv", delimiter=",", names=True)["eta"]
            array([ 50., 100.])
        """
        files.write_csv(path, _ROW, ([self.replicas if name == "replicas" else getattr(self, name)[k].item() for name in _ROW]
                                     for k in range(self.n.size)))


def scaling_study(d: int, beta: float, alpha: float = 0.5, *, n: Any, t_end: float, replicas: int, key: Any,
                  num_times: int = 101, start: Any = None, replacement: bool = True, out_dir: str | os.PathLike[str] | None = None,
                  algorithm: str = "exact", step: float | None = None, order: int | None = None, devices: Any = None,
                  checkpoint: Any = None, every: float = EVERY, resume: bool = False, progress: bool | None = None) -> Study:
    """Simulate the supermarket model at lambda_n = 1 - beta n**-alpha for each n and compare T^n with its limit.

    Args:
      d, beta, alpha: the regime; alpha outside (0, 1/2] is allowed with a warning (condition (5) of the theorem).
      n: numbers of servers, increasing. t_end, num_times: the grid of save times, 0 included, in mean service times.
      replicas: independent copies at each n. key: as in `simulate`; each n has its own key, stored as its `seed`.
      start: T profile at time 0 (level,), or "empty" or "fixed-point"; None: the finite-eta fixed point plus 2 beta on levels
        1..3. It becomes tail counts by rounding n S_i half up. Levels above a given profile follow
        T_{i+1} = (d + 1) T_i - d T_{i-1}, at most eta.
      algorithm, step, order: as in `simulate`; with "leap" the cost does not depend on n.
      out_dir: folder for study.nc and study.csv, written again after every n, so that an interrupt loses one n at most.
      checkpoint, every, resume: as in `simulate`; a study also goes on with more n.

    Returns `Study`. Raises ValueError for bad input. Source: Eschenfeldt and Gamarnik, arXiv:1610.03522, Theorem 2.

    Example, the distance of T^n from its limit::

        >>> study = jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3)
        >>> study.bias.round(2)
        array([0.12, 0.06])
    """
    sizes = [_check.integer("n", size, 1, 2**31 - 1) for size in np.atleast_1d(np.asarray(n, object))]
    if not sizes or any(a >= b for a, b in itertools.pairwise(sizes)):
        raise ValueError(f"n must be an increasing list of numbers of servers; got {list(sizes)}; sort it and drop duplicates")
    d = _check.integer("d", d, 1, 64)
    alpha = _check.real("alpha", alpha, 0.0, 2.0, open_low=True)
    t_end = _check.real("t_end", t_end, 0.0, 1e9, open_low=True)
    times = np.linspace(0.0, t_end, _check.integer("num_times", num_times, 2, _check.MOST_TIMES))
    if alpha > 0.5:
        warnings.warn(f"alpha = {alpha:g} is outside (0, 1/2]: condition (5), eta_n <= C sqrt(n), of the limit theorem does "
                      "not hold; the comparison is an experiment", stacklevel=2)
    models = [Supermarket.heavy_traffic(size, d, beta, alpha, replacement=replacement) for size in sizes]
    run = {"algorithm": algorithm, "step": step, "order": order, "devices": devices, "progress": progress}
    file = Checkpoint.of(checkpoint, every, resume, "scaling_study")
    for model in models:
        choose(model, algorithm, step, order)
    starts = [_start(model, start, beta, alpha) for model in models]  # all refusals come before the first run
    folder = None if out_dir is None else make_folder(out_dir)
    words = bits.key_words(key)
    given = {"algorithm": algorithm, "step": step, "order": order, "start": describe_start(start)}
    rows: list[dict[str, Any]] = []
    for model, (profile, limit_start) in zip(models, starts, strict=True):
        own = np.concatenate(bits.fold_in(words, np.array([model.n], np.uint32)))
        run["checkpoint"] = file.part(f"n={model.n}")
        rows.append(_row(model, profile, limit_start, beta, times, replicas, int(own[0]) << 32 | int(own[1]), run))
        study = _collect(rows, given, times, replicas, d, beta, alpha, replacement)
        if folder is not None:
            try:
                study.save(folder / "study.nc")
                study.save_csv(folder / "study.csv")
            except ValueError as error:  # the result in memory is worth more
                warnings.warn(f"{error}; the study goes on and tries again after the next n", stacklevel=2)
    return study


def make_folder(path: str | os.PathLike[str], what: str = "the results") -> Path:
    """The folder, made if missing; ValueError if nothing can be written there."""
    folder = _check.path("the folder", path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"{what} need a folder that can be written; got {_check.shown(str(path))} "
                         f"({_check.reason(error)}); choose another") from error
    return folder


def _start(model: Supermarket, start: Any, beta: float, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """T profile at time 0 of the chain (until it reaches eta), and the start of (10) it tends to (level,)."""
    d, eta = model.d, float(model.eta)
    if start is None:
        profile = heavy_traffic.start_profile(64, d, beta, eta, alpha=alpha)
        limit_start = pi(LEVELS, d, beta)
        limit_start[:3] += 2 * beta
        return profile, limit_start
    if isinstance(start, str):
        _check.choice("start", start, ("empty", "fixed-point"))
        if start == "empty":
            return np.full(1, eta), np.full(LEVELS, eta)
        return fixed_point_T(64, d, beta, eta), pi(LEVELS, d, beta)
    given = _check.vector("start", start).astype(np.float64)
    above = list(given)
    while len(above) < max(LEVELS, 64) and above[-1] < 1e300:
        above.append((d + 1) * above[-1] - d * (above[-2] if len(above) > 1 else 0.0))
    profile = check_profile("start", np.concatenate([given, np.minimum(above[given.size:], eta)]), eta)
    return profile, np.array(above[:max(LEVELS, given.size)])


def _row(model: Supermarket, profile: np.ndarray, limit_start: np.ndarray, beta: float, times: np.ndarray, replicas: int,
         seed: int, run: dict[str, Any]) -> dict[str, Any]:
    n, d, eta = int(model.n), model.d, float(model.eta)
    counts = heavy_traffic.tail_counts(profile, n, eta)
    result = simulate(model, times, seed, replicas=replicas, initial=counts if counts.size else None, save="paths", **run)
    assert result.paths is not None  # save="paths"
    rounded = np.append(eta * (1 - counts / n), eta)
    limit = heavy_traffic.limit(times, limit_start, d, levels=LEVELS)
    finite = heavy_traffic.finite_eta(times, rounded, d, beta, eta, levels=LEVELS)
    T = eta * (1 - result.paths[:, :_SEEN].astype(np.float64) / n)
    weights = float(d) ** -np.arange(1.0, _SEEN + 1)
    every = np.ones((1, replicas))
    bias, fluctuation = (sup[0] for sup in _sups(T, limit.T, weights, every))
    resamples = np.random.default_rng(seed).multinomial(replicas, np.full(replicas, 1 / replicas), _RESAMPLES).astype(float)
    bias_boot, fluctuation_boot = _sups(T, limit.T, weights, resamples)
    std = eta * np.sqrt(result.tail_variance[:, :LEVELS])
    return {"n": n, "eta": eta, "arrival_rate": model.arrival_rate, "seed": np.uint64(seed), "bias": bias,
            "seconds": result.seconds, "compile_seconds": result.compile_seconds,
            "bias_stderr": bias_boot.std(ddof=1), "bias_finite": _sup(finite.T[None, :, :_SEEN] - limit.T[:, :_SEEN], weights)[0],
            "fluctuation": fluctuation, "fluctuation_stderr": fluctuation_boot.std(ddof=1),
            "T_mean": eta * (1 - result.tail_mean[:, :LEVELS]), "T_std": std, "T_stderr": std / replicas**0.5,
            "T_limit": limit.T, "T_finite": finite.T, "bias_boot": bias_boot, "fluctuation_boot": fluctuation_boot}


def _sups(T: np.ndarray, limit: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bias and fluctuation, (resamples,), of replicas taken `counts` (resamples, replicas) times each; T (time, level, replica)."""
    replicas = T.shape[2]
    centre = T.mean(axis=2)
    away = (T - centre[:, :, None]).reshape(-1, replicas)
    shift = (counts @ away.T / replicas).reshape(-1, *centre.shape)
    square = (counts @ (away**2).T / replicas).reshape(shift.shape)
    spread = np.sqrt(np.maximum(square - shift**2, 0) * replicas / max(replicas - 1, 1))
    return _sup(centre + shift - limit[:, :_SEEN], weights), _sup(spread, weights)


def _sup(difference: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Largest weighted absolute value over times and levels of (..., time, level)."""
    return np.max(np.abs(difference) * weights, axis=(-2, -1))


def _collect(rows: list[dict[str, Any]], given: dict[str, Any], times: np.ndarray, replicas: int, d: int, beta: float, alpha: float,
             replacement: bool) -> Study:
    fields = {name: np.array([row[name] for row in rows]) for name in Study.dims if name != "times"}
    slopes = None
    if len(rows) > 1:
        log_n = np.log(fields["n"].astype(float))

        def slope(values: Any) -> Any:
            centred = log_n - log_n.mean()
            return centred @ np.log(np.maximum(values, 1e-300)) / (centred @ centred)

        slopes = {name: {"slope": float(slope(fields[name])),
                         "stderr": float(np.std(slope(np.array([row[f"{name}_boot"] for row in rows])), ddof=1))}
                  for name in ("bias", "fluctuation")}
        slopes["bias"] |= {"finite_eta": float(slope(fields["bias_finite"])), "asymptotic": -alpha}
        slopes["fluctuation"] |= {"predicted": -(1 - alpha) / 2}
    spent = {name: sum(row[name] for row in rows) for name in ("seconds", "compile_seconds")}
    return Study(attributes=given | spent, times=times, slopes=slopes, replicas=replicas, d=d, beta=beta, alpha=alpha,
                 replacement=replacement, **fields)
