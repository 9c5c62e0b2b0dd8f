"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import glob
import os
import secrets
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import _check


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any], what: str) -> None:
    """Call `write` with a temporary path beside `path`, with its suffix, and put what it wrote in place of `path`, on the disk.

    Where that fails, `path` is as it was and nothing else is left. Raises ValueError, one sentence about `what`, where nothing
    can be written.
    """
    target = Path(os.path.realpath(_check.path("path", path)))  # a link stays one
    partial = _partial(target, secrets.token_hex(4))
    try:
        if target.exists() and not target.is_file():
            raise OSError("it is no regular file")
        write(partial)
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync(target.parent)
    except OSError as error:
        raise ValueError(f"{what} could not be written to {_check.shown(os.fspath(path))} ({_check.reason(error)}); choose "
                         "another place or make room") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def sweep(path: Path) -> None:
    """Remove what programs killed while they wrote `path` have left beside it."""
    for left in glob.glob(glob.escape(str(_partial(path.resolve(), "\0"))).replace("\0", 8 * "[0-9a-f]")):
        with contextlib.suppress(OSError):
            os.unlink(left)


def _partial(target: Path, token: str) -> Path:
    stem = target.stem if len(target.stem) <= 40 else f"{target.stem[:32]}{zlib.crc32(os.fsencode(target.stem)):08x}"
    return target.parent / f".{stem}.{token}.partial{target.suffix}"


def _sync(folder: Path) -> None:
    """Have the new name on the disk too, where folders can be synchronised."""
    with contextlib.suppress(OSError):
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


def write_csv(path: str | os.PathLike[str], header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, whole or not at all. Raises ValueError if it cannot be written."""

    def write(partial: Path) -> None:
        with open(partial, "w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    write_whole(path, write, "the table")
