"""Events per second of PULL and of the supermarket model on graphs, beside tuned C, in one run, as one Markdown table.

    python bench/systems.py [--rounds 5] [--quick] [--out bench/results/systems.md]

Each system is timed in `simulate`'s engine, warm, all cores, one device a core; in the same run C times the same system, one
process a core (bench/pull.c and bench/graph.c, cc -O3 -march=native), server by server. The contenders take turns, round after
round, so that a machine whose speed drifts treats them alike; each figure is the median over rounds. Compile time is apart.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provenance import CORES, flags, provenance, report
from throughput import compiler

REPLICAS = 4096


def build(folder: str, name: str) -> str:
    source = Path(__file__).parent / f"{name}.c"
    subprocess.run(["cc", "-O3", "-march=native", "-o", f"{folder}/{name}", str(source)], check=True)
    return f"{folder}/{name}"


def c_rate(column: int, program: str, *words: object) -> float:
    """Ticks per second of one process a core, together, from that column of what each prints; each times its own loop."""
    runs = [subprocess.Popen([program, *map(str, words), str(seed)], stdout=subprocess.PIPE, text=True) for seed in range(CORES)]
    return sum(float(run.communicate()[0].split()[column]) for run in runs)


def engine_rate(model: Any, initial: Any, replicas: int, ticks: float) -> Callable[[], float]:
    """A function that times about so many ticks of all replicas together, after as many before."""
    import numpy as np

    from jaxq import bits
    from jaxq.engine import Engine

    run = Engine(model, initial, bits.key_words(1), replicas)
    each = min(int(ticks / replicas), run.longest) // run.chunk * run.chunk
    calls = max(1, round(ticks / replicas / each))
    takes = np.full((1, replicas), each)

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            run.advance(takes)
        return calls * replicas * each / (time.perf_counter() - start)

    measure()
    return measure


def systems(folder: str, seconds: float) -> dict[str, tuple[Callable[[], float], Callable[[], float]]]:
    """jaxq and C of each system."""
    import jaxq
    from jaxq import graphs

    pull, graph = build(folder, "pull"), build(folder, "graph")
    pools = [jaxq.Pool(0.5, 1.5, 1), jaxq.Pool(0.5, 0.5, 3)]
    found: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {}
    for n in (1000, 100_000):
        model = jaxq.Pull(n, pools, 5, 0.8)
        found[f"PULL, 2 pools, 5 routers, n = {n:.0e}".replace("e+0", "e")] = (
            engine_rate(model, None, REPLICAS, seconds * 6e7),
            lambda n=n: c_rate(4, pull, n, 5, 0.8, 1.5, 1, 0.5, 3, int(seconds * 4e7)))
    for n, replicas, speed in ((1000, REPLICAS, 1e8), (1_000_000, 4 * CORES, 2e7)):
        vertices = jaxq.GraphSupermarket(graphs.random_regular(n, 10, 1), 2, 0.9)
        found[f"graph of degree 10, n = {n:.0e}".replace("e+0", "e")] = (
            engine_rate(vertices, [0.9, 0.72, 0.47, 0.2, 0.03], replicas, seconds * speed),
            lambda n=n: c_rate(5, graph, "random", n, 10, 0.9, int(seconds * (4e7 if n < 10**5 else 2e7))))
    return found


def main() -> None:
    options = flags(__doc__).parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    with tempfile.TemporaryDirectory() as folder:
        contenders = systems(folder, 0.1 if options.quick else 1.5)
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, (ours, theirs) in contenders.items():
                rates[name].append((ours(), theirs()))

    def millions(values: list[float]) -> str:
        return f"{statistics.median(values) / 1e6:.1f} ({min(values) / 1e6:.1f}-{max(values) / 1e6:.1f})"

    lines = ["# Systems", "", provenance(f"python bench/systems.py --rounds {options.rounds}", compiler()), "",
             "PULL: pools of half the servers each, service rates 1.5 and 0.5, buffers 1 and 3, lambda = 0.8, messages withdrawn. "
             f"Graphs: random regular, d = 2, lambda = 0.9 (C: unions of random cycles). {REPLICAS} replicas, on the large graph "
             f"{4 * CORES}. Millions of ticks per second on all cores, median of the rounds (least-most); ratios by round.", "",
             "| system | jaxq | C | jaxq / C |", "|---|---|---|---|"]
    for name, pairs in rates.items():
        ratios = [one / other for one, other in pairs]
        lines.append(f"| {name} | {millions([one for one, _ in pairs])} | {millions([other for _, other in pairs])} | "
                     f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |")
    report(lines, options.out)


if __name__ == "__main__":
    main()
