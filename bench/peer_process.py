"""A simulator in processes of its own, as a contender of `peers.py`: jobs, their time, and what its replicas say together."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provenance import CORES

WORKER = Path(__file__).parent / "peer_worker.py"


@dataclass(frozen=True)
class Job:
    """From empty to time t; `replicas` in all, shared by the processes."""

    n: int
    arrival_rate: float
    levels: int
    t: float
    replicas: int

    def events(self, replicas: int, customers: int) -> float:
        """Arrivals and services of that many replicas that end with so many customers: the expected arrivals twice, less those."""
        return 2 * self.arrival_rate * self.n * self.t * replicas - customers


@dataclass
class Tally:
    """Sums over all replicas that ran one job."""

    replicas: int = 0
    stray: int = 0
    sums: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)

    def add(self, reply: dict[str, Any]) -> None:
        self.replicas += reply["replicas"]
        self.stray += reply["stray"]
        for name in ("sums", "squares"):
            setattr(self, name, [a + b for a, b in zip(getattr(self, name) or [0] * len(reply[name]), reply[name], strict=True)])

    def tails(self) -> list[tuple[float, float]]:
        """(mean, standard deviation of one replica) of the servers at each level."""
        pairs = []
        for total, square in zip(self.sums, self.squares, strict=True):
            mean = total / self.replicas
            pairs.append((mean, math.sqrt(max(0.0, square / self.replicas - mean**2))))
        return pairs

    def deviation(self, means: list[float], errors: list[float], spreads: list[float], least: float = 25.0) -> float:
        """The largest distance from `means`, known to `errors`, in joint standard errors by the known `spreads` of one replica.
        Levels that hold fewer than `least` customers in all replicas together are left out: they have no normal error."""
        worst = 0.0
        for (mean, _), true, error, spread in zip(self.tails(), means, errors, spreads, strict=False):
            if true * self.replicas >= least:
                worst = max(worst, abs(mean - true) / math.hypot(error, spread / math.sqrt(self.replicas)))
        return worst


class Peer:
    """One contender: its processes, started at once, its first job timed apart."""

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.name, self.adapter = name, importlib.import_module(f"adapters.{name}")
        cores: list[list[str]] = [[]] if self.adapter.WORKERS == "one" else [[str(k)] for k in range(CORES)]
        self.started, self.version, self.seed = time.perf_counter(), "", 0
        self.tallies: dict[Job, Tally] = {}
        self.log = tempfile.TemporaryFile("w+")
        self.processes = [subprocess.Popen([python, str(WORKER), name, *core], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=self.log, text=True) for core in cores]

    def run(self, job: Job) -> tuple[float, float]:
        """Seconds of the job on all cores, and its real events (arrivals and services). Raises RuntimeError if a process died."""
        share = -(-job.replicas // len(self.processes))
        began = time.perf_counter()
        for process in self.processes:
            self.seed += 1
            words = {"n": job.n, "arrival_rate": job.arrival_rate, "levels": job.levels, "t": job.t, "replicas": share}
            process.stdin.write(json.dumps(words | {"seed": self.seed}) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        replies = [process.stdout.readline() for process in self.processes]  # type: ignore[union-attr]
        seconds = time.perf_counter() - began
        events = 0.0
        for line in replies:
            if not line:
                self.log.seek(0)
                raise RuntimeError((self.log.read().strip().splitlines() or ["it ended without a word"])[-1])
            reply = json.loads(line)
            self.version = reply["version"]
            self.tallies.setdefault(job, Tally()).add(reply)
            events += job.events(reply["replicas"], reply["customers"])
        return seconds, events

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
