"""What `simulate` and `stationary` will take of memory, and whether it is there.

The estimate counts arrays. Its factors are how many copies of each live at the peak, as XLA and NumPy make them: measured on the
CPU, within a factor of 1.5 of what a run takes on top of the 0.3 GiB of Python and JAX. Levels that queues outgrow are not in it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import hosts
from .chain import Model

GIB = 2.0**30        # estimates above it are told
_STATE, _SAVED = 4, 3  # copies at once of the state (before, after, each cut in blocks) and of the saved counts (also being summed)
_POISSON, _LOOKS = 230, 4  # bytes of a replica's Poisson path; sums over looks that live together in `stationary`
_REMEMBERED = 8            # more of them in a run of some doublings whose watches remember, for a checkpoint


@dataclass(frozen=True)
class Need:
    """Bytes a run takes at its peak: `host` of this process's memory, `device` of each accelerator (0 on CPU)."""

    host: int
    device: int


@dataclass(frozen=True)
class _Lane:
    """Bytes of one replica's state and of its counts at one save time, and how many levels, pools and counters it has."""

    state: int
    counts: int
    levels: int
    pools: int
    counters: int


def of_simulate(model: Model, initial: Any, replicas: int, times: int, save: str, segments: int, devices: Sequence[Any], *,
                kept: bool = False) -> Need:
    """Memory of `simulate` with `times` save times, `segments` of them in one call of the engine; `kept` in a checkpoint."""
    lane = _lane(model, initial)
    paths = times * (8 * lane.levels + 16 * lane.counters) if save == "paths" else 0  # as they come, and as one array
    file = paths + 2 * (lane.state + 8 * lane.counters + 8) if kept else 0  # the part as written last, and the next
    return _engine(lane, replicas, segments, devices, _POISSON + 16 * segments + paths + file)


def of_stationary(model: Model, initial: Any, replicas: int, segments: int, devices: Sequence[Any], *,
                  kept: bool = False) -> Need:
    """Memory of `stationary`: sums over looks are float64, for each replica; `kept` in a checkpoint."""
    lane = _lane(model, initial)
    sums = 8 * (2 * lane.pools + 1) * lane.levels + 64
    file = _REMEMBERED * sums + 2 * (lane.state + 8 * lane.counters + 8) if kept else 0
    return _engine(lane, replicas, segments, devices, _LOOKS * sums + 16 * segments + file)


def _engine(lane: _Lane, replicas: int, segments: int, devices: Sequence[Any], more: int) -> Need:
    saved = segments * (lane.counts + 4 * lane.counters)
    on_device = _STATE * lane.state + _SAVED * saved + 12 * segments + 32
    on_host = 48 + 16 * segments * lane.counters + more
    several, local = hosts.spans(devices), _local(devices)
    if several:  # every process has the counts of all replicas, from each of its devices
        on_host += saved * (1 + len(local))
    share = on_device * -(-replicas // len(devices))
    if local[0].platform == "cpu":
        return Need(replicas * on_host + share * len(local), 0)
    return Need(replicas * (on_host + lane.state + saved), share)


def _lane(model: Model, initial: Any) -> _Lane:
    model, state = model.init(initial, (np.zeros(1, np.uint32),) * 2)
    with jax.enable_x64(True) if model.float64 else contextlib.nullcontext():
        counts = jax.eval_shape(model.program().counts, state)
        counters = jax.eval_shape(lambda of: model.program().counters(of)[0], state)
    tails = np.asarray(model.pool_tails(np.zeros(counts.shape, counts.dtype)))
    pools, levels = tails.shape[:2]
    state_size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return _Lane(state_size, counts.size * counts.dtype.itemsize, levels, pools, len(counters))


def check(need: Need, devices: Sequence[Any], advice: str) -> None:
    """Warn (UserWarning) of a run above 1 GiB; ValueError where one of its processes has not as much, naming what helps."""
    pairs = [(need.host, _free()), (need.device, _free_on(devices) if need.device else float("inf"))]
    lacking = next(((size, there) for size, there in pairs if size > there), None)
    if hosts.spans(devices):
        lacking = next((found for found in hosts.everyone(lacking) if found is not None), None)
    if lacking is not None:
        raise ValueError(f"a run must fit in memory; this one takes about {lacking[0] / GIB:.1f} GiB where "
                         f"{lacking[1] / GIB:.1f} GiB is free; {advice}")
    if max(need.host, need.device) > GIB:
        parts = [f"{size / GIB:.1f} GiB of {kind}" for size, kind in ((need.host, "memory"), (need.device, "each device's memory"))]
        told = " and ".join(part for part in parts if not part.startswith("0.0"))
        warnings.warn(f"the run will take about {told}; to take less, {advice}", stacklevel=3)


def _free() -> float:
    """Bytes that this process may still take: what the machine has, or what is left of a limit on its control group."""
    free = float("inf")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    with contextlib.suppress(OSError, ValueError, StopIteration):
        path = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))[3:]
        folder = Path("/sys/fs/cgroup") / path.strip("/")
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):  # "max": no limit
                free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0.0)


def _free_on(devices: Sequence[Any]) -> float:
    told = [device.memory_stats() or {} for device in _local(devices)]
    return min(stats.get("bytes_limit", float("inf")) - stats.get("bytes_in_use", 0) for stats in told)


def _local(devices: Sequence[Any]) -> list[Any]:
    return [device for device in devices if device.process_index == jax.process_index()]
