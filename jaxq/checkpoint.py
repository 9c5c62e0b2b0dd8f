"""Checkpoints: one file from which a run goes on, bit for bit, after anything that ended it.

A checkpoint has parts, one for each ensemble of the run (a study has many), and each part an identity that a run must share to
go on from it, a note (JSON) and arrays. What is in them is the business of `Cohort` and `Watch`. The file is an `.npz` without
pickles, written whole or not at all, so that the last good one is there whatever happens.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import _check, hosts
from .algorithms import algorithm_of, exact_model
from .chain import Model
from .ensemble import describe
from .files import sweep, write_whole
from .leap import Leap

EVERY = 60.0   # seconds between two checkpoints, by default
_HEADER, _FORMAT = "checkpoint", 1


@dataclass(frozen=True)
class _Part:
    identity: dict[str, Any]
    note: dict[str, Any]
    arrays: dict[str, np.ndarray]


class _File:
    """The file and what is in it; without a path nothing is ever written."""

    def __init__(self, path: Any, every: float, resume: bool) -> None:
        self.path = None if path is None else _check.path("checkpoint", path)
        self.every, resume = _check.real("every", every, 0.0), _check.flag("resume", resume)
        self.parts: dict[str, _Part] = {}
        self.written = time.monotonic()
        if self.path is None:
            if resume:
                raise ValueError("resume needs the checkpoint to go on from; got none; give checkpoint, the path of its file")
            return
        hosts.first_does(lambda: _check.output("checkpoint", path))
        exists = hosts.everyone(hosts.first() and self.path.exists())[0]
        if exists and not resume:
            raise ValueError(f"checkpoint must be a new file, or one to go on from; {str(path)!r} exists; add resume, or delete it")
        if exists:
            self.parts = self._read()
        if hosts.first():
            sweep(self.path)

    def _read(self) -> dict[str, _Part]:
        def refuse(why: str) -> ValueError:
            return ValueError(f"a checkpoint must be a whole file that jaxq wrote; {str(self.path)!r} {why}; use another, or "
                              "delete it and start again")

        data, problem = b"", ""
        try:
            if hosts.first():
                assert self.path is not None
                data = self.path.read_bytes()
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        if problem := hosts.everyone(problem)[0]:
            raise refuse(problem)
        try:
            with np.load(io.BytesIO(hosts.from_first(data)), allow_pickle=False) as file:
                header = json.loads(bytes(file[_HEADER]))
                arrays = {name: file[name] for name in file.files if name != _HEADER}
                parts = {name: _Part(part["identity"], part["note"], _within(arrays, f"{name}/"))
                         for name, part in header["parts"].items()}
                versions = header["versions"]
        except Exception as error:  # zip, npy and JSON readers raise nearly anything on a damaged file
            raise refuse(f"is not ({error})") from error
        _compare(versions, _versions())
        return parts

    def write(self) -> None:
        if hosts.first():
            self._write()
        self.written = time.monotonic()  # after it, so that a slow disk does not write all the time

    def _write(self) -> None:
        header = {"versions": _versions(),
                  "parts": {name: {"identity": part.identity, "note": part.note} for name, part in self.parts.items()}}
        arrays = {f"{name}/{key}": array for name, part in self.parts.items() for key, array in part.arrays.items()}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        try:
            assert self.path is not None
            write_whole(self.path, lambda path: _savez(path, {_HEADER: text} | arrays), "the checkpoint")
        except ValueError as error:
            warnings.warn(f"{error}; the run goes on and tries again; an earlier checkpoint is kept", stacklevel=2)


class Checkpoint:
    """Where a run keeps what it would need to go on.

    Args:
      path: the file, or None to keep nothing.
      every: seconds between two writes.
      resume: go on from the file where it exists; without it the file must not exist.

    Raises ValueError for a file that is no whole checkpoint of this version.
    """

    def __init__(self, path: Any = None, every: float = EVERY, resume: bool = False) -> None:
        self._file, self._name = _File(path, every, resume), ""
        self._identity: dict[str, Any] = {}

    @classmethod
    def of(cls, checkpoint: Any, every: float, resume: bool, function: str) -> Checkpoint:
        """The part of a public function from its argument `checkpoint`: a path, None, or a `Checkpoint` already. Raises ValueError
        for a file of another function."""
        if not isinstance(checkpoint, cls):
            checkpoint = cls(checkpoint, every, resume)
            for name in checkpoint._file.parts:
                _compare({"function": name.partition(".")[0]}, {"function": function})
        return checkpoint.part(function)

    def part(self, name: str, identity: dict[str, Any] | None = None) -> Checkpoint:
        """The part of this name under this one; with an identity, refused by ValueError where another is on file."""
        part = object.__new__(Checkpoint)
        part._file, part._name, part._identity = self._file, f"{self._name}{name}.", identity or {}
        if identity is not None and part.saved is not None:
            _compare(part.saved.identity, json.loads(json.dumps(identity)))
        return part

    @property
    def saved(self) -> _Part | None:
        """What the file has of this part: identity, note and arrays."""
        return self._file.parts.get(self._name)

    @property
    def kept(self) -> bool:
        """Whether anything is written at all."""
        return self._file.path is not None

    def due(self) -> bool:
        """Whether `every` seconds have passed."""
        return self.kept and time.monotonic() - self._file.written >= self._file.every

    def write(self, note: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write the file with this part as given; warns (UserWarning) where it could not be written."""
        if self.kept:
            self._file.parts[self._name] = _Part(self._identity, note, arrays)
            self._file.write()


def identity(model: Model, words: np.ndarray, starts: Any, **more: Any) -> dict[str, Any]:
    """What makes two runs the same but for replicas, devices and times: the model, by its parameters, tables and starts."""
    digest = hashlib.blake2b(digest_size=16)
    keys = (words[:1], words[1:])
    for start in starts:
        grown, state = model.init(start, keys)
        for leaf in jax.tree.leaves((grown.tables(grown.clock()), state)):
            digest.update(np.asarray(leaf).tobytes())
    if isinstance(model, Leap):
        more |= {"step": float(model.step), "order": int(model.order)}
    return {"model": describe(exact_model(model)), "algorithm": algorithm_of(model), "seed": int(words[0]) << 32 | int(words[1]),
            **more, "number of starts": len(starts), "digest of tables and start": digest.hexdigest()}


def prefixed(prefix: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays under longer names."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under(prefix: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those that `prefixed` named so, under their own names."""
    return _within(arrays, f"{prefix}.")


def _savez(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with open(path, "wb") as file:  # np.savez adds .npz to a name
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _within(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _versions() -> dict[str, Any]:
    from . import __version__

    return {"format": _FORMAT, "jaxq version": __version__}


def _compare(saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise ValueError that names the first difference."""
    for name in wanted | saved:
        mine, other = wanted.get(name), saved.get(name)
        if isinstance(mine, dict) and isinstance(other, dict):
            _compare(other, mine)
        elif mine != other:
            raise ValueError(f"a run goes on from its own checkpoint only: this one has {name} {mine!r}, the file {other!r}; use "
                             "the arguments it was written with, or another file")
