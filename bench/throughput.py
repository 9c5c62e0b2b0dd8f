"""Ticks per second of `simulate`, of the bare engine and of tuned C, in one run on this machine, as one Markdown table.

    python bench/throughput.py [--rounds 5] [--quick] [--out bench/results/throughput.md]

One system: d = 2 with replacement, lambda = 0.9, near its fixed point. Both sides use all cores: jaxq one device a core, C one
process a core (built from bench/limit.c with cc -O3 -march=native). The contenders take turns, round after round, so that a
machine whose speed drifts treats them alike; each figure is the median over rounds. Compile time is apart.

C forms: `plain`, a per-server array with scalar xoshiro256++, as a careful C programmer writes it; `servers`, the same with the
random numbers drawn in vector registers by intrinsics; `occupancy`, counts in vector registers.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from provenance import CORES, flags, provenance, report

SIZES = (1000, 100_000, 10_000_000)
REPLICAS = 4096
LAMBDA = 0.9


def compiler() -> str:
    """The C compiler and its version."""
    return subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]


def build(folder: str) -> str:
    program = f"{folder}/limit"
    source = Path(__file__).parent / "limit.c"
    subprocess.run(["cc", "-O3", "-march=native", "-o", program, str(source), "-lm"], check=True)
    return program


def c_rate(program: str, form: str, n: int, ticks: int) -> float:
    """Ticks per second of one process a core, together; each times its own loop."""
    runs = [subprocess.Popen([program, form, str(n), str(LAMBDA), str(ticks), str(seed)], stdout=subprocess.PIPE, text=True)
            for seed in range(CORES)]
    return sum(float(run.communicate()[0].split()[4]) for run in runs)


def engine_rate(n: int, levels: int, seconds: float) -> tuple[Callable[[], float], float]:
    """A function that times the bare engine, warm and near its fixed point; and its compile time."""
    import numpy as np

    import jaxq
    from jaxq import bits
    from jaxq.engine import Engine

    model = jaxq.Supermarket(n, 2, LAMBDA, levels=levels)
    run = Engine(model, np.floor(n * model.guess() + 0.5).astype(int), bits.key_words(1), REPLICAS)
    ticks = int(seconds * 4e8 / REPLICAS)
    calls = -(-ticks // run.longest)
    takes = np.full((1, REPLICAS), ticks // calls // run.chunk * run.chunk)

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            run.advance(takes)
        return calls * takes.size * takes[0, 0] / (time.perf_counter() - start)

    measure()
    return measure, run.compile_seconds


def simulate_rate(n: int, seconds: float) -> Callable[[], float]:
    """A function that times all of `simulate` from the call to the result, compilation done before: 11 save times."""
    import numpy as np

    import jaxq

    model = jaxq.Supermarket(n, 2, LAMBDA, levels=12)
    t_end = seconds * 4e8 / REPLICAS / model.clock()
    start = np.floor(n * model.guess() + 0.5).astype(int)

    def measure() -> float:
        began = time.perf_counter()
        result = jaxq.simulate(model, np.linspace(0, t_end, 11), 1, replicas=REPLICAS, initial=start)
        return result.events / (time.perf_counter() - began)

    measure()
    return measure


def main() -> None:
    options = flags(__doc__).parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    seconds = 0.1 if options.quick else 1.5
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        contenders: dict[tuple[str, int], Callable[[], float]] = {}
        for n in SIZES:
            contenders["simulate", n] = simulate_rate(n, seconds)
            contenders["engine", n], _ = engine_rate(n, 12, seconds)
            for form, speed in (("plain", 2e8), ("servers", 5e8), ("occupancy", 5e8)):
                ticks = int(seconds * min(speed, speed if n < 10**6 else 1e8))
                contenders[f"C {form}", n] = lambda form=form, n=n, ticks=ticks: c_rate(program, form, n, ticks)
        contenders["engine", 10**9], _ = engine_rate(10**9, 12, seconds)
        rates: dict[tuple[str, int], list[float]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, measure in contenders.items():
                rates[name].append(measure())
    median = {name: statistics.median(values) for name, values in rates.items()}

    def ratio(one: tuple[str, int], other: tuple[str, int]) -> str:
        pairs = [a / b for a, b in zip(rates[one], rates[other], strict=True)]
        return f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})"

    lines = [
        "# Throughput", "", provenance(f"python bench/throughput.py --rounds {options.rounds}", compiler()), "",
        f"Supermarket model, d = 2 with replacement, lambda = {LAMBDA}, {REPLICAS} replicas, 12 levels; millions of ticks per "
        "second on all cores, median of the rounds (least-most).", "",
        "| | " + " | ".join(f"n = {n:.0e}".replace("e+0", "e") for n in (*SIZES, 10**9)) + " |",
        "|---|" + "---|" * 4]
    for name in ("simulate", "engine", "C plain", "C servers", "C occupancy"):
        cells = [f"{median[name, n] / 1e6:.0f} ({min(rates[name, n]) / 1e6:.0f}-{max(rates[name, n]) / 1e6:.0f})"
                 if (name, n) in median else "" for n in (*SIZES, 10**9)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Ratios, round by round:", "", "| | " + " | ".join(f"n = {n:.0e}".replace("e+0", "e") for n in SIZES) + " |",
              "|---|" + "---|" * 3]
    for one, other in (("engine", "C plain"), ("engine", "C servers"), ("engine", "C occupancy"), ("simulate", "engine")):
        lines.append(f"| {one} / {other} | " + " | ".join(ratio((one, n), (other, n)) for n in SIZES) + " |")
    lines += ["", f"Cost of a tick at n = 1e7 over n = 1e3: {ratio(('engine', 1000), ('engine', 10**7))}; "
              f"at n = 1e9 over n = 1e7: {ratio(('engine', 10**7), ('engine', 10**9))}."]
    report(lines, options.out)


if __name__ == "__main__":
    main()
