"""Ticks per second of `simulate` on one pinned core, on both cores by two devices, and by two processes of one device each.

    python bench/devices.py [--rounds 5] [--seconds 4] [--out bench/results/devices.md]

Every contender is a process (or two) started once, that has compiled and waits; they take turns, round after round, so that a
machine whose speed drifts treats them alike. A run is timed from the call of `simulate` to its result. The digests of all saved
paths are compared: the integers must be the same.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from provenance import CORES, provenance, report

N, D, LAMBDA, REPLICAS = 1000, 2, 0.9, 4096


def worker(devices: int, seconds: float, coordinator: str, processes: int, process: int) -> None:
    """Run once for every line of stdin and print the ticks, the seconds and a digest."""
    import hashlib

    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    import numpy as np

    import jaxq
    from jaxq import hosts

    if processes > 1:
        hosts.start(coordinator, processes, process)
        hosts.own_stdout()
    model = jaxq.Supermarket(N, D, LAMBDA, levels=12)
    times = np.linspace(0, seconds * 4e8 / REPLICAS / model.clock(), 11)
    start = np.floor(N * model.guess() + 0.5).astype(int)

    def run(save: str = "moments") -> list:
        began = time.perf_counter()
        result = jaxq.simulate(model, times, 1, replicas=REPLICAS, initial=start, save=save, progress=False)
        took = time.perf_counter() - began
        paths = b"" if result.paths is None else result.paths.tobytes()
        return [result.events, took, hashlib.sha256(result.tail_mean.tobytes() + paths).hexdigest()]

    print(json.dumps(run("paths")), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)
    hosts.leave()


class Contender:
    """Processes that wait for their turn."""

    def __init__(self, name: str, devices: int, seconds: float, cores: list[str]) -> None:
        self.name = name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = [sys.executable, __file__, "--seconds", str(seconds), "--worker", str(devices), f"127.0.0.1:{port}"]
        self.runs = [subprocess.Popen(["taskset", "-c", core, *words, str(len(cores)), str(k)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True) for k, core in enumerate(cores)]
        self.digest = self.heard()[2]
        self.rates: list[float] = []

    def heard(self) -> list:
        """What the first process says; the others of a run are silent."""
        return json.loads(self.runs[0].stdout.readline())

    def turn(self) -> None:
        for run in self.runs:
            run.stdin.write("\n")
            run.stdin.flush()
        events, seconds, _ = self.heard()
        self.rates.append(events / seconds)

    def end(self) -> None:
        for run in self.runs:
            run.stdin.close()
        for run in self.runs:
            run.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of work for both cores, about")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        devices, coordinator, processes, process = options.worker
        worker(int(devices), options.seconds, coordinator, int(processes), int(process))
        return
    everything = f"0-{CORES - 1}"
    contenders = [Contender("one device on one pinned core", 1, options.seconds, ["0"]),
                  Contender(f"one process, {CORES} devices", CORES, options.seconds, [everything]),
                  Contender(f"{CORES} processes of one device", 1, options.seconds, [everything] * CORES)]
    for _ in range(options.rounds):
        for contender in contenders:
            contender.turn()
    for contender in contenders:
        contender.end()
    if len({contender.digest for contender in contenders}) > 1:
        raise SystemExit("the contenders differ in their integers")
    lines = [
        "# Devices and processes", "",
        provenance(f"python bench/devices.py --rounds {options.rounds} --seconds {options.seconds:g}"), "",
        f"`simulate`, supermarket model, n = {N}, d = {D}, lambda = {LAMBDA}, {REPLICAS} replicas, 11 save times, from the call to "
        "the result, compiled before; median of the rounds (least-most). All saved paths were the same.", "",
        "| | million ticks/s | over one pinned core, round by round |", "|---|---|---|"]
    base = contenders[0].rates
    for contender in contenders:
        rates = contender.rates
        ratios = [a / b for a, b in zip(rates, base, strict=True)]
        lines.append(f"| {contender.name} | {statistics.median(rates) / 1e6:.0f} ({min(rates) / 1e6:.0f}-{max(rates) / 1e6:.0f}) | "
                     f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |")
    report(lines, options.out)


if __name__ == "__main__":
    main()
