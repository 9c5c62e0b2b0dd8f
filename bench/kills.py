"""Kill a study of two processes at random moments, again and again, and compare what it ends with with an undisturbed run.

python bench/kills.py --kills 20 --out bench/results/kills.md
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import flags, provenance, report

STUDY = ["study", "--d", "2", "--beta", "1", "--t-end", "10", "--num-times", "41", "--devices", "1", "--seed", "7"]


def begin(words: list[str]) -> list[subprocess.Popen[bytes]]:
    """The two processes of one run."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = "import sys; from jaxq.cli import main; sys.exit(main(sys.argv[1:]))"
    return [subprocess.Popen([sys.executable, "-c", program, *words, "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2",
                              "--process-id", str(k)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for k in range(2)]


def end(runs: list[subprocess.Popen[bytes]]) -> None:
    """Wait for an undisturbed end, or say how it ended."""
    for run in runs:
        said = run.communicate(timeout=600)[1].decode()
        if run.returncode:
            raise SystemExit(f"a run ended with status {run.returncode}: {said}")


def kill(runs: list[subprocess.Popen[bytes]], moment: float, victims: list[int]) -> bool:
    """Whether the run was still there to be killed at this moment: first the victims, then, when it has noticed, the rest."""
    time.sleep(moment)
    alive = runs[0].poll() is None
    for k in victims:
        runs[k].send_signal(signal.SIGKILL)
    for run in runs:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.communicate(timeout=0.5)
        run.kill()
        run.communicate()
    return alive


def differences(one: Path, other: Path) -> list[str]:
    """Names of the data variables that are not the same, byte for byte."""
    import jaxq

    mine, its = jaxq.load(one), jaxq.load(other)
    return [name for name in {*mine.variables, *its.variables}
            if name not in mine or name not in its or mine[name].values.tobytes() != its[name].values.tobytes()]


def main() -> None:
    parser = flags(__doc__, rounds=None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    sizes = ["--n", "1000", "10000", *([] if options.quick else ["100000"]), "--replicas", "64" if options.quick else "400"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [*STUDY, *sizes, "--compile-cache", str(folder / "cache")]
        began = time.monotonic()
        end(begin([*words, "--out-dir", str(folder / "whole")]))
        whole = time.monotonic() - began
        checkpoint, kills, done = folder / "study.npz", [], []
        words += ["--out-dir", str(folder / "killed"), "--checkpoint", str(checkpoint), "--every", "0s", "--resume"]
        while len(kills) < options.kills:
            moment = chance.uniform(0.0, whole)
            victims = chance.choice([[0], [1], [0, 1]])
            if kill(begin(words), moment, victims):
                kills.append(moment)
                done.append(checkpoint.stat().st_size if checkpoint.exists() else 0)
            else:  # it had finished: from the start again
                checkpoint.unlink()
        end(begin(words))
        wrong = differences(folder / "whole" / "study.nc", folder / "killed" / "study.nc")
        left = sorted(path.name for path in folder.iterdir() if "partial" in path.name)
    lines = ["# Killed and resumed", "", provenance(f"python bench/kills.py --kills {options.kills}"), "",
             f"`jaxq {' '.join([*STUDY, *sizes])}` on two processes, undisturbed in {whole:.1f} s; then killed (SIGKILL to one "
             "of them or both) at random moments and resumed each time, with a checkpoint after every call of the engine.", "",
             "| kill | after, s | checkpoint, bytes |", "|---|---|---|",
             *(f"| {k + 1} | {moment:.2f} | {size} |" for k, (moment, size) in enumerate(zip(kills, done, strict=True))), "",
             f"Data variables that differ from the undisturbed run: {', '.join(wrong) or 'none'}."
             + (f" Left behind: {', '.join(left)}, by kills during a write." if left else "")]
    report(lines, options.out)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
