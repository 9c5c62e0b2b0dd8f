"""Steady state of T = eta (1 - S) in heavy traffic at growing n, for the notebook `stationary_conjecture`.

    python bench/stationary_conjecture.py [--alphas 0.25 0.5 0.75] [--n 1000 10000 100000] [--max-events 2e11]
    python bench/stationary_conjecture.py --algorithm leap --alphas 0.25 0.5 --n 1e6 1e7 1e8 1e9

writes bench/results/stationary_conjecture.json (what the notebook reads) and the same as a table, stationary_conjecture.md. Each
run starts at the finite-eta fixed point; its warm-up and its window are `RELAXATIONS` times eta/(beta ln d) each, as far as
--max-events allows with `REPLICAS` replicas, and a run that would need more is left out. Runs already in the file are kept.
By leaps, whose cost does not depend on n, the steps are `STEP` and there are 64 replicas, with a warm-up of 2 relaxation times and
a window of 1; the table says what the steps add.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from provenance import CORES, provenance

D, BETA, REPLICAS, RELAXATIONS, SEED = 2, 1.0, 128, 5.0, 0
RESULTS = Path(__file__).parent / "results" / "stationary_conjecture"


STEP = 1 / 8


def run(alpha: float, n: int, algorithm: str) -> dict:
    import numpy as np

    import jaxq

    model = jaxq.Supermarket.heavy_traffic(n, D, BETA, alpha)
    relaxation = model.eta / (BETA * math.log(D))
    if algorithm == "leap":
        found = jaxq.stationary(model, SEED, replicas=64, warmup=2 * relaxation, horizon=relaxation, max_events=1e13,
                                algorithm="leap", step=STEP)
    else:
        found = jaxq.stationary(model, SEED, replicas=REPLICAS, warmup=RELAXATIONS * relaxation, horizon=RELAXATIONS * relaxation)
    levels = range(min(8, found.T_mean.size))
    finite = jaxq.heavy_traffic.fixed_point_T(8, D, BETA, model.eta)
    return {"alpha": alpha, "n": n, "eta": model.eta, "T_mean": [float(found.T_mean[i]) for i in levels],
            "T_stderr": [float(found.T_stderr[i]) for i in levels], "finite_eta": np.asarray(finite).tolist(),
            "T_variance": [float(model.eta**2 * found.tail_variance[i]) for i in levels],
            "T_variance_stderr": [float(model.eta**2 * found.tail_variance_stderr[i]) for i in levels],
            "relaxation": relaxation, "replicas": found.replicas, "algorithm": algorithm, "step": found.step,
            "T_step_error": None if found.step is None else [float(-model.eta * found.tail_step_error[i]) for i in levels],
            "events": found.events, "seconds": found.seconds,
            "control_gain": found.control_gain, "drift": found.drift}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--n", type=lambda text: int(float(text)), nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--max-events", type=float, default=2e11)
    parser.add_argument("--algorithm", choices=("exact", "leap"), default="exact")
    options = parser.parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    data = json.loads(RESULTS.with_suffix(".json").read_text()) if RESULTS.with_suffix(".json").exists() else {"rows": []}
    data["about"] = f"{provenance('python bench/stationary_conjecture.py')} d = {D}, beta = {BETA:g}, seed {SEED}"
    for n in options.n:
        for alpha in options.alphas:
            needed = 2 * RELAXATIONS * n**alpha / (BETA * math.log(D)) * 2 * n * REPLICAS
            known = any(row["alpha"] == alpha and row["n"] == n for row in data["rows"])
            if (options.algorithm == "leap" or needed <= options.max_events) and not known:
                data["rows"].append(run(alpha, n, options.algorithm))
                write(data)


def write(data: dict) -> None:
    data["rows"].sort(key=lambda row: (row["alpha"], row["n"]))
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    lines = ["# Steady state of T in heavy traffic", "", data["about"] + ".", "",
             "T_i = eta (1 - S_i), eta = n^alpha; mean +- standard error, beside the finite-eta fixed point. Variance of T_1 as "
             "n Var(T_1)/(beta eta), which should tend to 1 + ln d = 1.693.", "",
             "| alpha | n | algorithm | T_2 | finite eta | T_3 | finite eta | T_4 | finite eta | what steps add to T_4 | "
             "n Var(T_1)/(beta eta) | events | seconds |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in data["rows"]:
        cells = [f"{row['T_mean'][i]:.5f} +- {row['T_stderr'][i]:.5f} | {row['finite_eta'][i]:.5f}" for i in (1, 2, 3)]
        scale = row["n"] / (BETA * row["eta"])
        added = row.get("T_step_error")
        lines.append(f"| {row['alpha']:g} | {row['n']:g} | {row.get('algorithm', 'exact')} | {' | '.join(cells)} | "
                     f"{'' if added is None else format(added[3], '.1e')} | {scale * row['T_variance'][0]:.4f} +- "
                     f"{scale * row['T_variance_stderr'][0]:.4f} | {row['events']:.2g} | {row['seconds']:.0f} |")
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
