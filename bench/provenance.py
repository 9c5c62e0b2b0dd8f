"""What the benches share: their flags, and the line that says where a stored result came from."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


def flags(doc: str | None, *, rounds: int | None = 5, quick: str = "short runs, to see that it works") -> argparse.ArgumentParser:
    """A parser with --quick, --out and, unless None, --rounds; `doc` is the text of its help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", type=Path)
    return parser


def provenance(command: str, *more: str) -> str:
    """The command, date, machine and versions, as one sentence; `more` names other programs used."""
    import jax

    import jaxq

    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    return ", ".join((f"`{command}`", str(datetime.date.today()), f"{CORES} cores of {cpu}", platform.system(),
                      f"Python {platform.python_version()}", f"JAX {jax.__version__}", f"jaxq {jaxq.__version__}", *more)) + "."


def report(lines: list[str], out: Path | None) -> None:
    """Print the lines, and write them to `out`."""
    text = "\n".join(lines) + "\n"
    print(text)
    if out:
        out.write_text(text)
