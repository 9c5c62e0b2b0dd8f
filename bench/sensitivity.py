"""Noise of the estimators of a derivative, side by side, as one Markdown table.

    python bench/sensitivity.py [--replicas 20000] [--out bench/results/sensitivity.md]

The derivative of E Q(t) in lambda, t = 10, from empty, for n = 200 servers and two choices at lambda = 0.9: standard deviation
per replica and time of each estimator, on all cores, compile time apart. The score function of the ticks is that of the
uniformised chain on a clock of 2 n, whose null ticks carry most of its noise; the score function of the arrivals knows that the
service ticks and null ticks do not matter, the best form of it. Both with and without the mean of Q taken off (baseline).
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from provenance import CORES, provenance, report

N, D, LAMBDA, T = 200, 2, 0.9, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=20000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    import numpy as np

    import jaxq
    from jaxq.sensitivity import sensitivity

    model, replicas = jaxq.Supermarket(N, D, LAMBDA), options.replicas
    rows: list[tuple[str, float, float, float, float, float]] = []  # name, derivative, stderr, spread, bias and its stderr

    def run(name: str, **how: object) -> None:
        result = sensitivity(model, [T], 1, replicas=replicas, **how)
        spread = float(result.mean_queue_length_derivative_stderr[0]) * math.sqrt(replicas)
        bias, bias_error = (math.nan if part is None else float(part[0]) for part in (
            result.mean_queue_length_derivative_bias, result.mean_queue_length_derivative_bias_stderr))
        rows.append((name, float(result.mean_queue_length_derivative[0]), spread, result.seconds, bias, bias_error))

    began = time.perf_counter()
    paths = jaxq.simulate(model, [T], 2, replicas=replicas, save="paths")
    seconds = time.perf_counter() - began - paths.compile_seconds
    queue, arrivals = paths.paths[-1].sum(axis=0) / N, paths.counter_paths["arrivals"][-1]
    # on the clock 2 n null ticks are Poisson with rate n (1 - lambda), independent of arrivals and services
    nulls = np.random.default_rng(0).poisson(N * (1 - LAMBDA) * T, replicas)
    scores = {"ticks": arrivals / LAMBDA - nulls / (1 - LAMBDA), "arrivals": arrivals / LAMBDA - N * T}
    for name, score in scores.items():
        for baseline in (0.0, queue.mean()):
            values = (queue - baseline) * score
            rows.append((f"score function of the {name}, {'mean' if baseline else 'no'} baseline", values.mean(), values.std(),
                         seconds, math.nan, math.nan))
    run("weak derivative (2 runs)", method="weak")
    for step in (0.0125, 0.025, 0.05, 0.095):
        run(f"common marks, step {step:g} (4 runs)", step=step)
    default = sensitivity(model, [T], 1, replicas=2).step
    chosen = next(row for row in rows if row[0].startswith(f"common marks, step {default:.3g} "))

    lines = [
        "# Derivatives of simulated expectations", "",
        provenance(f"python bench/sensitivity.py --replicas {replicas}"), "",
        f"d E Q({T:g}) / d lambda, n = {N}, d = {D}, lambda = {LAMBDA}, from empty; the mean field's is 4.4170. Bias: the "
        f"estimate of the step's error that `sensitivity` gives. Default step: {default:g}.", "",
        "| estimator | derivative | std per replica | bias | over that of the default | seconds |", "|---|---|---|---|---|---|"]
    for name, value, spread, seconds, bias, bias_error in rows:
        error = spread / math.sqrt(replicas)
        wrong = "0" if math.isnan(bias) else f"{bias:.4f} +- {bias_error:.4f}"
        lines.append(f"| {name} | {value:.3f} +- {error:.3f} | {spread:.3g} | {wrong} | {spread / chosen[2]:.1f} | {seconds:.2f} |")
    report(lines, options.out)


if __name__ == "__main__":
    main()
