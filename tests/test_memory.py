"""Peak memory: estimated, told, refused, and not growing with the save times."""

import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jaxq
from jaxq import memory

FACTOR = {"stationary": 2.5}   # between the estimate and what a run takes, else 1.5, as docs/memory.md says

MEASURE = """
import json, pathlib, re, sys, warnings
warnings.simplefilter("ignore")
import jax
import numpy as np
jax.config.update("jax_num_cpu_devices", 1)
import jaxq
from jaxq import memory

what, replicas, *times = sys.argv[1], *map(int, sys.argv[2:])
model = {"fluid": jaxq.Supermarket(100, 2, .9, levels=12), "wide": jaxq.Supermarket(100_000, 2, .9, levels=24),
         "graph": jaxq.GraphSupermarket(jaxq.graphs.ring(10_000), 2, .8), "paths": jaxq.Supermarket(100, 2, .9, levels=12),
         "stationary": jaxq.Supermarket(100_000, 2, .9, levels=12)}[what]

def peak():  # of this program alone: ru_maxrss begins with what the test process that started it has
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search("VmHWM:\\s*(\\d+)", status)[1])

def run(replicas, times):
    if what == "stationary":
        return jaxq.stationary(model, 0, replicas=replicas, warmup=2000 / model.clock(), horizon=2000 / model.clock())
    grid = np.linspace(0, times / 8 / model.clock(), times)
    return jaxq.simulate(model, grid, 0, replicas=replicas, save="paths" if what == "paths" else "moments")

peaks, needs = [], []
run(64, times[0])
before = peak()
for count in times:
    run(replicas, count)
    peaks.append(peak() - before)
    save = "paths" if what == "paths" else "moments"
    need = (memory.of_stationary(model, model.steady().starts[0], replicas, 16, jax.devices()) if what == "stationary" else
            memory.of_simulate(model, None, replicas, count, save, 8, jax.devices()))
    needs.append(need.host)
print(json.dumps([peaks, needs]))
"""


def measured(*words):
    done = subprocess.run([sys.executable, "-c", MEASURE, *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_moments_do_not_grow_with_the_save_times():
    replicas, few, many = 20_000, 33, 233
    peaks, needs = measured("fluid", replicas, few, many)
    assert needs[0] == needs[1]
    one_integer_kept = 8 * (many - few) * replicas   # for each save time and replica: 32 MB
    assert peaks[1] - peaks[0] < 0.5 * one_integer_kept


@pytest.mark.slow
@pytest.mark.parametrize(("what", "replicas", "times"), [
    ("fluid", 300_000, 9), ("wide", 150_000, 9), ("graph", 15_000, 9), ("paths", 200_000, 27), ("stationary", 200_000, 1)])
def test_the_estimate_is_within_its_factor(what, replicas, times):
    (peak,), (need,) = measured(what, replicas, times)
    factor = FACTOR.get(what, 1.5)
    assert 1 / factor < peak / need < factor


def test_the_estimate_is_made_of_lanes_and_shared_by_devices():
    model = jaxq.Supermarket(100, 2, 0.9)
    cpu, gpu = ([SimpleNamespace(platform=name, process_index=0)] * 2 for name in ("cpu", "gpu"))
    one, two = (memory.of_simulate(model, None, count, 9, "moments", 8, cpu) for count in (1000, 2000))
    assert two.host == 2 * one.host
    assert one.device == 0
    on_gpu = memory.of_simulate(model, None, 2000, 9, "moments", 8, gpu)
    assert 0 < on_gpu.device < two.host
    assert memory.of_simulate(model, None, 2000, 9, "moments", 8, gpu[:1]).device == 2 * on_gpu.device
    paths = memory.of_simulate(model, None, 1000, 9, "paths", 8, cpu).host
    assert paths - one.host >= 4 * 9 * 1000 * model.levels


def test_large_runs_are_told_and_those_that_do_not_fit_refused_before_they_start(monkeypatch):
    model, made = jaxq.Supermarket(100, 2, 0.9), []
    for module in ("jaxq.simulate", "jaxq.stationary"):
        monkeypatch.setattr(importlib.import_module(module), "Engine", lambda *args, **options: made.append(args))
    monkeypatch.setattr(memory, "_free", lambda: 2.0**31)
    with pytest.raises(ValueError, match=r"must fit in memory; this one takes about \d+\.\d GiB where 2.0 GiB is free; use fewer replicas"):
        jaxq.simulate(model, [1.0], 0, replicas=10**9)
    with pytest.raises(ValueError, match='use save="moments", fewer times or fewer replicas'):
        jaxq.simulate(model, np.arange(10_000.0), 0, replicas=10_000, save="paths")
    with pytest.raises(ValueError, match="use fewer replicas"):
        jaxq.stationary(model, 0, replicas=10**8)
    assert not made
    device = SimpleNamespace(platform="gpu", process_index=0, memory_stats=lambda: {"bytes_limit": 2**33, "bytes_in_use": 2**32})
    with pytest.raises(ValueError, match=r"about 5.0 GiB where 4.0 GiB is free"):
        memory.check(memory.Need(2**20, 5 * 2**30), [device], "use fewer replicas")
    with pytest.warns(UserWarning, match=r"will take about 1\.5 GiB of memory and 3\.0 GiB of each device's memory; to take less, use f"):
        memory.check(memory.Need(3 * 2**29, 3 * 2**30), [device], "use fewer replicas")
    memory.check(memory.Need(2**30, 2**30), [SimpleNamespace(platform="gpu", process_index=0, memory_stats=lambda: None)], "")


def test_free_memory_is_read_and_a_limit_of_the_group_counts(monkeypatch, tmp_path):
    assert 2**20 < memory._free() < 2**60
    files = {"/proc/self/cgroup": "0::/job/step\n", "/sys/fs/cgroup/job/memory.max": f"{2**30}\n", "/sys/fs/cgroup/memory.max": "max\n",
             "/sys/fs/cgroup/job/memory.current": f"{2**29}\n", "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4194304 kB\n"}

    def read(path):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(memory.Path, "read_text", read)
    assert memory._free() == 2**29
    files["/proc/self/cgroup"] = "4:memory:/old\n"
    assert memory._free() == 2**32
    files.clear()
    assert memory._free() == float("inf")   # a system without /proc: nothing is refused


def test_the_devices_are_those_of_the_run():
    assert memory.of_simulate(jaxq.Supermarket(10, 2, 0.5), None, 100, 2, "moments", 2, jax.devices()).device == 0
