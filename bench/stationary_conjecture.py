"""Steady state of T = eta (1 - S) in heavy traffic at growing n, for the notebook `stationary_conjecture`.

    python bench/stationary_conjecture.py [--alphas 0.25 0.5 0.75] [--n 1000 10000 100000] [--max-events 2e11]

writes bench/results/stationary_conjecture.json (what the notebook reads) and the same as a table, stationary_conjecture.md. Each
run starts at the finite-eta fixed point; its warm-up and its window are `RELAXATIONS` times eta/(beta ln d) each, as far as
--max-events allows with `REPLICAS` replicas, and a run that would need more is left out. Runs already in the file are kept.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from provenance import CORES, provenance

D, BETA, REPLICAS, RELAXATIONS, SEED = 2, 1.0, 128, 5.0, 0
RESULTS = Path(__file__).parent / "results" / "stationary_conjecture"


def run(alpha: float, n: int) -> dict:
    import numpy as np

    import jaxq

    model = jaxq.Supermarket.heavy_traffic(n, D, BETA, alpha)
    relaxation = model.eta / (BETA * math.log(D))
    found = jaxq.stationary(model, SEED, replicas=REPLICAS, warmup=RELAXATIONS * relaxation, horizon=RELAXATIONS * relaxation)
    levels = range(min(8, found.T_mean.size))
    finite = jaxq.heavy_traffic.fixed_point_T(8, D, BETA, model.eta)
    return {"alpha": alpha, "n": n, "eta": model.eta, "T_mean": [float(found.T_mean[i]) for i in levels],
            "T_stderr": [float(found.T_stderr[i]) for i in levels], "finite_eta": np.asarray(finite).tolist(),
            "T_variance": [float(model.eta**2 * found.tail_variance[i]) for i in levels],
            "T_variance_stderr": [float(model.eta**2 * found.tail_variance_stderr[i]) for i in levels],
            "relaxation": relaxation, "replicas": REPLICAS, "events": found.events, "seconds": found.seconds,
            "control_gain": found.control_gain, "drift": found.drift}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--n", type=lambda text: int(float(text)), nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--max-events", type=float, default=2e11)
    options = parser.parse_args()

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    data = json.loads(RESULTS.with_suffix(".json").read_text()) if RESULTS.with_suffix(".json").exists() else {"rows": []}
    data["about"] = f"{provenance('python bench/stationary_conjecture.py')} d = {D}, beta = {BETA:g}, seed {SEED}"
    for n in options.n:
        for alpha in options.alphas:
            needed = 2 * RELAXATIONS * n**alpha / (BETA * math.log(D)) * 2 * n * REPLICAS
            known = any(row["alpha"] == alpha and row["n"] == n for row in data["rows"])
            if needed <= options.max_events and not known:
                data["rows"].append(run(alpha, n))
                write(data)


def write(data: dict) -> None:
    data["rows"].sort(key=lambda row: (row["alpha"], row["n"]))
    RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    lines = ["# Steady state of T in heavy traffic", "", data["about"] + ".", "",
             "T_i = eta (1 - S_i), eta = n^alpha; mean +- standard error, beside the finite-eta fixed point. Variance of T_1 as "
             "n Var(T_1)/(beta eta), which should tend to 1 + ln d = 1.693.", "",
             "| alpha | n | T_2 | finite eta | T_3 | finite eta | T_4 | finite eta | n Var(T_1)/(beta eta) | events | seconds |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in data["rows"]:
        cells = [f"{row['T_mean'][i]:.5f} +- {row['T_stderr'][i]:.5f} | {row['finite_eta'][i]:.5f}" for i in (1, 2, 3)]
        scale = row["n"] / (BETA * row["eta"])
        lines.append(f"| {row['alpha']:g} | {row['n']:g} | {' | '.join(cells)} | {scale * row['T_variance'][0]:.4f} +- "
                     f"{scale * row['T_variance_stderr'][0]:.4f} | {row['events']:.2g} | {row['seconds']:.0f} |")
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
