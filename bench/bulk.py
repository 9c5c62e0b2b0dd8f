"""Ticks per second of the supermarket model tick by tick and in bulk, in one run, as one Markdown table.

    python bench/bulk.py [--rounds 5] [--replicas 2048] [--quick] [--out bench/results/bulk.md]

d = 2 with replacement, lambda = 0.9, near the fixed point, one device a core. The two take turns, round after round; each
figure is the median over rounds. Compile time is apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from provenance import CORES, flags, provenance, report

SIZES = (10**5, 10**6, 10**7, 10**8, 10**9)
LAMBDA = 0.9


def rate(n: int, bulk: bool, replicas: int, ticks: int) -> tuple[Callable[[], float], float]:
    """A function that times one call of the engine, warm, and its compile time."""
    import numpy as np

    import jaxq
    from jaxq import bits
    from jaxq.bulk import Bulk
    from jaxq.engine import Engine

    model = jaxq.Supermarket(n, 2, LAMBDA, levels=12)
    start = np.floor(n * model.guess() + 0.5).astype(int)
    run = Engine(Bulk(model) if bulk else model, start, bits.key_words(1), replicas)
    ticks = max(ticks // replicas, 60 * int(n**0.5) if bulk else 0)  # at least some ninety batches
    takes = np.full((1, replicas), ticks // run.chunk * run.chunk)

    def measure() -> float:
        began = time.perf_counter()
        run.advance(takes)
        return takes.sum() / (time.perf_counter() - began)

    measure()
    return measure, run.compile_seconds


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--replicas", type=int, default=2048)
    options = parser.parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    ticks = int(2e7 if options.quick else 2e8)
    contenders = {(name, n): rate(n, name == "bulk", options.replicas, ticks) for n in SIZES for name in ("tick by tick", "bulk")}
    rates: dict[tuple[str, int], list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, (measure, _) in contenders.items():
            rates[name].append(measure())
    compiled = max(seconds for (name, _), (_, seconds) in contenders.items() if name == "bulk")

    command = f"python bench/bulk.py --rounds {options.rounds} --replicas {options.replicas}"
    lines = ["# Exact in bulk", "", provenance(command), "",
             f"Supermarket model, d = 2 with replacement, lambda = {LAMBDA}, near its fixed point, {options.replicas} replicas, "
             "12 levels; millions of ticks per second on all cores, median of the rounds (least-most).", "",
             "| | " + " | ".join(f"n = {n:.0e}".replace("e+0", "e") for n in SIZES) + " |", "|---|" + "---|" * len(SIZES)]
    for name in ("tick by tick", "bulk"):
        columns = [[value / 1e6 for value in rates[name, n]] for n in SIZES]
        cells = [f"{statistics.median(c):.0f} ({min(c):.0f}-{max(c):.0f})" for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    pairs = [[a / b for a, b in zip(rates["bulk", n], rates["tick by tick", n], strict=True)] for n in SIZES]
    cells = [f"{statistics.median(c):.2f} ({min(c):.2f}-{max(c):.2f})" for c in pairs]
    lines.append("| bulk / tick by tick | " + " | ".join(cells) + " |")
    lines += ["", f"Compilation of a batch takes up to {compiled:.1f} s, once per n."]
    report(lines, options.out)


if __name__ == "__main__":
    main()
