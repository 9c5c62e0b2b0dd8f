"""The scan and the kernel (`jaxq.kernel`) on a GPU: ticks per second, and the same integers as on the CPU. Under 4 minutes.

    python bench/gpu.py [--seconds 1.5] [--limit 200] [--out bench/results/gpu.md]

One system: d = 2 with replacement, lambda = 0.9, near its fixed point, 12 levels. A figure is the median of three calls of
`Engine.advance`, warm, with the counts brought to the host; compile time is apart. Cases that would start after the limit (seconds)
are left out and said to be. Without a GPU the script checks what can be checked: the kernel interpreted on the CPU against the
scan, and that it lowers for CUDA and TPU.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from provenance import provenance, report

import jaxq
from jaxq import bits
from jaxq.engine import Engine
from jaxq.kernel import run_kernel

SIZES = (1000, 10**6)
REPLICAS = (10**4, 10**5, 10**6)
CALLS = {"cuda": "__gpu$xla.gpu.triton", "tpu": "tpu_custom_call"}
BEGAN = time.perf_counter()


def engine(n: int, replicas: int, devices: Any, **options: Any) -> Engine:
    model = jaxq.Supermarket(n, 2, 0.9, levels=12)
    start = np.floor(n * model.guess() + 0.5).astype(int)
    return Engine(model, start, bits.key_words(1), replicas, devices=devices, segments=1, **options)


def rate(n: int, replicas: int, device: Any, kernel: bool, seconds: float) -> tuple[float, int, float]:
    """Ticks per second, ticks a replica in one call, and seconds to compile."""
    run = engine(n, replicas, [device], kernel=kernel)

    def call(ticks: int) -> float:
        began = time.perf_counter()
        run.advance(np.full((1, replicas), ticks))
        return time.perf_counter() - began

    ticks = 32
    call(ticks)
    while (took := call(ticks)) < seconds / 6 and ticks * 4 < run.longest:
        ticks *= 4
    if ticks > 32:
        ticks = min(run.longest, max(32, int(ticks * seconds / 3 / took)))
    return replicas * ticks / statistics.median(call(ticks) for _ in range(3)), ticks, run.compile_seconds


def same(n: int, replicas: int, ticks: int, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two engines end in the same states, counts and counters; every replica has its own number of ticks."""
    takes = np.random.default_rng(2).integers(0, ticks, (2, replicas))
    ends = []
    for options in (one, other):
        run = engine(n, replicas, **options)
        run.ticks += 2**32 - ticks // 2
        saved = [run.advance(row[None]) for row in takes]
        ends.append(jax.tree.map(lambda leaf: np.asarray(leaf)[..., :replicas], (saved, run.state, run.totals)))
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, ends), strict=True))


def lowered(n: int, platform: str) -> str:
    """What calls the kernel where it is lowered for a device that is not here."""
    keys = bits.fold_in(bits.key_words(1), np.arange(1024, dtype=np.uint32))
    model, state = jaxq.Supermarket(n, 2, 0.9, levels=12).init(None, keys)
    context: Any = contextlib.nullcontext()
    if platform == "cuda" and hasattr(jax.sharding, "AbstractDevice"):
        device = jax.sharding.AbstractDevice("NVIDIA H200", 1, "cuda")
        context = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))
    with context:
        run = functools.partial(run_kernel, model.program(), "gpu" if platform == "cuda" else "tpu")
        zeros = np.zeros(1024, np.uint32)
        traced = jax.jit(run).trace(model.tables(model.clock()), keys, state, zeros, zeros, zeros)
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    return f"`{CALLS[platform]}`" if f"@{CALLS[platform]}" in text else "no kernel"


def measured(gpu: Any, seconds: float, limit: float) -> list[str]:
    cpu = jax.devices("cpu")[:1]
    lines = [f"Device: {gpu.device_kind}.", "",
             "| n | replicas | scan, 1e6 ticks/s | kernel, 1e6 ticks/s | kernel / scan | ticks a call | compile, s |",
             "|---|---|---|---|---|---|---|"]
    checks = []
    for n in SIZES:
        for kernel in (False, True):
            equal = same(n, 512, 3000, {"devices": cpu, "kernel": False}, {"devices": [gpu], "kernel": kernel})
            checks.append(f"n = {n:.0e}, {'kernel' if kernel else 'scan'}: {'equal' if equal else '**DIFFERENT**'}")
    for n in SIZES:
        for replicas in REPLICAS:
            if time.perf_counter() - BEGAN > limit:
                lines.append(f"| {n:.0e} | {replicas:.0e} | not run: time limit | | | | |")
                continue
            scan, kernel = (rate(n, replicas, gpu, form, seconds) for form in (False, True))
            lines.append(f"| {n:.0e} | {replicas:.0e} | {scan[0] / 1e6:.0f} | {kernel[0] / 1e6:.0f} | {kernel[0] / scan[0]:.1f} | "
                         f"{scan[1]}, {kernel[1]} | {scan[2]:.1f}, {kernel[2]:.1f} |")
    return [*lines, "", "States, counts and counters of 512 replicas after two calls of up to 3000 ticks, against the CPU's scan: "
            + "; ".join(checks) + "."]


def checked() -> list[str]:
    lines = ["**No GPU was at hand: nothing here is a speed, and the kernel has not run on a GPU or TPU.** What was checked:", "",
             "| n | the kernel interpreted on the CPU, against the scan | lowered for CUDA, calls | lowered for TPU, calls |",
             "|---|---|---|---|"]
    cpu = jax.devices("cpu")[:1]
    for n in SIZES:
        equal = same(n, 100, 300, {"devices": cpu, "kernel": False}, {"devices": cpu, "kernel": True})
        lines.append(f"| {n:.0e} | {'equal' if equal else '**DIFFERENT**'} | {lowered(n, 'cuda')} | {lowered(n, 'tpu')} |")
    return [*lines, "",
            "The comparison: states, counts and counters of 100 replicas, each with its own number of ticks, up to 300 a call in "
            "two calls, across tick number 2^32. `tests/test_kernel.py` does the same for all sizes of ranks, with buffers too."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5, help="of measuring in each case")
    parser.add_argument("--limit", type=float, default=200, help="seconds after which no case starts")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gpu = next((device for device in jax.devices() if device.platform in ("gpu", "cuda", "rocm")), None)
    body = measured(gpu, options.seconds, options.limit) if gpu else checked()
    report(["# Scan and kernel on a GPU", "", provenance("python bench/gpu.py"), "",
            "Supermarket model, d = 2 with replacement, lambda = 0.9, 12 levels.", "", *body], options.out)


if __name__ == "__main__":
    main()
