"""What a tick costs against n, replicas, d, levels and devices, and what a leap saves, in one run, as a table and a figure.

    python bench/scaling.py [--rounds 5] [--quick] [--out bench/results/scaling.md]

The base case is the supermarket model with n = 1000, d = 2 with replacement, lambda = 0.9, 4096 replicas, 12 levels, one device a
core, near its fixed point, in the bare engine, warm. One thing is changed at a time. The cases take turns, round after round, so
that a machine whose speed drifts treats them alike, each just after the base, to which its ratio is taken. Compile time is apart.
The leap is `simulate(..., algorithm="leap")` with its default step, the call as a whole. The figure goes beside the table, as .png.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from provenance import CORES, flags, provenance, report
from spread import spread

ARRIVAL_RATE = 0.9
BASE: dict[str, int] = {"n": 1000, "replicas": 4096, "d": 2, "levels": 12, "devices": CORES}
AXES: dict[str, Sequence[int]] = {
    "n": [10**k for k in range(2, 10)], "replicas": [1, 8, 64, 512, 4096, 32768], "d": [2, 3, 5, 10, 20],
    "levels": [8, 12, 16, 24, 32, 64], "devices": sorted({1, CORES})}
LEAP_SIZES = [10**k for k in range(3, 10)]
LEAP_REPLICAS = 256
Measure = Callable[[], float]


def start_of(model: Any) -> Any:
    """Tail counts of the fixed point."""
    import numpy as np

    return np.floor(model.n * model.guess() + 0.5).astype(int)


def tick_cost(seconds: float, *, n: int, replicas: int, d: int, levels: int, devices: int) -> Measure:
    """A function that runs for about so long and gives nanoseconds of wall time per tick and replica."""
    import jax
    import numpy as np

    import jaxq
    from jaxq import bits
    from jaxq.engine import Engine

    model = jaxq.Supermarket(n, d, ARRIVAL_RATE, levels=levels)
    engine = Engine(model, start_of(model), bits.key_words(1), replicas, devices=jax.devices()[:devices])

    def run(ticks: int) -> float:
        calls = -(-ticks // engine.longest)
        takes = np.full((1, replicas), -(-ticks // calls // engine.chunk) * engine.chunk)
        began = time.perf_counter()
        for _ in range(calls):
            engine.advance(takes)
        return 1e9 * (time.perf_counter() - began) / (calls * takes[0, 0] * replicas)

    run(engine.chunk)
    ticks = max(engine.chunk, int(1e9 * 0.2 * seconds / run(20 * engine.chunk) / replicas))
    ticks = max(engine.chunk, int(1e9 * seconds / run(ticks) / replicas))
    return lambda: run(ticks)


def leap_cost(seconds: float, n: int) -> Measure:
    """A function that gives microseconds of wall time per unit time and replica of a leaping run."""
    import jaxq

    model = jaxq.Supermarket(n, BASE["d"], ARRIVAL_RATE, levels=BASE["levels"])
    start = start_of(model)

    def run(t: float) -> float:
        began = time.perf_counter()
        jaxq.simulate(model, [t], 1, replicas=LEAP_REPLICAS, initial=start, algorithm="leap")
        return 1e6 * (time.perf_counter() - began) / (t * LEAP_REPLICAS)

    run(1.0)
    t = max(1.0, round(1e6 * seconds / run(1.0) / LEAP_REPLICAS))
    return lambda: run(t)


def figure(cost: dict[tuple[str, int], list[float]], leap: dict[int, list[float]], path: Path) -> None:
    """Four panels: cost of a tick against n, replicas, d and levels; cost of a unit of time against n, exact and leap."""
    import matplotlib.pyplot as plt

    from jaxq import plot_style

    def curve(ax: Any, k: int, values: dict[int, list[float]], label: str, scale: Callable[[int], float] = lambda _: 1.0) -> None:
        x = list(values)
        y = [[pick(values[at]) * scale(at) for at in x] for pick in (statistics.median, min, max)]
        ax.plot(x, y[0], marker=plot_style.MARKERS[k], ms=4, color=plot_style.COLOURS[k], label=label)
        ax.fill_between(x, y[1], y[2], color=plot_style.COLOURS[k], alpha=0.2, lw=0)

    axes_of = {axis: {at: cost[axis, at] for at in values} for axis, values in AXES.items()}
    with plt.rc_context(plot_style.STYLE):
        _, ((by_n, by_replicas), (by_work, by_time)) = plt.subplots(2, 2, figsize=(7.6, 5.6), layout="constrained")
        curve(by_n, 0, axes_of["n"], "n")
        by_n.set(xscale="log", ylim=(0, None), xlabel="servers $n$", ylabel="ns per tick and replica")
        curve(by_replicas, 0, axes_of["replicas"], "replicas")
        by_replicas.set(xscale="log", yscale="log", xlabel="replicas", ylabel="ns per tick and replica")
        curve(by_work, 0, axes_of["d"], "$d$, at 12 levels")
        curve(by_work, 1, axes_of["levels"], "levels, at $d = 2$")
        by_work.set(ylim=(0, None), xlabel="$d$, or levels", ylabel="ns per tick and replica")
        by_work.legend()
        curve(by_time, 0, axes_of["n"], "exact", lambda n: 1e-3 * (1 + ARRIVAL_RATE) * n)
        curve(by_time, 1, leap, "leap")
        by_time.set(xscale="log", yscale="log", xlabel="servers $n$", ylabel="µs per unit of time and replica")
        by_time.legend()
        plot_style.save(by_n, path)


def main() -> None:
    options = flags(__doc__).parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    seconds = 0.03 if options.quick else 0.4
    measures: dict[tuple[str, int], Measure] = {}
    base = tick_cost(seconds, **BASE)
    for axis, values in AXES.items():
        for value in values:
            measures[axis, value] = base if value == BASE[axis] else tick_cost(seconds, **(BASE | {axis: value}))
    leaps = {n: leap_cost(seconds, n) for n in LEAP_SIZES}
    cost: dict[tuple[str, int], list[float]] = {name: [] for name in measures}
    ratios: dict[tuple[str, int], list[float]] = {name: [] for name in measures}
    leap: dict[int, list[float]] = {n: [] for n in leaps}
    for _ in range(options.rounds):
        for name, measure in measures.items():
            this = base()
            cost[name].append(this if measure is base else measure())
            ratios[name].append(cost[name][-1] / this)
        for n, measure in leaps.items():
            leap[n].append(measure())

    lines = ["# Scaling", "", provenance(f"python bench/scaling.py --rounds {options.rounds}" + " --quick" * options.quick), "",
             f"Supermarket model with replacement, lambda = {ARRIVAL_RATE}, near its fixed point, bare engine; the base case has "
             + ", ".join(f"{axis} = {value}" for axis, value in BASE.items())
             + ". Nanoseconds of wall time per tick and replica, median of the rounds (least-most), and ratios to the base, run "
             "just before.", "", "| | | ns | ratio |", "|---|---|---|---|"]
    for (axis, value), costs in cost.items():
        lines.append(f"| {axis} | {value:.0e}".replace("e+0", "e") if axis == "n" else f"| {axis} | {value}")
        lines[-1] += f" | {spread(costs)} | {'1' if value == BASE[axis] else spread(ratios[axis, value])} |"
    lines += ["", f"Leap, default step and order, {LEAP_REPLICAS} replicas: microseconds of wall time per unit of time and "
              f"replica. The exact chain has {1 + ARRIVAL_RATE:g} n ticks in that time, at the cost above.", "",
              "| n | leap | exact | exact / leap |", "|---|---|---|---|"]
    for n, costs in leap.items():
        ticks = [1e-3 * (1 + ARRIVAL_RATE) * n * one for one in cost["n", n]]
        gains = [one / other for one, other in zip(ticks, costs, strict=True)]
        lines.append(f"| {n:.0e} | {spread(costs)} | {spread(ticks)} | {spread(gains)} |".replace("e+0", "e", 1))
    if options.out:
        figure(cost, leap, options.out.with_suffix(".png"))
        lines += ["", "![Cost of a tick against n, replicas, d and levels, and of a unit of time against n]"
                      f"({options.out.stem}.png)"]
    report(lines, options.out)


if __name__ == "__main__":
    main()
