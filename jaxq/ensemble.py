"""Results: small frozen objects with labelled data, JSON and netCDF."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from . import _check, files
from .plain import fits, jsonable, plain


@dataclass(frozen=True)
class Result:
    """What a public function returns: arrays named and shaped as in `dims`, and `attributes` that say where they came from.

    Subclasses list in `dims` the dimensions of each array field; every other field is a scalar. The names are those of the
    JSON object, the xarray variables and the netCDF file; `json_extras` are in the object where they are not None; `texts` are
    arrays of text. A dimension whose name is a key of `coordinates` is labelled.

    Example::

        >>> result = jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50)
        >>> result.dims["tail_mean"], result.attributes["jaxq_version"] == jaxq.__version__
        (('time', 'level'), True)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {}
    json_keys: ClassVar[tuple[str, ...]] = ()
    json_extras: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[tuple[str, ...]] = ()

    attributes: dict[str, Any]

    def __post_init__(self) -> None:
        """Add the provenance to the attributes, of whatever class: none can forget it."""
        object.__setattr__(self, "attributes", provenance() | self.attributes)

    def coordinates(self) -> dict[str, Any]:
        """Labels of the dimensions: times as given, levels from 1."""
        sizes = {name: size for field, names in self.dims.items() if getattr(self, field) is not None
                 for name, size in zip(names, np.shape(getattr(self, field)), strict=True)}
        labels: dict[str, Any] = {}
        if "time" in sizes:
            labels["time"] = np.asarray(vars(self)["times"])
        if "level" in sizes:
            labels["level"] = np.arange(1, sizes["level"] + 1)
        return labels

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` with the dimensions of `dims` (time, level, n, ...) and everything else as attributes.

        Example::

            >>> result = jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50)
            >>> round(float(result.to_xarray().tail_mean.sel(time=5.0, level=1)), 3)
            0.786
        """
        import xarray

        coordinates = self.coordinates()
        variables = {name: (names, np.asarray(getattr(self, name))) for name, names in self.dims.items()
                     if getattr(self, name) is not None and name != "times" and name not in coordinates}
        scalars = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                   if field.name not in self.dims and field.name not in ("attributes", "counter_paths")}
        for name, path in (getattr(self, "counter_paths", None) or {}).items():
            variables[f"{name}_paths"] = (("time", "replica"), path)
        attributes = {name: plain(value) for name, value in (scalars | self.attributes).items() if value is not None}
        attributes["result"] = type(self).__name__
        return xarray.Dataset(variables, coords=coordinates, attrs=attributes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a netCDF file (parameters, seed, versions, device and wall time as attributes), whole or not at all.

        Raises ValueError if it cannot be written; an older file there is then as it was.

        Example::

            >>> jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50).save("run.nc")
            >>> int(jaxq.load("run.nc").replicas)
            50
        """
        def write(partial: Path) -> None:
            with open(partial, "wb") as file:  # write_bytes would keep a second view in its frame after an error
                file.write(data)

        with self.to_xarray().to_netcdf(engine="h5netcdf") as data:  # in memory: on a full disk HDF5 may crash the process
            files.write_whole(path, write, "the result")

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the command line: `json_keys`, arrays as lists, nan as null.

        Example::

            >>> jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50).to_json()["times"]
            [0.0, 5.0]
        """
        extras = [name for name in self.json_extras if getattr(self, name) is not None]
        return {name: jsonable(getattr(self, name)) for name in (*self.json_keys, *extras)}


def load(path: str | os.PathLike[str]) -> Any:
    """The `xarray.Dataset` of a result saved with `.save(path)`; what a newer version has added to it is kept.

    Raises ValueError if the file is missing, damaged, not one of jaxq, or lacks what a result of its class has.

    Example::

        >>> jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50).save("run.nc")
        >>> dict(jaxq.load("run.nc").tail_mean.sizes)
        {'time': 2, 'level': 8}
    """
    import xarray

    path, wanted = _check.path("path", path), "load needs a netCDF file written by jaxq"
    if not os.path.isfile(path):
        raise ValueError(f"{wanted}; {_check.shown(str(path))} is {'a folder' if os.path.isdir(path) else 'no file'}")
    try:
        data = xarray.load_dataset(path, engine="h5netcdf")
    except Exception as error:  # HDF5 and what reads it fail in many ways on a damaged file
        raise ValueError(f"{wanted}; {_check.shown(str(path))} cannot be read ({_check.reason(error)})") from error
    if lacking := complaint(data):
        raise ValueError(f"{wanted}; {_check.shown(str(path))} {lacking}")
    return data


def complaint(data: Any) -> str:
    """What is wrong with an `xarray.Dataset` as that of a result, or nothing."""
    name = data.attrs.get("result")
    if name is None:
        return "lacks the attribute 'result'"
    from . import commands_bench  # noqa: F401  its class; the others come with jaxq

    kind = {kind.__name__: kind for kind in Result.__subclasses__()}.get(name)
    if kind is None:
        return f"holds a result of the unknown class {_check.shown(name)}; a newer jaxq may know it"
    for field in dataclasses.fields(kind):
        optional = "None" in str(field.type)
        if field.name in kind.dims:
            name, wanted = "time" if field.name == "times" else field.name, kind.dims[field.name]
            array = data.variables.get(name)
            if array is None and not optional:
                return f"lacks the variable {name!r}"
            if array is not None and array.dims != wanted:
                return f"must hold {name!r} with the dimensions {wanted}; got {array.dims}"
            if array is not None and array.dtype.kind not in "biuf" and field.name not in kind.texts:
                return f"must hold numbers as {name!r}; got {array.dtype}"
        elif field.name not in ("attributes", "counter_paths"):
            value = data.attrs.get(field.name)
            if value is None and not optional:
                return f"lacks the attribute {field.name!r}"
            if value is not None and not fits(str(field.type), value):
                return f"must hold {field.type} as {field.name!r}; got {_check.shown(value)}"
    return ""


@dataclass(frozen=True)
class Ensemble(Result):
    """Moments over replicas of a simulated model on a time grid, from `jaxq.simulate`.

    times: (time,), in units of the model's rates.
    tail_mean, tail_variance, tail_stderr: (time, level), fraction of servers with at least i customers, level 1 first; the
      variance is over replicas (divisor R - 1) and stderr = sqrt(variance / R). Exact integer sums, divided once.
    mean_queue_length, ..._variance, ..._stderr: (time,), customers per server, the one in service included.
    T_mean, T_stderr: (time, level), T = eta (1 - S), where the model knows eta; else None.
    paths: (time, level, replica) int32 tail counts, with save="paths"; else None.
    events: ticks of all replicas together, null ones included. arrivals, departures: customers of all replicas.
    counters: the model's counters up to the last time, all replicas together (arrivals, lost, ...); counter_paths: with
      save="paths" each of them as (time, replica) int64, counted from time 0; else None.
    algorithm: "exact", "bulk" or "leap". step: of a leap, in time. tail_step_error, mean_queue_length_step_error: what the step
      adds to the means, estimated from a path with steps of twice the length on the same randomness, and its ..._stderr; a
      bias that the standard errors above do not hold. At order 2 it holds a third of the part of order step / n, which
      shows below some hundred servers. None where the algorithm is exact. Changes between two saves inside one tick of a leap
      (2 step) are not those of the chain: save paths at multiples of 2 step.
    seconds: wall time without compile_seconds. With one replica the errors are nan.

    Example, the arrivals at 100 servers in 50 replicas up to time 5, whose rate is 0.9::

        >>> result = jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50)
        >>> round(result.arrivals / (100 * 50 * 5.0), 1), result.tail_mean.shape
        (0.9, (2, 8))
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "times": ("time",), "tail_mean": ("time", "level"), "tail_variance": ("time", "level"),
        "tail_stderr": ("time", "level"), "mean_queue_length": ("time",), "mean_queue_length_variance": ("time",),
        "tail_step_error": ("time", "level"), "tail_step_error_stderr": ("time", "level"),
        "mean_queue_length_step_error": ("time",), "mean_queue_length_step_error_stderr": ("time",),
        "mean_queue_length_stderr": ("time",), "T_mean": ("time", "level"), "T_stderr": ("time", "level"),
        "paths": ("time", "level", "replica")}
    json_keys: ClassVar[tuple[str, ...]] = (
        "times", "tail_mean", "tail_stderr", "mean_queue_length", "mean_queue_length_stderr", "events", "arrivals",
        "departures", "seconds", "compile_seconds", "events_per_second", "replicas", "seed", "model", "algorithm")
    json_extras: ClassVar[tuple[str, ...]] = ("step", "tail_step_error", "tail_step_error_stderr", "mean_queue_length_step_error",
                                              "mean_queue_length_step_error_stderr")

    times: np.ndarray
    tail_mean: np.ndarray
    tail_variance: np.ndarray
    tail_stderr: np.ndarray
    mean_queue_length: np.ndarray
    mean_queue_length_variance: np.ndarray
    mean_queue_length_stderr: np.ndarray
    T_mean: np.ndarray | None
    T_stderr: np.ndarray | None
    paths: np.ndarray | None
    counter_paths: dict[str, np.ndarray] | None
    events: int
    arrivals: int
    departures: int
    counters: dict[str, int]
    replicas: int
    seed: int
    seconds: float
    compile_seconds: float
    events_per_second: float
    model: dict[str, Any]
    algorithm: str
    step: float | None
    tail_step_error: np.ndarray | None
    tail_step_error_stderr: np.ndarray | None
    mean_queue_length_step_error: np.ndarray | None
    mean_queue_length_step_error_stderr: np.ndarray | None


def describe(model: Any) -> dict[str, Any]:
    """Name and parameters of a model, as stored in results."""
    hidden = ("size", "lane", "levels")  # choices of speed
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model) if field.name not in hidden}
    return {"name": type(model).__name__} | {name: value if isinstance(value, (int, float, bool, str, type(None)))
                                             else str(value) for name, value in fields.items()}


def describe_start(initial: Any) -> Any:
    """An `initial` as stored in results: "default", what it is where it is short, else its digest."""
    if initial is None:
        return "default"
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(initial)]
    if sum(leaf.size for leaf in leaves) <= 64:
        return jsonable(initial)
    return f"blake2b {hashlib.blake2b(b''.join(leaf.tobytes() for leaf in leaves), digest_size=16).hexdigest()}"


def provenance() -> dict[str, Any]:
    """Versions, device and date, stored with every result; `generator` is the counter-based one that makes words of a key."""
    return _software() | {
        "device": jax.devices()[0].device_kind, "devices": jax.device_count(), "hosts": jax.process_count(),
        "x64": bool(jax.config.read("jax_enable_x64")), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


@functools.cache
def _software() -> dict[str, Any]:
    """What stays the same while a process runs."""
    import jaxlib

    from . import __version__

    versions = {"jaxq_version": __version__, "jax_version": jax.__version__, "jaxlib_version": jaxlib.__version__,
                "numpy_version": np.__version__, "python_version": platform.python_version(), "machine": platform.machine(),
                "generator": "threefry2x32-20"}
    commit = _commit(Path(__file__).parent)
    return versions | ({"jaxq_commit": commit} if commit else {})


def _commit(package: Path) -> str | None:
    """The git commit of the checkout that this package runs from; None elsewhere, or where git does not say."""
    checkout = package.parent / ".git"
    if not checkout.exists():
        return None
    try:
        ask = subprocess.run(["git", f"--git-dir={checkout}", "rev-parse", "HEAD", f"HEAD:{package.name}/__init__.py"],
                             capture_output=True, text=True, timeout=2)
    except (OSError, subprocess.SubprocessError):
        return None
    return ask.stdout.split()[0] if ask.returncode == 0 else None
