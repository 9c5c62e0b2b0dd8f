"""Several processes, on one machine or many, as one run: `jax.distributed`, arrays that span them, and who speaks.

Every process runs the same program with the same arguments and holds its share of the replicas. After each call of the engine
all of them have the same integers on the host, so that they take the same decisions; the first process alone writes and prints.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from . import _check

_GRACE, _LETTER = 5.0, 2048  # seconds that a failing process waits for the others to fail too; bytes of a value sent to all


class LostError(RuntimeError):
    """Another process of the run ended or could not be reached.

    Example::

        >>> issubclass(jaxq.hosts.LostError, RuntimeError)
        True
    """


def start(coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Join the other processes of this run; comes before any JAX computation, once, in every process.

    Args:
      coordinator: "HOST:PORT" of process 0, a free port there that the others can reach.
      num_processes, process_id: how many processes there are, and which of them this is, from 0.

    With no arguments Slurm, Kubernetes, Open MPI and TPU pods are found by JAX. `simulate` and the like then share their
    replicas among all devices of all processes, which must call them alike, and return the same result in each; the
    integers are those of one process. Raises ValueError where nothing is found, where the arguments do not fit together, or
    after a first JAX computation, and `LostError` where they cannot meet; one that waits for 5 minutes is ended by JAX.

    Example, the last of four processes numbered from 1::

        >>> jaxq.hosts.start("node1:4000", num_processes=4, process_id=4)
        Traceback (most recent call last):
        ValueError: process_id must be an integer at least 0 and at most 3; got 4; processes are numbered from 0
    """
    if len({value is None for value in (coordinator, num_processes, process_id)}) > 1:
        raise ValueError("several processes need coordinator, num_processes and process_id together, or none of them on a cluster "
                         f"that JAX knows; got {_check.shown(coordinator)}, {_check.shown(num_processes)} and "
                         f"{_check.shown(process_id)}")
    if coordinator is not None:
        host, _, port = str(coordinator).rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 2**16:
            raise ValueError(f"coordinator must be HOST:PORT with a port from 1 to 65535; got {_check.shown(coordinator)}")
        count = _check.integer("num_processes", num_processes, 1, 10**6)
        _check.integer("process_id", process_id, 0, count - 1, "processes are numbered from 0")
    jax.config.update("jax_enable_preemption_service", False)  # it only notes SIGTERM, by which schedulers end a job
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id,
                                   cluster_detection_method=None if coordinator is None else "deactivate")
    except ValueError as error:
        raise ValueError("no cluster was found that JAX knows (Slurm, Kubernetes, Open MPI, TPU pod); give coordinator, "
                         f"num_processes and process_id ({error})") from error
    except RuntimeError as error:
        if "before any JAX" in str(error) or "only be called once" in str(error):
            raise ValueError("hosts.start must come once and before any JAX computation; call it first of all") from None
        raise LostError(f"the processes could not meet: {_line(error)}") from error


def leave(status: int = 0) -> None:
    """Before a process that called `start` ends: wait for the others; after a failure (status not 0) for 5 seconds only, and then
    end with `status`, so that the others hear of it. Elsewhere it does nothing.

    Example::

        >>> jaxq.hosts.leave()
    """
    if not jax.distributed.is_initialized():
        return
    (waiting := threading.Thread(target=jax.distributed.shutdown, daemon=True)).start()
    waiting.join(None if status == 0 else _GRACE)
    if waiting.is_alive():
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)


def first() -> bool:
    """True in the process that writes and prints: the only one, or process 0.

    Example::

        >>> jaxq.hosts.first()
        True
    """
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def own_stdout() -> None:
    """Keep Python's stdout for the first process and for Python: what compiled code prints there (gloo does) goes nowhere."""
    sys.stdout.flush()
    kept = os.dup(1) if first() else os.open(os.devnull, os.O_WRONLY)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding)


def everyone(value: Any) -> list[Any]:
    """A small JSON value of every process, in their order, in every process."""
    if jax.process_count() == 1:
        return [value]
    letter = np.frombuffer(json.dumps(value).encode().ljust(_LETTER, b"\0"), np.uint8)
    return [json.loads(row.tobytes().rstrip(b"\0")) for row in _allgather(letter, tiled=False)]


def check_same(what: str, *arrays: Any) -> None:
    """Raise ValueError in every process if `arrays` are not the same in all of them."""
    digests = everyone(hashlib.blake2b(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest())
    if len(set(digests)) > 1:
        odd = next(k for k, other in enumerate(digests) if other != digests[0])
        raise ValueError(f"all processes of a run must have the same {what}; those of process {odd} differ from those of "
                         "process 0; start all with the same arguments on machines of one kind")


def first_does(action: Callable[[], Any]) -> None:
    """Let the first process do `action`; a ValueError there is raised in all."""
    refusal = ""
    try:
        if first():
            action()
    except ValueError as error:
        refusal = str(error)[: _LETTER // 4]
    if refusal := everyone(refusal)[0]:
        raise ValueError(refusal)


def from_first(data: bytes) -> bytes:
    """The bytes that the first process has, in every process."""
    if jax.process_count() == 1:
        return data
    size = everyone(len(data))[0]
    mine = np.frombuffer(data, np.uint8) if first() else np.zeros(size, np.uint8)
    return _collective("broadcast_one_to_all", mine).tobytes()


def spans(devices: Sequence[Any]) -> bool:
    """Whether an array on these devices is spread over processes. Raises ValueError for those of some processes only."""
    owners, me = {device.process_index for device in devices}, jax.process_index()
    if owners != {me} and owners != set(range(jax.process_count())):
        raise ValueError(f"devices must be some of this process, or some of every process; got those of {sorted(owners)} in {me}")
    return len(owners) > 1


def put(array: Any, sharding: Any) -> jax.Array:
    """A host array, the same in every process, on the devices of `sharding`."""
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    return jax.make_array_from_callback(np.shape(array), sharding, lambda index: np.asarray(array)[index])


def gather(tree: Any) -> Any:
    """Whole host arrays in every process from arrays on the devices of all."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if leaf.is_fully_addressable else _allgather(leaf, tiled=True), tree)


def _allgather(array: Any, *, tiled: bool) -> np.ndarray:
    return _collective("process_allgather", array, tiled=tiled)


def _collective(name: str, array: Any, **options: Any) -> np.ndarray:
    from jax.experimental import multihost_utils

    try:
        return np.asarray(getattr(multihost_utils, name)(array, **options))
    except (ValueError, RuntimeError) as error:
        raise LostError(f"another process of this run has ended or cannot be reached: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
