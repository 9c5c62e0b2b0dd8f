"""The line that says where a stored result came from."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

CORES = len(os.sched_getaffinity(0))


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
