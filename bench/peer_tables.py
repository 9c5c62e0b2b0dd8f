"""The tables of `peers.py`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from peer_process import Tally
from spread import digits, spread
from time_to_precision import ARRIVAL_RATE, ERRORS, WARMUP, Contest, N, package_seconds

DOUBT = 4.5  # standard errors from the exact tails at which a contender is said to differ


def _speed(values: Sequence[float]) -> str:
    """Events per second in a unit that fits."""
    scale, unit = next((scale, unit) for scale, unit in ((1e6, " M"), (1e3, " k"), (1, "")) if statistics.median(values) >= scale)
    return spread(values, scale) + unit


def rates(contenders: Mapping[str, Any], entrants: Mapping[str, Any], failed: Mapping[str, str]) -> list[str]:
    """Real events per second, and how many times as fast jaxq is."""
    lines = ["## Events per second", "",
             "Arrivals and services that happen, per second on all cores together, median of the rounds (least-most); "
             "imports and compilation apart. How many times as fast jaxq is: it runs just before each turn of the other, on "
             "the job from empty to t = 10 and on the one to t = 100, where its start matters less. C runs long, near the fixed "
             "point: compare it with the latter. "
             "Packages marked with another job were cut to a few seconds.", "",
             "| | job | events/s | jaxq (t = 10) / it | jaxq (t = 100) / it |", "|---|---|---|---|---|"]
    for name, contender in contenders.items():
        job = "long, one system a core" if name.startswith("C ") else "1000 replicas to t = 100"
        if name in entrants:
            job = f"{entrants[name].job.replicas} replicas to t = {entrants[name].job.t:g}"
        ratios = [spread(column) for column in zip(*contender.ratios, strict=True)] or ["", ""]
        lines.append(f"| {name} | {job} | {_speed(contender.rates)} | {ratios[0]} | {ratios[1]} |")
    return lines + [f"| {name} | did not run: {reason} | | | |" for name, reason in failed.items()]


def times(contest: Contest, contenders: Mapping[str, Any], entrants: Mapping[str, Any]) -> list[str]:
    """Seconds to a standard error of Q."""
    q = contest.said["mean_queue_length"]
    lines = ["## Time to a standard error of Q", "",
             f"Q is the mean queue length a server at n = {N}, lambda = {ARRIVAL_RATE}, in steady state; seconds from the start of "
             "the program, imports, compilation and warm-up included, on all cores. jaxq is the wall time of `jaxq stationary`, "
             f"128 replicas, and stops at {q['stderr']:.1g} (Q = {q['mean']:.5f} in the last round): its shortest window is "
             f"that good. Its control variates take a factor {contest.said['control_gain']:.3g} off the variance. All others need "
             f"a simulated time of {contest.variance.sigma2:.3g} / error^2 (asymptotic variance, measured to "
             f"{contest.variance.relative_error:.0%}) after a warm-up of {WARMUP:.0f} (ten relaxation times), for each replica "
             "where replicas advance together. 'by speed': from the rates above and the time to a first result; looking at Q is "
             "left out, in favour of C and the packages.", "",
             "| | to 1e-3 | to 1e-4 |", "|---|---|---|",
             f"| jaxq | {spread(contest.seconds['jaxq', ERRORS[0]])} s measured | {spread(contest.seconds['jaxq', ERRORS[1]])} s "
             "measured |"]
    rate = {name: statistics.median(contender.rates) for name, contender in contenders.items()}
    plain = contest.seconds["jaxq plain", ERRORS[0]]
    later = statistics.median(plain) + package_seconds(0.0, rate["jaxq, t = 100"], ERRORS[1], contest.variance.sigma2, 0)
    lines.append(f"| jaxq without control variates | {spread(plain)} s measured | {later:.0f} s by speed |")
    for name in contenders:
        if name.startswith("C "):
            measured = [contest.c_build + seconds for seconds in contest.seconds[name, ERRORS[0]]]
            later = package_seconds(contest.c_build, rate[name], ERRORS[1], contest.variance.sigma2, contest.processes)
            lines.append(f"| {name} | {spread(measured)} s measured, {contest.c_build:.1f} of it cc | {later:.0f} s by speed |")
    for name, entrant in entrants.items():
        if name != "jaxq":
            first = max(0.0, entrant.first - statistics.median(contenders[name].seconds))
            at_once = entrant.job.replicas if entrant.peer.adapter.TOGETHER else contest.processes
            cells = [_duration(package_seconds(first, rate[name], error, contest.variance.sigma2, at_once)) for error in ERRORS]
            lines.append(f"| {name} | {cells[0]} by speed, {first:.1f} s of it to start | {cells[1]} by speed |")
    return lines


def _duration(seconds: float) -> str:
    return f"{digits(seconds)} s" if seconds < 7200 else f"{digits(seconds / 3600)} h"


def tails(entrants: Mapping[str, Any], reference: Tally, t: float, exact: list[float]) -> list[str]:
    """How far the tails of each are from exact ones; `reference`: jaxq's at n = 1000."""
    lines = ["## Tails", "",
             "Largest distance over levels, in standard errors: at n = 4 from the exact chain (matrix exponential), at n = 1000 "
             f"from jaxq's mean over {reference.replicas} replicas, both at t = 10 from empty. Stray: replicas whose customers are "
             f"more than 8 robust standard deviations from the rest. Beyond {DOUBT:g} errors, or with strays, it is said.", "",
             "| | replicas at n = 4 | from exact | replicas at n = 1000 | from jaxq | stray | |", "|---|---|---|---|---|---|---|"]
    ours = entrants["jaxq"]
    n, spreads = ours.small.n, [spread for _, spread in ours.peer.tallies[ours.small].tails()]
    means, deviations = zip(*reference.tails(), strict=True)
    errors = [deviation / reference.replicas**0.5 for deviation in deviations]
    for name, entrant in entrants.items():
        small, large = entrant.peer.tallies[entrant.small], entrant.peer.tallies[entrant.job]
        far = [small.deviation([n * value for value in exact], [0.0] * len(exact), spreads)]
        if name != "jaxq" and entrant.job.t == t:
            far.append(large.deviation(list(means), errors, list(deviations)))
        words = "differs" if max(far) > DOUBT else "agrees"
        if large.stray:
            words += f", but {large.stray} of {large.replicas} replicas went astray and nothing said so"
        cells = [name, small.replicas, f"{far[0]:.1f}", large.replicas, f"{far[1]:.1f}" if far[1:] else "", large.stray, words]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def setups(entrants: Mapping[str, Any]) -> list[str]:
    """How each was set up."""
    peers = {name: entrant.peer for name, entrant in entrants.items()}
    return ["## Set up", "", *(f"- {name} {peer.version}: {peer.adapter.SETUP}." for name, peer in peers.items())]
