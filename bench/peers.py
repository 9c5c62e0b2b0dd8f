"""jaxq beside the packages that pip installs and beside C, on one system, in one run, as Markdown tables.

    pip install -e '.[peers]'
    python bench/peers.py [--rounds 5] [--quick] [--only NAME ...] [--python NAME=PATH ...] [--out bench/results/peers.md]

The supermarket model, d = 2 with replacement, lambda = 0.9, from empty. Every contender has all cores: a process a core where it
is single-threaded (bench/adapters says how each is set up), one device a core for jaxq. They take turns, round after
round, so that a machine whose speed drifts treats them alike. A rate counts arrivals and services that happen; ticks in which
nothing happens are not counted. Imports and compilation are apart in the first table and count in the second, the time to a
standard error of the mean queue length in steady state. Each contender's tails are compared with exact ones. `--python` names
the interpreter that has a package, where it is not this one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import peer_tables
from peer_process import Job, Peer
from provenance import CORES, flags, provenance, report
from throughput import build, compiler
from time_to_precision import Contest

SAME = Job(n=1000, arrival_rate=0.9, levels=8, t=10.0, replicas=1000)
LONG = replace(SAME, t=100.0)
SMALL = Job(n=4, arrival_rate=0.9, levels=14, t=10.0, replicas=20_000)  # its law is known exactly

#: What each runs: the job at n = 1000, cut to a few seconds where it is slow, and the replicas of the small system.
JOBS = {"jaxq": (SAME, 20_000), "numba": (SAME, 20_000), "gillespy2": (SAME, 20_000), "jsmfsb": (SAME, 20_000),
        "crn_jax": (SAME, 20_000), "stochastix": (SAME, 20_000), "rebop": (replace(SAME, replicas=400), 4000),
        "simpy": (replace(SAME, replicas=2 * CORES), 2000), "ciw": (replace(SAME, t=1.0, replicas=CORES), 400)}
FORMS = ("branching", "plain", "servers", "occupancy")


@dataclass
class Contender:
    """A function that gives the seconds and the real events of one round, and what came of the rounds."""

    measure: Callable[[], tuple[float, float]]
    rates: list[float] = field(default_factory=list)
    ratios: list[tuple[float, ...]] = field(default_factory=list)  # of jaxq's rates just before, to its own
    seconds: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        seconds, events = self.measure()
        self.rates.append(events / seconds)
        self.seconds.append(seconds)

    def compete(self, ours: list[Contender]) -> None:
        """A turn of each of `ours`, then one of this."""
        for other in ours:
            other.take_turn()
        self.take_turn()
        self.ratios.append(tuple(other.rates[-1] / self.rates[-1] for other in ours))


def c_round(program: str, form: str, seconds: float) -> tuple[float, float]:
    """Seconds and real events of C in about so long, one process a core, near the fixed point; each times its own loop."""
    ticks = int(seconds * {"branching": 7e7, "plain": 1.5e8, "servers": 4e8, "occupancy": 7e8}[form])
    runs = [subprocess.Popen([program, form, str(SAME.n), str(SAME.arrival_rate), str(ticks), str(seed)], stdout=subprocess.PIPE,
                             text=True) for seed in range(CORES)]
    said = [run.communicate()[0].split() for run in runs]
    real = 2 * SAME.arrival_rate / (1 + SAME.arrival_rate)  # of all ticks: in steady state there are as many services as arrivals
    return 1.0, real * sum(float(words[4]) for words in said)


@dataclass
class Entrant:
    """A package that started: its processes, its jobs, and the seconds from the start of its processes to a first result."""

    peer: Peer
    job: Job
    small: Job
    first: float


def enter(name: str, python: str, quick: bool) -> Entrant:
    """Start a package, run its job once and the small system. Raises RuntimeError with what it said if it fails."""
    job, small = JOBS[name]
    share = 10 if quick and job.replicas >= 100 else 1
    entrant = Entrant(Peer(name, python), replace(job, replicas=job.replicas // share),
                      replace(SMALL, replicas=small // (10 if quick else 1)), 0.0)
    entrant.peer.run(entrant.job)
    entrant.first = time.perf_counter() - entrant.peer.started
    entrant.peer.run(entrant.small)
    return entrant


def main() -> None:
    options = arguments()
    import jaxq

    interpreters = dict(pair.split("=", 1) for pair in options.python)
    quick, entrants, failed = options.quick, {}, {}
    for name in JOBS:
        if name == "jaxq" or not options.only or name in options.only:
            try:
                entrants[name] = enter(name, interpreters.get(name, sys.executable), quick)
            except RuntimeError as error:
                failed[name] = str(error)
            print(f"{name}: {failed.get(name, 'ready')}", file=sys.stderr)
    ours = entrants["jaxq"].peer
    long, reference = replace(LONG, replicas=100 if quick else 1000), replace(SAME, replicas=2000 if quick else 50_000)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        program = build(folder)
        c_build = time.perf_counter() - began
        jaxqs = [Contender(lambda: ours.run(entrants["jaxq"].job)), Contender(lambda: ours.run(long))]
        contenders = {"jaxq": jaxqs[0], "jaxq, t = 100": jaxqs[1]}
        for name, entrant in entrants.items():
            if name != "jaxq":
                contenders[name] = Contender(lambda entrant=entrant: entrant.peer.run(entrant.job))
        for form in FORMS:
            contenders[f"C {form}"] = Contender(lambda form=form: c_round(program, form, 0.1 if quick else 0.8))
        ours.run(long)
        for turn in range(options.rounds):
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr)
            for contender in list(contenders.values())[len(jaxqs):]:
                contender.compete(jaxqs)
        ours.run(reference)
        for entrant in entrants.values():
            entrant.peer.close()
        print("time to a standard error", file=sys.stderr)
        contest = Contest(program, c_build, FORMS, replicas=64 if quick else 512)
        for turn in range(1 if quick else options.rounds):
            contest.round(turn)
    model = jaxq.Supermarket(SMALL.n, 2, SMALL.arrival_rate, buffer=SMALL.levels)
    exact = jaxq.exact.transient(model, [SMALL.t]).tail[-1].tolist()
    versions = [f"{entrant.peer.adapter.VERSION} {entrant.peer.version}" for name, entrant in entrants.items() if name != "jaxq"]
    command = f"python bench/peers.py --rounds {options.rounds}" + (" --quick" if quick else "")
    report(["# Peers", "", provenance(command, *versions, compiler()), "",
            *peer_tables.rates(contenders, entrants, failed), "", *peer_tables.times(contest, contenders, entrants), "",
            *peer_tables.tails(entrants, ours.tallies[reference], SAME.t, exact), "",
            *peer_tables.setups(entrants)], options.out)


def arguments() -> argparse.Namespace:
    parser = flags(__doc__)
    parser.add_argument("--only", nargs="+", default=[], choices=list(JOBS), help="these beside jaxq and C")
    parser.add_argument("--python", nargs="+", default=[], metavar="NAME=PATH", help="interpreter that has a package")
    return parser.parse_args()


if __name__ == "__main__":
    main()
