"""One simulator in a process of its own: jobs come as JSON lines on stdin, results go as JSON lines to stdout.

    python bench/peer_worker.py NAME [CORE]

With CORE it keeps to that core. `peers.py` starts it, with the interpreter that has the package.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

FAR = 8.0  # robust standard deviations at which a replica counts as stray


def main(name: str, core: str | None = None) -> None:
    sys.stdout, replies = sys.stderr, sys.stdout  # what packages print stays out of the replies
    warnings.simplefilter("ignore")
    # as in an activated environment: GillesPy2 looks for its build tool there
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    if core is not None:
        os.sched_setaffinity(0, {int(core)})
    elif name == "jaxq":
        import jax

        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    sys.path.append(str(Path(__file__).parent))
    adapter = importlib.import_module(f"adapters.{name}")
    prepared: dict[Any, Any] = {}
    for line in sys.stdin:
        job = json.loads(line)
        seed = job.pop("seed")
        shape = tuple(job.values())
        if shape not in prepared:
            prepared[shape] = adapter.prepare(**job)
        tail = prepared[shape](seed)
        print(json.dumps(summary(tail) | {"version": importlib.metadata.version(adapter.VERSION)}), file=replies, flush=True)


def summary(tail: Any) -> dict[str, Any]:
    """Sums over replicas of the tail counts (replicas, levels) and of their squares, and the replicas far from the rest."""
    import numpy as np

    customers = tail.sum(axis=1)
    distance = np.abs(customers - np.median(customers))
    return {"replicas": len(tail), "sums": tail.sum(axis=0).tolist(), "squares": (tail.astype(float) ** 2).sum(axis=0).tolist(),
            "customers": int(customers.sum()), "stray": int((distance > FAR * 1.4826 * max(1.0, float(np.median(distance)))).sum())}


if __name__ == "__main__":
    main(*sys.argv[1:])
