"""All commands of the command line: one sub-command per verb, models as sub-commands, an example in the help of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import commands, commands_bench, commands_info, commands_steady, flags_models
from .flags import Parser, algorithm_flags, debug_flag, leaf, output_flags, run_flags, time_flags
from .flags_values import integer, number

_SUPERMARKET = (flags_models.supermarket_flags, flags_models.supermarket)
_PULL = (flags_models.pull_flags, flags_models.pull)
_TWO_QUEUES = (flags_models.two_queues_flags, flags_models.two_queues)

#: The models that can be simulated: name, what it is, its flags, how they make it, an example of them.
MODELS: tuple[tuple[str, str, Callable[..., None], Callable[..., Any], str], ...] = (
    ("supermarket", "join the shortest of d queues, exact chain", *_SUPERMARKET, "--n 1000 --d 2 --beta 1 --alpha 0.5"),
    ("graph", "join the shortest of d neighbours on a graph, server by server", flags_models.graph_flags, flags_models.graph,
     "--graph ring --n 100 --d 2 --arrival-rate 0.7"),
    ("pull", "servers that become idle send a message to a router", *_PULL,
     "--n 1000 --routers 2 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5 --buffers 1 3"),
    ("two-queues", "two queues, join the shorter", *_TWO_QUEUES, "--capacity 5 --arrival-rate 1.6"),
)


def make_parser() -> Parser:
    """The parser of `jaxq`."""
    from . import __version__

    top = Parser(prog="jaxq", description="Parallel queues in heavy traffic: exact ensembles, mean field, limit, scaling.",
                 epilog="Rates are per server and per mean service time; times are in mean service times.\n\n"
                        "example:  jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 "
                        "--out-dir study")
    top.add_argument("--version", action="version", version=f"jaxq {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def models(verb: str, text: str, example: str) -> Any:
        told = f"Each model has its flags and their units: jaxq {verb} MODEL --help\n\nexample:  jaxq {verb} {example}"
        parser = verbs.add_parser(verb, help=text, description=text[0].upper() + text[1:] + ".", epilog=told)
        return parser.add_subparsers(dest="model", metavar="MODEL", required=True)

    _simulate(models("simulate", "exact ensemble of a model on a time grid",
                     "supermarket --n 1000 --d 2 --beta 1 --t-end 10 --replicas 1000"))
    _stationary(models("stationary", "steady state of a model, with confidence intervals",
                       "supermarket --n 1000 --d 2 --arrival-rate 0.9"))
    _ode(models("ode", "mean-field ODE of a model", "supermarket --d 2 --arrival-rate 0.9 --t-end 10"))
    _meanfield(models("meanfield", "fixed point of the mean field and its 1/n correction",
                      "supermarket --d 2 --arrival-rate 0.9 --n 100"))
    _limit(verbs)
    study = models("study", "T^n against its limit at growing n; PULL against n and routers; graphs against degree",
                   "--d 2 --beta 1 --n 1000 10000 --t-end 10 --replicas 200 --out-dir study")
    _study(study)
    _study_pull(study)
    _study_graph(study)
    _fit(verbs)
    _exact(models("exact", "exact solution of a small system", "two-queues --capacity 5 --arrival-rate 1.6"))
    _bench(verbs)
    _info(verbs, top)
    return top


def _simulate(verb: Any) -> None:
    for name, text, add, build, example in MODELS:
        parser = leaf(verb, name, text, commands.simulate, build, f"jaxq simulate {name} {example} --t-end 10 --replicas 1000")
        time_flags(parser)
        add(parser)
        run = run_flags(parser)
        algorithm_flags(parser, run)
        run.add_argument("--kernel", action="store_true", help="on a GPU or TPU: many ticks a launch, where the model can")
        run.add_argument("--save", choices=("moments", "paths"), default="moments", help="moments over replicas (default), or "
                                                                                         "every path "
                         "in --out too")
        output_flags(parser)


def _stationary(verb: Any) -> None:
    for name, text, add, build, example in MODELS:
        parser = leaf(verb, name, text, commands_steady.stationary, build, f"jaxq stationary {name} {example}")
        parser.together(
            parser.add_argument("--rel-error", type=number, metavar="E", help="stop when stderr / mean of the mean queue length is "
                                                                              "at "
                                "most this (default 0.005), or at so many ticks (default 1e11)"),
            parser.add_argument("--max-events", type=number, default=1e11, metavar="TICKS", help="ticks at which to end (default "
                                                                                                 "1e11)"))
        parser.together(
            parser.add_argument("--warmup", type=number, metavar="TIME", help="time left out (default: from theory, or from two "
                                                                              "starts "
                                "that meet), and length of the window, in mean service times"),
            parser.add_argument("--horizon", type=number, metavar="TIME", help="length of the window instead of --rel-error"))
        add(parser)
        algorithm_flags(parser, run_flags(parser, replicas=256))
        output_flags(parser)


def _ode(verb: Any) -> None:
    parser = leaf(verb, "supermarket", "mean field of join the shortest of d queues", commands.ode, flags_models.supermarket,
                  "jaxq ode supermarket --d 2 --arrival-rate 0.9 --t-end 10 --num-times 11")
    time_flags(parser)
    flags_models.supermarket_flags(parser, n_required=False)
    output_flags(parser)


def _meanfield(verb: Any) -> None:
    for name, model, example in (
            ("supermarket", _SUPERMARKET, "--d 2 --arrival-rate 0.9 --n 100"),
            ("pull", _PULL, "--n 100 --routers 1 --arrival-rate 0.8 --fractions .5 .5 --service-rates 1.5 .5")):
        parser = leaf(verb, name, "steady state at n = infinity, and the constant V of its 1/n term", commands_steady.meanfield,
                      model[1], f"jaxq meanfield {name} {example}")
        model[0](parser)
        output_flags(parser)


def _limit(verbs: Any) -> None:
    parser = leaf(verbs, "limit", "linear heavy-traffic system of T = eta (1 - S)", commands.limit, None,
                  "jaxq limit --d 2 --initial 1 3 7 15 --t-end 5 --num-times 6 --exact")
    time_flags(parser)
    parser.add_argument("--d", type=integer, required=True, help="servers a customer samples")
    parser.add_argument("--initial", type=number, nargs="+", required=True, metavar="T", help="T_1, T_2, ... at time 0")
    parser.add_argument("--above", choices=("fixed-point", "zero"), default="fixed-point",
                        help="levels above the last given: T_{i+1} = (d+1) T_i - d T_{i-1} (default), or zero")
    parser.add_argument("--exact", action="store_true", help="by the Green function instead of the ODE")
    output_flags(parser)


def _study(verb: Any) -> None:
    parser = leaf(verb, "supermarket", "T^n = eta_n (1 - S^n) against its limit at growing n", commands.study, None,
                  "jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 --out-dir study")
    time_flags(parser, num_times=101)
    model = parser.add_argument_group("model")
    model.add_argument("--d", type=integer, required=True, help="servers a customer samples")
    model.add_argument("--beta", type=number, required=True, help="lambda_n = 1 - beta n^-alpha")
    model.add_argument("--alpha", type=number, default=0.5, help="default 0.5")
    model.add_argument("--n", type=integer, nargs="+", required=True, help="numbers of servers, increasing")
    model.add_argument("--start", metavar="FILE|empty|fixed-point", help="T profile at time 0: a file of numbers, or a name "
                       "(default: the finite-eta fixed point plus 2 beta on levels 1..3)")
    model.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    algorithm_flags(parser, run_flags(parser))
    _out_dir(parser, "study")


def _study_pull(verb: Any) -> None:
    parser = leaf(verb, "pull", "steady state of PULL against n and the number of routers", commands.study_pull, None,
                  "jaxq study pull --n 100 1000 --routers 1 2 5 --arrival-rate 0.9 --replicas 64 --out-dir pull")
    _window(parser, "10 relaxation times", "4 warm-ups")
    flags_models.pull_flags(parser, many=True)
    run_flags(parser)
    _out_dir(parser, "pull")


def _study_graph(verb: Any) -> None:
    parser = leaf(verb, "graph", "gap to the mean field of the complete graph against the mean degree", commands.study_graph, None,
                  "jaxq study graph --n 1000 --d 2 --arrival-rate 0.9 --degrees 2 4 8 16 --replicas 64 --out-dir graph")
    _window(parser, "4 relaxation times", "8 relaxation times")
    model = parser.add_argument_group("model")
    model.add_argument("--kinds", nargs="+", choices=("ring", "regular", "erdos-renyi"), default=["ring", "regular", "erdos-renyi"],
                       help="default: all three")
    model.add_argument("--degrees", type=integer, nargs="+", required=True, help="mean degrees; even ones for a ring")
    model.add_argument("--n", type=integer, required=True, help="number of vertices")
    model.add_argument("--d", type=integer, required=True, help="servers a customer compares, its own included")
    model.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="customers per vertex and unit of time")
    model.add_argument("--graph-seed", type=integer, default=0, metavar="SEED", help="of the random graphs (default 0)")
    model.add_argument("--replacement", action="store_true", help="draw neighbours with replacement, the own vertex among them")
    run_flags(parser)
    _out_dir(parser, "graph")


def _window(parser: Parser, warmup: str, horizon: str) -> None:
    parser.together(
        parser.add_argument("--warmup", type=number, metavar="TIME", help=f"time before the window (default: {warmup}), and length "
                                                                          f"of the "
                            f"window (default: {horizon})"),
        parser.add_argument("--horizon", type=number, metavar="TIME", help=f"length of the window (default: {horizon})"))


def _out_dir(parser: Parser, name: str) -> None:
    output_flags(parser)
    parser.add_argument("--out-dir", metavar="DIR", help=f"write {name}.nc, {name}.csv and {name}.png there")


def _fit(verbs: Any) -> None:
    parser = leaf(verbs, "fit", "alpha and beta of lambda_n = 1 - beta n^-alpha from data at several n", commands_steady.fit, None,
                  "jaxq fit run1.nc run2.nc run3.nc --plot fit.png")
    parser.add_argument("data", nargs="+", metavar="DATA", help="a study folder, results of stationary (.nc), or one CSV file with "
                        "columns n, level, value, stderr [, t] [, quantity]")
    parser.add_argument("--prediction", choices=("refined", "fixed-point", "transient"),
                        help="default: refined, and transient for data at times")
    parser.add_argument("--d", type=integer, help="servers a customer samples (default: what the data say)")
    parser.add_argument("--fit-d", action="store_true", help="try d = 1 to 8 and keep the best")
    parser.add_argument("--no-replacement", action="store_true", help="d distinct servers (default: what the data say)")
    parser.add_argument("--levels", type=integer, help="levels of each result to fit (default: up to 6)")
    parser.add_argument("--times", type=number, nargs="+", metavar="T", help="saved times to fit (default: the last)")
    parser.add_argument("--profile", action="store_true", help="also 95 %% intervals by profile likelihood")
    output_flags(parser)


def _exact(verb: Any) -> None:
    parser = leaf(verb, "two-queues", "two queues, join the shorter, stationary", commands.exact_two_queues, None,
                  "jaxq exact two-queues --capacity 5 --arrival-rate 1.6 --service-rates 1 1")
    flags_models.two_queues_flags(parser)
    output_flags(parser)
    for name, model, example in (("supermarket", _SUPERMARKET, "--n 3 --d 2 --arrival-rate 0.8 --buffer 30"),
                                 ("pull", _PULL, "--n 4 --routers 1 --arrival-rate 0.8 --buffers 3")):
        parser = leaf(verb, name, "stationary law by solving the chain; with --t-end the law at those times from empty",
                      commands.exact, model[1], f"jaxq exact {name} {example}")
        time_flags(parser, required=False)
        model[0](parser)
        output_flags(parser)


def _bench(verbs: Any) -> None:
    parser = leaf(verbs, "bench", "speed on this machine, and whether the integers are the ones they must be",
                  commands_bench.bench, None, "jaxq bench")
    parser.set_defaults(replicas=commands_bench.REPLICAS)
    parser.add_argument("--seconds", type=number, default=10.0, help="to measure, compilation apart (default 10)")
    parser.add_argument("--devices", type=integer, help="devices to use (default: all; on CPU one per core)")
    output_flags(parser)


def _info(verbs: Any, top: Parser) -> None:
    parser = leaf(verbs, "models", "the systems: what each is, what can be asked of it, an example", commands_info.models, None,
                  "jaxq models")
    parser.set_defaults(systems=MODELS, top=top)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    debug_flag(parser)
    parser = leaf(verbs, "completion", "completion of commands and flags for your shell", commands_info.completion, None,
                  'eval "$(jaxq completion bash)"')
    parser.set_defaults(top=top)
    parser.add_argument("shell", choices=commands_info.SHELLS, help="bash, zsh or tcsh")
    debug_flag(parser)
