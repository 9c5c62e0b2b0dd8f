"""The fit of eta_n on jaxq's own stationary runs, truth known, as one Markdown page.

    python bench/fit_end_to_end.py [--rel-error 0.002] [--replicas 128] [--out bench/results/fit_end_to_end.md]

Supermarket model, d = 2 with replacement, lambda_n = 1 - n**-alpha (beta = 1) at n = 300, 1000, 3000, 10000; alpha = 0.3 and 0.5.
Each n is one run of `jaxq.stationary` with its own seed; `jaxq.fit_scaling` sees the raw averages of the replicas only.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

from provenance import provenance

import jaxq
from jaxq.fit import ScalingFit, fit_scaling
from jaxq.stationary import stationary

SIZES = (300, 1000, 3000, 10_000)


def run(alpha: float, replicas: int, rel_error: float) -> tuple[list, float]:
    began = time.perf_counter()
    results = [stationary(jaxq.Supermarket.heavy_traffic(n, 2, 1.0, alpha), 1000 * k + round(100 * alpha), replicas=replicas,
                          rel_error=rel_error, progress=False) for k, n in enumerate(SIZES)]
    return results, time.perf_counter() - began


def row(name: str, fit: ScalingFit, alpha: float, seconds: float) -> str:
    return (f"| {alpha:g} | {name} | {fit.alpha:.4f} ± {fit.alpha_stderr:.4f} | {(fit.alpha - alpha) / fit.alpha_stderr:+.1f} | "
            f"{fit.beta:.4f} ± {fit.beta_stderr:.4f} | {(fit.beta - 1) / fit.beta_stderr:+.1f} | {fit.alpha_model_error:.1e} | "
            f"{fit.beta_model_error:.1e} | {fit.free_slope:.4f} ± {fit.free_slope_stderr:.4f} | {fit.chi_square:.1f} / {fit.dof} | "
            f"{fit.p_value:.2g} | {seconds:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rel-error", type=float, default=0.002)
    parser.add_argument("--replicas", type=int, default=128)
    parser.add_argument("--out")
    options = parser.parse_args()
    lines = []
    for alpha in (0.3, 0.5):
        results, seconds = run(alpha, options.replicas, options.rel_error)
        lines.append(f"alpha = {alpha:g}: the four runs took {seconds:.0f} s, windows of "
                     f"{', '.join(f'{result.horizon:.0f}' for result in results)} time units.")
        for name, settings in (("refined", {}), ("refined, levels=1", {"levels": 1}), ("refined, d=3", {"d": 3}),
                               ("fixed-point", {"prediction": "fixed-point"})):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the model's own error is a column of the table
                fit_scaling(results, **settings)
                began = time.perf_counter()
                fit = fit_scaling(results, **settings)
            lines.append(row(name, fit, alpha, time.perf_counter() - began))
    table = [line for line in lines if line.startswith("|")]
    text = "\n".join([
        "# Fitting eta_n on jaxq's own runs", "",
        provenance(f"python bench/fit_end_to_end.py --replicas {options.replicas} --rel-error {options.rel_error:g}"), "",
        "Supermarket model, d = 2 with replacement, lambda_n = 1 - n^-alpha, n = 300, 1000, 3000, 10000. ± one standard error; "
        "`off`: estimate minus truth in standard errors; `may shift`: the estimate of what the term left out does; `s`: seconds "
        "of a fit once compiled.", "",
        *(line for line in lines if not line.startswith("|")), "",
        "| alpha | fit | alpha | off | beta | off | alpha may shift | beta may shift | free slope | chi-square / dof | p | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|", *table, ""])
    print(text)
    if options.out:
        Path(options.out).write_text(text)


if __name__ == "__main__":
    main()
