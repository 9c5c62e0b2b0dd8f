"""The command line: one sub-command per verb, models as sub-commands, one sentence for every mistake."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import flags, tables

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jaxq`; returns the exit status: 0, 2 after bad input (one sentence on stderr), 130 after an interrupt."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["study"] and words[1:2] and words[1].startswith("-") and words[1] not in ("-h", "--help"):
        words.insert(1, "supermarket")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)  # ours; the libraries' deprecations are no news to a user
            warnings.showwarning = lambda message, *rest, **more: print(f"jaxq: warning: {message}", file=sys.stderr)
            options = flags.parse(_parser(), words)
            options.command = "jaxq " + " ".join(words)
            _set_up(options)
            options.run(options)
            sys.stdout.flush()
    except ValueError as error:
        if "--debug" in words:
            raise
        print(f"jaxq: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt as error:
        print(f"jaxq: interrupted{error if isinstance(error, _Kept) else ''}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of stdout left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class _Kept(KeyboardInterrupt):
    """An interrupt after which something was written; the text says what."""


def _parser() -> flags.Parser:
    from . import __version__

    top = flags.Parser(prog="jaxq", description="Parallel queues in heavy traffic: exact ensembles, mean field, limit, scaling.",
                       epilog="Rates are per server and per mean service time; times are in mean service times.\n\n"
                              "example:  jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 "
                              "--out-dir study")
    top.add_argument("--version", action="version", version=f"jaxq {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def models(verb: str, text: str) -> Any:
        return verbs.add_parser(verb, help=text).add_subparsers(dest="model", metavar="MODEL", required=True)

    simulate = models("simulate", "exact ensemble of a model on a time grid")
    for name, text, add, build, example in (
            ("supermarket", "join the shortest of d queues, exact chain", flags.supermarket_flags, flags.supermarket,
             "--n 1000 --d 2 --beta 1 --alpha 0.5"),
            ("pull", "servers that become idle send a message to a router", flags.pull_flags, flags.pull,
             "--n 1000 --routers 2 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5 --buffers 1 3"),
            ("two-queues", "two queues, join the shorter", flags.two_queues_flags, flags.two_queues,
             "--capacity 5 --arrival-rate 1.6")):
        leaf = flags.leaf(simulate, name, text, _simulate, build, f"jaxq simulate {name} {example} --t-end 10 --replicas 1000")
        add(leaf)
        flags.time_flags(leaf)
        flags.run_flags(leaf)
        leaf.add_argument("--save", choices=("moments", "paths"), default="moments", help="paths: every path in --out too")
    leaf = flags.leaf(models("ode", "mean-field ODE of a model"), "supermarket", "mean field of join the shortest of d queues",
                      _ode, flags.supermarket, "jaxq ode supermarket --d 2 --arrival-rate 0.9 --t-end 10 --num-times 11")
    flags.supermarket_flags(leaf, n_required=False)
    flags.time_flags(leaf)
    leaf = flags.leaf(verbs, "limit", "linear heavy-traffic system of T = eta (1 - S)", _limit, None,
                      "jaxq limit --d 2 --initial 1 3 7 15 --t-end 5 --num-times 6 --exact")
    leaf.add_argument("--d", type=flags.integer, required=True, help="servers a customer samples")
    leaf.add_argument("--initial", type=flags.number, nargs="+", required=True, metavar="T", help="T_1, T_2, ... at time 0")
    leaf.add_argument("--above", choices=("fixed-point", "zero"), default="fixed-point",
                      help="levels above the last given: T_{i+1} = (d+1) T_i - d T_{i-1} (default), or zero")
    leaf.add_argument("--exact", action="store_true", help="by the Green function instead of the ODE")
    flags.time_flags(leaf)
    study = models("study", "T^n against its limit at growing n; PULL against n and routers")
    leaf = flags.leaf(study, "supermarket",
                      "T^n = eta_n (1 - S^n) against its limit at growing n", _study, None,
                      "jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 --out-dir study")
    leaf.add_argument("--d", type=flags.integer, required=True, help="servers a customer samples")
    leaf.add_argument("--beta", type=flags.number, required=True, help="lambda_n = 1 - beta n^-alpha")
    leaf.add_argument("--alpha", type=flags.number, default=0.5, help="default 0.5")
    leaf.add_argument("--n", type=flags.integer, nargs="+", required=True, help="numbers of servers, increasing")
    leaf.add_argument("--start", metavar="FILE|empty|fixed-point", help="T profile at time 0: a file of numbers, or a name "
                      "(default: the finite-eta fixed point plus 2 beta on levels 1..3)")
    leaf.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    leaf.add_argument("--out-dir", metavar="DIR", help="write study.nc, study.csv and study.png there")
    flags.time_flags(leaf, num_times=101)
    flags.run_flags(leaf)
    leaf = flags.leaf(study, "pull", "steady state of PULL against n and the number of routers", _study_pull, None,
                      "jaxq study pull --n 100 1000 --routers 1 2 5 --arrival-rate 0.9 --replicas 64 --out-dir pull")
    flags.pull_flags(leaf, many=True)
    leaf.add_argument("--warmup", type=flags.number, help="time before the window (default: from the load and n)")
    leaf.add_argument("--horizon", type=flags.number, help="length of the window (default: 4 warm-ups)")
    leaf.add_argument("--out-dir", metavar="DIR", help="write pull.nc, pull.csv and pull.png there")
    flags.run_flags(leaf)
    exact = models("exact", "exact solution of a small system")
    leaf = flags.leaf(exact, "two-queues", "two queues, join the shorter, stationary", _exact_two_queues, None,
                      "jaxq exact two-queues --capacity 5 --arrival-rate 1.6 --service-rates 1 1")
    flags.two_queues_flags(leaf)
    for name, add, build, example in (
            ("supermarket", flags.supermarket_flags, flags.supermarket, "--n 3 --d 2 --arrival-rate 0.8 --buffer 30"),
            ("pull", flags.pull_flags, flags.pull, "--n 4 --routers 1 --arrival-rate 0.8 --buffers 3")):
        leaf = flags.leaf(exact, name, "stationary law by solving the chain; with --t-end the law at those times from empty",
                          _exact, build, f"jaxq exact {name} {example}")
        add(leaf)
        flags.time_flags(leaf, required=False)
    return top


# commands

def _simulate(options: argparse.Namespace) -> None:
    from .simulate import Interrupted, simulate

    model = options.build(options)
    try:
        result = simulate(model, flags.times(options), options.seed, replicas=options.replicas, save=options.save,
                          progress=options.progress)
    except Interrupted as error:
        if error.partial is not None and options.out:
            error.partial.save(options.out)
            raise _Kept(f"; the {error.partial.times.size} times reached are in {options.out}") from None
        raise
    if options.plot:
        from . import plot

        plot.save(plot.tails(result, _mean_field_of(model, result.times[-1])), options.plot)
    _write(options, result)
    _show(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail_mean,
                                                result.mean_queue_length_stderr, result.tail_stderr))


def _mean_field_of(model: Any, t_end: float) -> Any:
    """The curve to draw beside a simulation: the supermarket model's own mean field."""
    from .mean_field import mean_field
    from .models.supermarket import Supermarket

    return mean_field(model, np.linspace(0, t_end, 200)) if isinstance(model, Supermarket) and t_end > 0 else None


def _ode(options: argparse.Namespace) -> None:
    from .mean_field import mean_field

    result = mean_field(options.build(options), flags.times(options))
    if options.plot:
        from . import plot

        plot.save(plot.curves(result.times, result.tail, "$S_{}$", "fraction of servers with at least $i$ customers"), options.plot)
    _write(options, result)
    _show(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail)
          + f"\ntruncation error {result.truncation_error:.1e}")


def _limit(options: argparse.Namespace) -> None:
    from . import heavy_traffic

    result = heavy_traffic.limit(flags.times(options), options.initial, options.d, above=options.above,
                                 method="exact" if options.exact else "ode")
    if options.plot:
        from . import plot

        plot.save(plot.curves(result.times, result.T, "$T_{}$", r"$T_i = \eta\,(1 - S_i)$"), options.plot)
    _write(options, result)
    header = ["time", *(f"T_{i + 1}" for i in range(result.T.shape[1]))]
    _show(options, result, lambda: tables.table(header, [[t, *row] for t, row in zip(result.times, result.T, strict=True)])
          + f"\ntruncation error {result.truncation_error:.1e}")


def _study(options: argparse.Namespace) -> None:
    from . import plot
    from .simulate import Interrupted
    from .study import make_folder, scaling_study

    start = options.start
    if start is not None and start not in ("empty", "fixed-point"):
        start = flags.numbers_in(start)
    folder = None if options.out_dir is None else make_folder(options.out_dir)
    try:
        result = scaling_study(options.d, options.beta, options.alpha, n=options.n, t_end=options.t_end,
                               num_times=options.num_times, replicas=options.replicas, key=options.seed, start=start,
                               replacement=not options.no_replacement, out_dir=folder, progress=options.progress)
    except Interrupted:
        raise _Kept(f"; the sizes finished are in {folder}" if folder else "") from None
    if options.plot or folder:
        plot.save(plot.study(result), options.plot or Path(folder or ".") / "study.png")
    _write(options, result)

    def text() -> str:
        rows = [[row["n"], row["eta"], row["arrival_rate"], tables.pm(row["bias"], row["bias_stderr"]), row["bias_finite"],
                 tables.pm(row["fluctuation"], row["fluctuation_stderr"])] for row in result.rows]
        table = tables.table(["n", "eta", "lambda", "bias", "finite-eta bias", "fluctuation"], rows)
        if result.slopes is None:
            return table
        bias, spread = result.slopes["bias"], result.slopes["fluctuation"]
        return (f"{table}\nslope of ln bias in ln n:        {tables.pm(bias['slope'], bias['stderr'])}, finite-eta system "
                f"{bias['finite_eta']:.4f}, asymptotically {bias['asymptotic']:g}"
                f"\nslope of ln fluctuation in ln n: {tables.pm(spread['slope'], spread['stderr'])}, "
                f"predicted {spread['predicted']:g}"
                + (f"\nstudy.nc, study.csv and study.png are in {folder}" if folder else "\n--out-dir DIR keeps data and figure"))

    _show(options, result, text)


def _study_pull(options: argparse.Namespace) -> None:
    from . import plot
    from .pull_study import pull_study
    from .study import make_folder

    folder = None if options.out_dir is None else make_folder(options.out_dir)
    result = pull_study(flags.pools(options), options.arrival_rate, n=options.n, routers=options.routers, replicas=options.replicas,
                        key=options.seed, messages=options.messages, warmup=options.warmup, horizon=options.horizon,
                        progress=options.progress)
    if folder:
        result.save(folder / "pull.nc")
        result.save_csv(folder / "pull.csv")
    if options.plot or folder:
        plot.save(plot.pull(result), options.plot or Path(folder or ".") / "pull.png")
    _write(options, result)

    def text() -> str:
        names = ("p_wait", "p_block", "messages_per_customer", "mean_response_time")
        rows = [[n, r, *(tables.pm(getattr(result, name)[i, j], getattr(result, f"{name}_stderr")[i, j]) for name in names)]
                for i, n in enumerate(result.n) for j, r in enumerate(result.routers)]
        return tables.table(["n", "routers", "P(wait)", "P(block)", "messages/customer", "response time"], rows)

    _show(options, result, text)


def _exact_two_queues(options: argparse.Namespace) -> None:
    from . import exact

    _no_plot(options)
    result = exact.two_queues(options.capacity, options.arrival_rate, tuple(options.service_rates))
    _write(options, result)
    _show(options, result, lambda: f"blocking       {result.blocking:.12g}\nmean customers {result.mean_customers:.12g}\n"
          f"P(both empty)  {result.p_empty:.12g}\n" + tables.table(["k", "P(queue 1 empty, queue 2 = k)"],
                                                                  [[k, p] for k, p in enumerate(result.p_0k) if p > 0]))


def _exact(options: argparse.Namespace) -> None:
    from . import exact

    _no_plot(options)
    if options.t_end is None:
        result: Any = exact.stationary(options.build(options))
        _show(options, result, lambda: f"mean queue length {result.mean_queue_length:.12g}\n" + tables.levels(result.tail))
    else:
        result = exact.transient(options.build(options), flags.times(options))
        _show(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail))
    _write(options, result)


# around them

def _no_plot(options: argparse.Namespace) -> None:
    if options.plot:
        raise ValueError(f"--plot has no figure for an exact solution; got {options.plot!r}; use --out or --json")


def _set_up(options: argparse.Namespace) -> None:
    """What must happen before JAX starts, and refusals that should not wait for a long run."""
    for path in (options.out, options.plot):
        if path is not None:
            _check_file(path)
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.devices is not None and options.devices < 1:
        raise ValueError(f"--devices must be an integer at least 1; got {options.devices}")
    jax.config.update("jax_num_cpu_devices", options.devices or (cores if options.replicas else 1))
    if options.compile_cache:
        jax.config.update("jax_compilation_cache_dir", options.compile_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _check_file(path: str) -> None:
    target = Path(path)
    folder_ok = target.parent.is_dir() and os.access(target.parent, os.W_OK)
    if target.is_dir() or not folder_ok or (target.exists() and not os.access(target, os.W_OK)):
        raise ValueError(f"output needs a file in an existing folder that can be written; got {path!r}; choose another path")


def _write(options: argparse.Namespace, result: Any) -> None:
    result.attributes["command"] = options.command
    if options.out:
        result.save(options.out)


def _show(options: argparse.Namespace, result: Any, text: Callable[[], str]) -> None:
    print(json.dumps(result.to_json()) if options.json else text())
