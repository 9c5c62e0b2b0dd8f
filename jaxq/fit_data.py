"""What `fit_scaling` fits: means at several n with their covariance, read from jaxq results, a study folder, a CSV or columns.

Every source becomes a list of blocks, one n each, independent of each other. Inside a block the covariance is that of the
replicas where the source holds them; where it only holds standard errors the entries are taken as independent.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _check
from .ensemble import Result, complaint, load

QUANTITIES = ("S", "T", "Q")
_MOST_LEVELS = 6   # levels of one block unless asked otherwise: level 1 tells lambda, a few more test the law
_LEAST_TAIL = 0.05  # levels below are left out unless asked for: the expansion in 1/n is poor in the far tail
_SPARE = 5         # replicas beyond the entries, so that the inverse of their covariance has a mean and a variance


class Block(NamedTuple):
    """Entries of one n: level (entry,), 0 for the mean queue length Q, else i of S_i; value (entry,) and covariance
    (entry, entry) of these means; time (entry,) or None (stationary); replicas whose scatter gave the covariance, or None
    where it is known; start (level,) tails at time 0, or None."""

    n: float
    level: np.ndarray
    value: np.ndarray
    covariance: np.ndarray
    time: np.ndarray | None
    replicas: int | None
    start: np.ndarray | None


class Data(NamedTuple):
    """Blocks by increasing n; d and replacement where the source knows them, else None."""

    blocks: list[Block]
    d: int | None
    replacement: bool | None


def read(data: Any, levels: int | None = None, times: Any = None) -> Data:
    """The blocks of `data`; arguments and errors as in `fit_scaling`."""
    if levels is not None:
        levels = _check.integer("levels", levels, 1)
    if times is not None:
        times = _check.times([times] if np.isscalar(times) else times, "times")
    if isinstance(data, (str, os.PathLike)):
        data = _check.path("data", data)
    csv_file = isinstance(data, Path) and not os.path.isdir(data) and data.suffix.lower() != ".nc"
    if (csv_file or _is_table(data)) and (levels is not None or times is not None):
        raise ValueError("levels and times choose among the results of jaxq; got levels="
                         f"{_check.shown(levels)} and times={_check.shown(times)} with a table; leave its other rows out instead")
    if csv_file:
        return _sorted(_table(*_csv_columns(data)), None, None)
    if _is_table(data):
        return _sorted(_table({str(name): _column(data[name]) for name in data}, "data row", 1), None, None)
    given = data if isinstance(data, (list, tuple)) else [data]
    blocks: list[Block] = []
    seen: list[tuple[int, bool]] = []
    for item in given:
        found, d, replacement = _result(_dataset(item), levels, times)
        blocks += found
        seen.append((d, replacement))
    if len(set(seen)) > 1:
        raise ValueError(f"the results must share one d and one way of sampling; got (d, replacement) = "
                         f"{sorted(set(seen))}; fit them apart")
    return _sorted(blocks, *(seen[0] if seen else (None, None)))


def _sorted(blocks: list[Block], d: int | None, replacement: bool | None) -> Data:
    sizes = {block.n for block in blocks}
    if len(sizes) < 2:
        raise ValueError(f"fitting eta_n needs data at two or more sizes n; got {sorted(int(n) for n in sizes)}; add another n")
    return Data(sorted(blocks, key=lambda block: block.n), d, replacement)


# columns

def _is_table(data: Any) -> bool:
    """A dict, pandas or xarray table of columns, and not a jaxq result."""
    columns = hasattr(data, "keys") and hasattr(data, "__getitem__")
    return columns and "result" not in getattr(data, "attrs", {})


def _column(cells: Any) -> list[Any]:
    try:
        return list(np.ravel(np.asarray(cells)))
    except ValueError:  # cells of different sizes, which `_number` refuses one by one
        return list(cells)


def _csv_columns(path: Path) -> tuple[dict[str, list[Any]], str, int]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"fit needs a study folder, a .nc result or a CSV that can be read; got {_check.shown(str(path))} as data "
                         f"({_check.reason(error)}); give another path") from None
    if not rows:
        raise ValueError(f"{_check.shown(str(path))} must have the columns n, level, value, stderr; it is empty; write them first")
    names = [name.strip() for name in rows[0]]
    for k, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise ValueError(f"{path} line {k} must have {len(names)} cells, as its first line has; got {len(row)}; mend the line")
    return {name: [row[j].strip() for row in rows[1:]] for j, name in enumerate(names)}, f"{path} line", 2


def _table(columns: dict[str, list[Any]], where: str, first: int) -> list[Block]:
    """One block per n from rows that are independent of each other; row k is named `where` `first + k` in errors."""
    missing = [name for name in ("n", "level", "value", "stderr") if name not in columns]
    if missing:
        raise ValueError(f"data must have the columns n, level, value and stderr; {missing[0]!r} is missing; "
                         f"got {_check.short(', '.join(columns)) or 'none'}; add it")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of data must be equally long; got {_check.shown(lengths)}; cut or fill them")
    rows: dict[float, list[tuple[int, float, float, float]]] = {}
    timed = "t" in columns
    for k in range(lengths["n"]):
        place = f"{where} {first + k}"
        row = {name: column[k] for name, column in columns.items()}
        n = _number(place, "n", row["n"], lambda x: x >= 1 and x == int(x), "a whole number >= 1")
        level = int(_number(place, "level", row["level"], lambda x: 0 <= x <= 1000 and x == int(x), "a whole number >= 0"))
        value = _number(place, "value", row["value"], lambda x: True, "a finite number")
        error = _number(place, "stderr", row["stderr"], lambda x: x > 0, "a number above 0")
        time = _number(place, "t", row["t"], lambda x: x >= 0, "a time >= 0") if timed else math.nan
        kind = str(row.get("quantity") or ("S" if level else "Q"))
        if kind not in QUANTITIES or (kind == "T" and level == 0) or (kind == "Q" and level):
            raise ValueError(f"{place} must have the quantity S or T at a level >= 1, or Q at level 0; "
                             f"got {_check.shown(kind)} at level {level}; mend the row")
        if kind == "T":
            if "eta" not in columns:
                raise ValueError(f"{place} has the quantity T = eta (1 - S), so the eta it was made with is required; "
                                 "the column 'eta' is missing; add it, or give S")
            eta = _number(place, "eta", row["eta"], lambda x: x > 0, "a number above 0")
            value, error = 1 - value / eta, error / eta
        rows.setdefault(n, []).append((level, value, error, time))
    blocks = []
    for n, entries in rows.items():
        level_, value_, error_, time_ = (np.array(column) for column in zip(*entries, strict=True))
        blocks.append(Block(n, level_.astype(int), value_, np.diag(error_**2), time_ if timed else None, None, None))
    return blocks


def _number(place: str, name: str, cell: Any, good: Any, required: str) -> float:
    try:
        value = math.nan if np.iscomplexobj(cell) else float(cell)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not (math.isfinite(value) and good(value)):
        came = cell.item() if isinstance(cell, np.generic) else cell
        raise ValueError(f"{place} must have {required} as {name}; got {_check.shown(came)}; mend or drop the row")
    return value


# results of jaxq

def _dataset(item: Any) -> Any:
    if isinstance(item, Result):
        return item.to_xarray()
    if isinstance(item, (str, os.PathLike)):
        path = Path(item)
        if path.is_dir() and not (path / "study.nc").exists():
            raise ValueError(f"a folder to fit must hold study.nc, as `jaxq study --out-dir` writes it; {str(path)!r} does not; "
                             "give the .nc files in it, or a CSV")
        return load(path / "study.nc" if path.is_dir() else path)
    if "result" in getattr(item, "attrs", {}):
        if lacking := complaint(item):
            raise ValueError(f"data must be results as jaxq makes them; this one {lacking}")
        return item
    raise ValueError("data must be results of stationary, simulate or scaling_study, their .nc files, a study folder, a CSV or a "
                     f"table of columns; got {type(item).__name__}; give one of these")


def _result(data: Any, levels: int | None, times: np.ndarray | None) -> tuple[list[Block], int, bool]:
    kind = data.attrs["result"]
    if kind == "Study":
        return _study(data, levels, times)
    if kind not in ("Stationary", "Ensemble"):
        raise ValueError(f"data must be results of stationary, simulate or scaling_study; got {kind}; give one of these")
    model = data.attrs["model"]
    model = json.loads(model) if isinstance(model, str) else model
    if model.get("name") != "Supermarket" or model.get("buffer") is not None:
        raise ValueError(f"fitting eta_n needs the supermarket model without a buffer; got {model}; use other runs")
    if kind == "Stationary" and times is not None:
        raise ValueError(f"times choose among those saved by simulate; got {_check.shown(times.tolist())} with a result of "
                         "stationary; leave them out")
    build = _stationary if kind == "Stationary" else _ensemble
    return [build(data, float(model["n"]), levels, times)], int(model["d"]), bool(model["replacement"])


def _stationary(data: Any, n: float, levels: int | None, times: np.ndarray | None) -> Block:
    """From the raw replica averages: the result's own `tail` uses control variates that know lambda, the unknown here."""
    return _of_replicas(n, np.asarray(data["replica_tail"], np.float64).T[None], levels, None, None)


def _ensemble(data: Any, n: float, levels: int | None, times: np.ndarray | None) -> Block:
    saved = np.asarray(data["time"], np.float64)
    picked = _picked(saved, times)
    mean = np.asarray(data["tail_mean"], np.float64)
    start = mean[0] if saved[0] == 0 else None
    if "paths" in data:
        return _of_replicas(n, np.asarray(data["paths"], np.float64)[picked] / n, levels, saved[picked], start)
    error = np.asarray(data["tail_stderr"], np.float64)
    return _of_errors(n, mean[picked], error[picked], levels, saved[picked], start)


def _study(data: Any, levels: int | None, times: np.ndarray | None) -> tuple[list[Block], int, bool]:
    d, saved = int(data.attrs["d"]), np.asarray(data["time"], np.float64)
    picked = _picked(saved, times)
    blocks = []
    for k, n in enumerate(np.asarray(data["n"])):
        eta = float(data["eta"][k])
        tail = 1 - np.asarray(data["T_mean"][k], np.float64) / eta
        error = np.asarray(data["T_stderr"][k], np.float64) / eta
        blocks.append(_of_errors(float(n), tail[picked], error[picked], levels, saved[picked], _extended(tail[0], d)))
    return blocks, d, bool(data.attrs.get("replacement", True))


def _extended(tail: np.ndarray, d: int) -> np.ndarray:
    """More levels of a start S (level,): log S_{i+1} = (d + 1) log S_i - d log S_{i-1}, as at any fixed point of the ODE."""
    known = [1.0, *np.clip(tail, 0.0, 1.0)]
    while known[-1] > 1e-14 and len(known) < 100:
        fall = min(math.log(known[-1]) - math.log(known[-2]), -1e-12)
        known.append(known[-1] * math.exp(d * fall))
    return np.array(known[1:])


def _picked(saved: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Indices of the saved times asked for; the last one unless asked."""
    if times is None:
        return np.array([saved.size - 1])
    near = np.argmin(np.abs(saved[:, None] - times), axis=0)
    if np.any(np.abs(saved[near] - times) > 1e-9 * (1 + times)) or np.any(times <= 0):
        raise ValueError(f"times must be saved ones after 0; got {times.tolist()} where {_some(saved)} are saved; pick among these")
    return near


def _of_replicas(n: float, values: np.ndarray, levels: int | None, times: np.ndarray | None, start: Any) -> Block:
    """A block from values (time, level, replica) with the covariance of all its entries over replicas."""
    points, most, replicas = values.shape
    room = (replicas - _SPARE) // points
    if room < 1:
        raise ValueError(f"the covariance of {points} entries needs at least {points + _SPARE} replicas; got {replicas} at "
                         f"n = {n:g}; run more replicas, or use fewer times")
    seen = np.all(values.mean(axis=2) >= _LEAST_TAIL, axis=0) & np.all(values.var(axis=2) > 0, axis=0)
    count = min(_MOST_LEVELS, max(1, (replicas - _SPARE) // (4 * points)), max(1, int(np.argmin(np.append(seen, False)))))
    if levels is not None:
        if levels > min(room, most):
            raise ValueError(f"levels must be at most {min(room, most)} with {replicas} replicas and {points} times at "
                             f"n = {n:g}; got {levels}; use fewer levels or times, or run more replicas")
        count = levels
    entries = values[:, :count].reshape(-1, replicas)
    covariance = np.atleast_2d(np.cov(entries)) / replicas
    spread = np.sqrt(np.diag(covariance))
    if not np.all(spread > 0) or np.linalg.eigvalsh(covariance / np.outer(spread, spread))[0] < 1e-10:
        raise ValueError(f"the replicas at n = {n:g} must vary in each of the {count} levels used and not along a line; their "
                         "covariance is singular; use fewer levels or later times")
    time = None if times is None else np.repeat(times, count)
    return Block(n, np.tile(np.arange(1, count + 1), points), entries.mean(axis=1), covariance, time, replicas, start)


def _of_errors(n: float, mean: np.ndarray, error: np.ndarray, levels: int | None, times: np.ndarray, start: Any) -> Block:
    """A block from means and standard errors (time, level) alone, taken as independent."""
    used = np.isfinite(error) & (error > 0)
    used &= np.arange(mean.shape[1]) < levels if levels is not None else mean >= _LEAST_TAIL
    if not used.any():
        raise ValueError(f"the results at n = {n:g} must have a standard error above 0; got none; run two replicas or more, and "
                         "use later times")
    point, level = np.nonzero(used)
    return Block(n, level + 1, mean[used], np.diag(error[used] ** 2), times[point], None, start)


def _some(values: Iterable[float]) -> str:
    values = list(values)
    return ", ".join(f"{value:g}" for value in values[:4]) + (", ..." if len(values) > 4 else "")
