"""The scaling study by leaps, up to n = 10**9: bias and fluctuation of T^n about its limit, and their slopes in n.

    python bench/leap_study.py [--replicas 5000] [--quick] [--out bench/results/leap_study.md]

The bias at n = 10**9 is 2e-4, far below the fluctuation of one system, so that it takes thousands of replicas; exact chains would
need 10**14 ticks. It also takes short steps: at a step of 1/16 the bias was 1.3e-3 there, which is 0.3 step**2 and not the chain's.
"""

from __future__ import annotations

import time

from provenance import CORES, flags, provenance, report

SIZES = (10**6, 10**7, 10**8, 10**9)
STEP, T_END, TIMES, SEED = 1 / 64, 10.0, 21, 0


def main() -> None:
    parser = flags(__doc__, rounds=None, quick="few replicas, to see that it works")
    parser.add_argument("--replicas", type=int, default=5_000)
    options = parser.parse_args()
    replicas = 200 if options.quick else options.replicas

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)

    import jaxq

    began = time.perf_counter()
    study = jaxq.scaling_study(2, 1.0, 0.5, n=SIZES, t_end=T_END, num_times=TIMES, replicas=replicas, key=SEED, algorithm="leap",
                               step=STEP)
    assert study.slopes is not None
    lines = ["# The scaling study by leaps", "",
             provenance(f"python bench/leap_study.py --replicas {replicas}"), "",
             f"d = 2, beta = 1, alpha = 1/2, t <= {T_END:g} at {TIMES} times, {replicas} replicas, steps of {STEP:g}, "
             f"{time.perf_counter() - began:.0f} s in all. Bias and fluctuation as in `jaxq.scaling_study`; finite eta: the bias "
             "of the finite-eta system, which is what the chain should have.", "",
             "| n | bias | finite eta | fluctuation |", "|---|---|---|---|"]
    for row in study.rows:
        lines.append(f"| {row['n']:.0e} | {row['bias']:.5f} +- {row['bias_stderr']:.5f} | {row['bias_finite']:.5f} | "
                     f"{row['fluctuation']:.5f} +- {row['fluctuation_stderr']:.5f} |")
    bias, spread = study.slopes["bias"], study.slopes["fluctuation"]
    lines += ["", f"Slope of ln bias in ln n: {bias['slope']:.4f} +- {bias['stderr']:.4f}; finite-eta system "
              f"{bias['finite_eta']:.4f}, asymptotically {bias['asymptotic']:g}.",
              f"Slope of ln fluctuation in ln n: {spread['slope']:.4f} +- {spread['stderr']:.4f}; predicted "
              f"{spread['predicted']:g}."]
    report(lines, options.out)


if __name__ == "__main__":
    main()
