"""A long run: 1e11 ticks of the supermarket model in one engine; its memory, its means, and where its customers went.

    python bench/soak.py [--ticks 1e11] [--quick] [--out bench/results/soak.md]

n = 1000, d = 2, lambda = 0.9, 4096 replicas, two looks a call; the number of a replica's tick passes 2^32 in the middle. Exact
are the balance of customers in every replica and call and the tails' order at every look; the means are held to 5 standard
errors. The program fails where one of these does, or where memory has grown in the second half.
"""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

from provenance import CORES, flags, provenance, report

N, D, LAMBDA, REPLICAS = 1000, 2, 0.9, 4096
GAP = 16_352      # ticks between two looks; a call has at most 32767
GROWTH = 2 * 1024  # KiB that the peak may grow in the second half, for all that the machine's allocator does


def peak() -> int:
    """Peak memory of this program in KiB."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])


def main() -> None:
    parser = flags(__doc__, rounds=None, quick="2e9 ticks, to see that it works")
    parser.add_argument("--ticks", type=float, default=1e11, help="of all replicas together")
    options = parser.parse_args()
    wanted = 2e9 if options.quick else options.ticks

    import jax

    jax.config.update("jax_num_cpu_devices", CORES)
    import numpy as np

    import jaxq
    from jaxq import bits
    from jaxq.engine import Engine

    model = jaxq.Supermarket(N, D, LAMBDA, levels=12)
    known = model.steady()
    calls, warm = math.ceil(wanted / (2 * GAP * REPLICAS)), math.ceil(10 * known.relaxation * model.clock() / (2 * GAP))
    if calls < warm + 3:
        raise SystemExit(f"--ticks must be at least {(warm + 3) * 2 * GAP * REPLICAS:.2g}, after the warm-up; got {wanted:g}")
    run = Engine(model, known.starts[0], bits.key_words(1), REPLICAS)
    first = 2**32 - calls // 2 * 2 * GAP
    run.ticks += first
    takes = np.full((2, REPLICAS), GAP)
    present = np.full(REPLICAS, int(known.starts[0].sum()))
    came, looks = np.zeros(REPLICAS, np.int64), 0
    busy, queue = (np.zeros(REPLICAS, np.int64) for _ in range(2))
    arrived, departed, peaks = 0, 0, []
    began = time.perf_counter()
    for call in range(calls):
        counts, totals = run.advance(takes)
        for tail, total in zip(counts.astype(np.int64), totals["arrivals"], strict=True):
            if np.any(np.diff(tail, axis=0) > 0) or tail.min() < 0 or tail.max() > N:
                raise SystemExit(f"tails out of order in call {call}")
            customers = tail.sum(axis=0)
            gone = (total - came) - (customers - present)
            if np.any(gone < 0) or np.any(gone > GAP - (total - came)):
                raise SystemExit(f"customers are not conserved in call {call}: more left than were served, or less than none")
            arrived, departed = arrived + int((total - came).sum()), departed + int(gone.sum())
            present, came = customers, total
            if call >= warm:
                busy, queue, looks = busy + tail[0], queue + customers, looks + 1
        if call in (0, calls // 2, calls - 1):
            peaks.append(peak())
    seconds = time.perf_counter() - began - run.compile_seconds

    ticks, theory = calls * 2 * GAP * REPLICAS, jaxq.refined(model).refined_mean_queue_length
    if not np.all(run.ticks[:REPLICAS] == first + calls * 2 * GAP) or int(run.totals["arrivals"][:REPLICAS].sum()) != arrived:
        raise SystemExit("ticks or arrivals were miscounted")
    chance = LAMBDA / (1 + LAMBDA)

    def mean(sums: np.ndarray) -> tuple[float, float]:
        return float(sums.mean() / looks / N), float(sums.std(ddof=1) / looks / N / REPLICAS**0.5)

    rows = [("S_1, lambda by the balance of flows", *mean(busy), LAMBDA),
            ("Q, fixed point and 1/n term", *mean(queue), theory),
            ("arrivals per tick", arrived / ticks, (chance * (1 - chance) / ticks) ** 0.5, chance)]
    lines = [
        "# A long run", "",
        provenance(f"python bench/soak.py --ticks {wanted:g}"), "",
        f"Supermarket model, n = {N}, d = {D}, lambda = {LAMBDA}, {REPLICAS} replicas: {ticks:.4g} ticks in {calls} calls and "
        f"{seconds:.0f} s, {ticks / seconds / 1e6:.0f} million a second; each replica's from tick {first} to "
        f"{first + calls * 2 * GAP}.", "",
        f"Customers: {int(known.starts[0].sum()) * REPLICAS} at the start + {arrived} arrivals - {departed} departures = "
        f"{int(present.sum())} at the end; in no replica and call did more leave than were served.", "",
        f"Peak memory after the first call, half of them and the last: {', '.join(f'{kib / 1024:.1f}' for kib in peaks)} MiB.", "",
        f"Means over the replicas and {looks} looks after a warm-up of {warm} calls; the 1/n term leaves {5 / N**2:.0e} of Q.",
        "",
        "| | found | standard error | expected | apart, in errors |", "|---|---|---|---|---|"]
    apart = [(found - value) / error for _, found, error, value in rows]
    lines += [f"| {name} | {found:.7f} | {error:.1e} | {value:.7f} | {z:.1f} |"
              for (name, found, error, value), z in zip(rows, apart, strict=True)]
    report(lines, options.out)
    if int(known.starts[0].sum()) * REPLICAS + arrived - departed != int(present.sum()):
        raise SystemExit("customers are not conserved")
    if max(map(abs, apart)) > 5:
        raise SystemExit("a mean is more than 5 standard errors from where it should be")
    if peaks[2] > peaks[1] + GROWTH:
        raise SystemExit(f"memory grew by {peaks[2] - peaks[1]} KiB in the second half")


if __name__ == "__main__":
    main()
