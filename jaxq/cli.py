"""The command line: one sub-command per verb, models as sub-commands, one sentence for every mistake."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from . import _check, commands, commands_bench, commands_steady, flags, flags_graph, hosts

EXIT_LOST = EXIT_FAILED = 1
EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130
_MOST_DEVICES = 1024

#: The models that can be simulated: name, what it is, its flags, how they make it, an example of them.
MODELS = (
    ("supermarket", "join the shortest of d queues, exact chain", flags.supermarket_flags, flags.supermarket,
     "--n 1000 --d 2 --beta 1 --alpha 0.5"),
    ("graph", "join the shortest of d neighbours on a graph, server by server", flags_graph.graph_flags, flags_graph.graph,
     "--graph ring --n 100 --d 2 --arrival-rate 0.7"),
    ("pull", "servers that become idle send a message to a router", flags.pull_flags, flags.pull,
     "--n 1000 --routers 2 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5 --buffers 1 3"),
    ("two-queues", "two queues, join the shorter", flags.two_queues_flags, flags.two_queues, "--capacity 5 --arrival-rate 1.6"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jaxq`; returns the exit status: 0, 2 after bad input (one sentence on stderr), 130 after an interrupt, 1 if another
    process of the run was lost or the run failed."""
    status = 1
    try:
        status = _main(list(sys.argv[1:] if argv is None else argv))
    finally:
        hosts.leave(status)
    return status


def _main(words: list[str]) -> int:
    if words[:1] == ["study"] and words[1:2] and words[1].startswith("-") and words[1] not in ("-h", "--help"):
        words.insert(1, "supermarket")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)  # ours; the libraries' deprecations are no news to a user
            warnings.showwarning = lambda message, *rest, **more: _say(f"warning: {message}")
            options = flags.parse(_parser(), words)
            options.command = "jaxq " + " ".join(words)
            _set_up(options)
            options.run(options)
            sys.stdout.flush()
    except ValueError as error:
        if "--debug" in words:
            raise
        _say(f"error: {' '.join(str(error).split())}")
        return EXIT_BAD_INPUT
    except hosts.LostError as error:
        print(f"jaxq: error: {error}", file=sys.stderr)
        return EXIT_LOST
    except KeyboardInterrupt as error:
        _say(f"interrupted{error if isinstance(error, commands.Kept) else ''}")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of stdout left, as `head` does
        commands.mute()
    except Exception as error:  # a machine without memory, or a fault of ours
        if "--debug" in words:
            raise
        _say(f"error: the run failed ({type(error).__name__}: {_check.short(str(error), 250)}); if it is not the machine's memory "
             "or disk, please report what --debug shows")
        return EXIT_FAILED
    return 0


def _say(text: str) -> None:
    """A line on stderr, once where several processes have it to say."""
    if hosts.first():
        print(f"jaxq: {text}", file=sys.stderr)


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
    for name, text, add, build, example in MODELS:
        leaf = flags.leaf(simulate, name, text, commands.simulate, build,
                          f"jaxq simulate {name} {example} --t-end 10 --replicas 1000")
        add(leaf)
        flags.time_flags(leaf)
        flags.run_flags(leaf)
        flags.algorithm_flags(leaf)
        flags.checkpoint_flags(leaf)
        leaf.add_argument("--kernel", action="store_true", help="on a GPU or TPU: many ticks in one launch, where the model can")
        leaf.add_argument("--save", choices=("moments", "paths"), default="moments", help="paths: every path in --out too")
    steady = models("stationary", "steady state of a model, with confidence intervals")
    for name, text, add, build, example in MODELS:
        leaf = flags.leaf(steady, name, text, commands_steady.stationary, build, f"jaxq stationary {name} {example}")
        add(leaf)
        flags.run_flags(leaf, replicas=256)
        flags.algorithm_flags(leaf)
        flags.checkpoint_flags(leaf)
        leaf.add_argument("--rel-error", type=flags.number,
                          help="stop when stderr / mean of the mean queue length is at most this (default 0.005)")
        leaf.add_argument("--warmup", type=flags.number, help="time left out (default: from theory, or from two starts that meet)")
        leaf.add_argument("--horizon", type=flags.number, help="length of the window instead of --rel-error")
        leaf.add_argument("--max-events", type=flags.number, default=1e11, help="ticks at which to end (default 1e11)")
    leaf = flags.leaf(models("ode", "mean-field ODE of a model"), "supermarket", "mean field of join the shortest of d queues",
                      commands.ode, flags.supermarket, "jaxq ode supermarket --d 2 --arrival-rate 0.9 --t-end 10 --num-times 11")
    flags.supermarket_flags(leaf, n_required=False)
    flags.time_flags(leaf)
    theory = models("meanfield", "fixed point of the mean field and its 1/n correction")
    for name, add, build, example in (
            ("supermarket", flags.supermarket_flags, flags.supermarket, "--d 2 --arrival-rate 0.9 --n 100"),
            ("pull", flags.pull_flags, flags.pull,
             "--n 100 --routers 1 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5")):
        leaf = flags.leaf(theory, name, "steady state at n = infinity, and the constant V of its 1/n term",
                          commands_steady.meanfield, build, f"jaxq meanfield {name} {example}")
        add(leaf)
    leaf = flags.leaf(verbs, "limit", "linear heavy-traffic system of T = eta (1 - S)", commands.limit, None,
                      "jaxq limit --d 2 --initial 1 3 7 15 --t-end 5 --num-times 6 --exact")
    leaf.add_argument("--d", type=flags.integer, required=True, help="servers a customer samples")
    leaf.add_argument("--initial", type=flags.number, nargs="+", required=True, metavar="T", help="T_1, T_2, ... at time 0")
    leaf.add_argument("--above", choices=("fixed-point", "zero"), default="fixed-point",
                      help="levels above the last given: T_{i+1} = (d+1) T_i - d T_{i-1} (default), or zero")
    leaf.add_argument("--exact", action="store_true", help="by the Green function instead of the ODE")
    flags.time_flags(leaf)
    study = models("study", "T^n against its limit at growing n; PULL against n and routers")
    leaf = flags.leaf(study, "supermarket",
                      "T^n = eta_n (1 - S^n) against its limit at growing n", commands.study, None,
                      "jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 --out-dir study")
    leaf.add_argument("--d", type=flags.integer, required=True, help="servers a customer samples")
    leaf.add_argument("--beta", type=flags.number, required=True, help="lambda_n = 1 - beta n^-alpha")
    leaf.add_argument("--alpha", type=flags.number, default=0.5, help="default 0.5")
    leaf.add_argument("--n", type=flags.integer, nargs="+", required=True, help="numbers of servers, increasing")
    leaf.add_argument("--start", metavar="FILE|empty|fixed-point", help="T profile at time 0: a file of numbers, or a name "
                      "(default: the finite-eta fixed point plus 2 beta on levels 1..3)")
    leaf.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    flags.algorithm_flags(leaf)
    leaf.add_argument("--out-dir", metavar="DIR", help="write study.nc, study.csv and study.png there")
    flags.time_flags(leaf, num_times=101)
    flags.run_flags(leaf)
    flags.checkpoint_flags(leaf)
    leaf = flags.leaf(study, "pull", "steady state of PULL against n and the number of routers", commands.study_pull, None,
                      "jaxq study pull --n 100 1000 --routers 1 2 5 --arrival-rate 0.9 --replicas 64 --out-dir pull")
    flags.pull_flags(leaf, many=True)
    leaf.add_argument("--warmup", type=flags.number, help="time before the window (default: 10 relaxation times)")
    leaf.add_argument("--horizon", type=flags.number, help="length of the window (default: 4 warm-ups)")
    leaf.add_argument("--out-dir", metavar="DIR", help="write pull.nc, pull.csv and pull.png there")
    flags.run_flags(leaf)
    flags.checkpoint_flags(leaf)
    leaf = flags.leaf(study, "graph", "gap to the mean field of the complete graph against the mean degree",
                      commands.study_graph, None,
                      "jaxq study graph --n 1000 --d 2 --arrival-rate 0.9 --degrees 2 4 8 16 --replicas 64 --out-dir graph")
    leaf.add_argument("--kinds", nargs="+", choices=("ring", "regular", "erdos-renyi"), default=["ring", "regular", "erdos-renyi"],
                      help="default: all three")
    leaf.add_argument("--degrees", type=flags.integer, nargs="+", required=True, help="mean degrees; even ones for a ring")
    leaf.add_argument("--n", type=flags.integer, required=True, help="number of vertices")
    leaf.add_argument("--d", type=flags.integer, required=True, help="servers a customer compares, its own included")
    leaf.add_argument("--arrival-rate", type=flags.number, required=True, metavar="LAMBDA", help="per vertex")
    leaf.add_argument("--graph-seed", type=flags.integer, default=0, help="of the random graphs (default 0)")
    leaf.add_argument("--replacement", action="store_true", help="draw neighbours with replacement, the own vertex among them")
    leaf.add_argument("--warmup", type=flags.number, help="time before the window (default: 4 relaxation times)")
    leaf.add_argument("--horizon", type=flags.number, help="length of the window (default: 8 relaxation times)")
    leaf.add_argument("--out-dir", metavar="DIR", help="write graph.nc, graph.csv and graph.png there")
    flags.run_flags(leaf)
    flags.checkpoint_flags(leaf)
    leaf = flags.leaf(verbs, "fit", "alpha and beta of lambda_n = 1 - beta n^-alpha from data at several n",
                      commands_steady.fit, None, "jaxq fit run1.nc run2.nc run3.nc --plot fit.png")
    leaf.add_argument("data", nargs="+", metavar="DATA", help="a study folder, results of stationary (.nc), or one CSV file with "
                      "columns n, level, value, stderr [, t] [, quantity]")
    leaf.add_argument("--prediction", choices=("refined", "fixed-point", "transient"),
                      help="default: refined, and transient for data at times")
    leaf.add_argument("--d", type=flags.integer, help="servers a customer samples (default: what the data say)")
    leaf.add_argument("--fit-d", action="store_true", help="try d = 1 to 8 and keep the best")
    leaf.add_argument("--no-replacement", action="store_true", help="d distinct servers (default: what the data say)")
    leaf.add_argument("--levels", type=flags.integer, help="levels of each result to fit (default: up to 6)")
    leaf.add_argument("--times", type=flags.number, nargs="+", help="saved times to fit (default: the last)")
    leaf.add_argument("--profile", action="store_true", help="also 95 %% intervals by profile likelihood")
    exact = models("exact", "exact solution of a small system")
    leaf = flags.leaf(exact, "two-queues", "two queues, join the shorter, stationary", commands.exact_two_queues, None,
                      "jaxq exact two-queues --capacity 5 --arrival-rate 1.6 --service-rates 1 1")
    flags.two_queues_flags(leaf)
    for name, add, build, example in (
            ("supermarket", flags.supermarket_flags, flags.supermarket, "--n 3 --d 2 --arrival-rate 0.8 --buffer 30"),
            ("pull", flags.pull_flags, flags.pull, "--n 4 --routers 1 --arrival-rate 0.8 --buffers 3")):
        leaf = flags.leaf(exact, name, "stationary law by solving the chain; with --t-end the law at those times from empty",
                          commands.exact, build, f"jaxq exact {name} {example}")
        add(leaf)
        flags.time_flags(leaf, required=False)
    leaf = flags.leaf(verbs, "bench", "speed on this machine, and whether the integers are the ones they must be",
                      commands_bench.bench, None, "jaxq bench")
    leaf.set_defaults(replicas=commands_bench.REPLICAS)
    leaf.add_argument("--seconds", type=flags.number, default=10.0, help="to measure, compilation apart (default 10)")
    leaf.add_argument("--devices", type=flags.integer, help="devices to use (default: all; on CPU one per core)")
    return top


def _set_up(options: argparse.Namespace) -> None:
    """What must happen before JAX starts, and refusals that should not wait for a long run."""
    explicit = (options.coordinator, options.num_processes, options.process_id)
    several = options.distributed or explicit != (None, None, None)
    if several:
        _check_explicit(options.distributed, explicit)
    else:
        _check_outputs(options)
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.devices is not None:
        _check.integer("--devices", options.devices, 1, _MOST_DEVICES)
    jax.config.update("jax_num_cpu_devices", options.devices or (cores if options.replicas else 1))
    if options.compile_cache is not None:
        from .study import make_folder

        make_folder(options.compile_cache, "compiled programs")
        jax.config.update("jax_compilation_cache_dir", options.compile_cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if several:
        _join(options, explicit)
    if options.devices is not None and jax.default_backend() != "cpu" and options.devices != jax.local_device_count():
        raise ValueError(f"--devices counts CPU devices; got {options.devices} where JAX uses {jax.local_device_count()} of kind "
                         f"{jax.default_backend()!r}; leave it out, or hide the others, as with CUDA_VISIBLE_DEVICES")


def _check_explicit(distributed: bool, explicit: tuple[str | None, int | None, int | None]) -> None:
    names = ("--coordinator", "--num-processes", "--process-id")
    given = [name for name, value in zip(names, explicit, strict=True) if value is not None]
    if len(given) != (0 if distributed else 3):
        raise ValueError("several processes need either --distributed, on a cluster that JAX knows, or all of --coordinator, "
                         f"--num-processes and --process-id; got {' '.join(['--distributed'] * distributed + given)}")


def _join(options: argparse.Namespace, explicit: tuple[str | None, int | None, int | None]) -> None:
    """Meet the other processes; all but the first fall silent."""
    hosts.start(*explicit)
    hosts.own_stdout()
    own = {"command": None, "process_id": None, "leaf": None, "run": None, "build": None}
    hosts.check_same("flags", repr(sorted((vars(options) | own).items(), key=str)).encode())
    hosts.first_does(lambda: _check_outputs(options))
    if not hosts.first():
        options.out = options.plot = options.out_dir = None
        options.progress = False


def _check_outputs(options: argparse.Namespace) -> None:
    given = {flag: _check.output("output", path) for flag, path in (
        ("--out", options.out), ("--plot", options.plot), ("--checkpoint", options.checkpoint)) if path is not None}
    if len({os.path.realpath(path) for path in given.values()}) < len(given):
        raise ValueError(f"{', '.join(given)} must be different files; got {' '.join(map(str, given.values()))}; rename one")
    if options.plot is not None:
        from .plot_style import check_ending

        check_ending(given["--plot"])
    if options.out_dir is not None:
        from .study import make_folder

        make_folder(options.out_dir)
