"""The command line's flags: a parser whose errors are one sentence, and for each model its flags and how they make it."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from . import _check

Build = Callable[[argparse.Namespace], Any]


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations and with one sentence for an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument "):
            message = message.removeprefix("argument ").replace(": ", " ", 1)
        if message.startswith("the following arguments are required: "):
            message = "required but missing: " + message.split(": ", 1)[1]
        message = message.replace("ignored explicit argument", "takes no value; got")
        raise ValueError(f"{_check.short(message, 250)}; see {self.prog} --help")


def parse(parser: Parser, words: list[str]) -> argparse.Namespace:
    """The options, or ValueError naming an unknown flag and the one that was meant."""
    options, unknown = parser.parse_known_args(words)
    if unknown:
        leaf = options.leaf
        known = [flag for flag in leaf._option_string_actions if flag.startswith("--")]
        near = difflib.get_close_matches(unknown[0].split("=")[0], known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"{leaf.prog} takes only the flags of its --help; got {_check.short(' '.join(unknown))}; "
                         f"{hint}see {leaf.prog} --help")
    return options


def leaf(verbs: Any, name: str, text: str, run: Callable[[argparse.Namespace], None], build: Build | None, example: str) -> Parser:
    """A command at the end of its path, with the flags that every command has."""
    parser: Parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example:  {example}")
    parser.set_defaults(run=run, build=build, leaf=parser, replicas=None, seed=0, progress=None, devices=None, compile_cache=None,
                        checkpoint=None,
                        out_dir=None, distributed=False, coordinator=None, num_processes=None, process_id=None)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--out", metavar="FILE.nc", help="write the result as netCDF")
    parser.add_argument("--plot", metavar="FILE.png", help="write the figure (.png, .pdf or .svg)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


# what runs have

def time_flags(parser: Parser, num_times: int = 11, *, required: bool = True) -> None:
    """--t-end and --num-times."""
    parser.add_argument("--t-end", type=number, required=required, help="last save time, in units of the rates")
    parser.add_argument("--num-times", type=integer, default=num_times if required else None,
                        help=f"save times from 0 to --t-end (default {num_times})")


def run_flags(parser: Parser, replicas: int | None = None) -> None:
    """What a simulation needs; `replicas` if they are not asked for."""
    parser.add_argument("--replicas", type=integer, required=replicas is None, default=replicas,
                        help="independent copies" + (f" (default {replicas})" if replicas else ""))
    parser.add_argument("--seed", type=integer, default=0, help="0 <= seed < 2^64 (default 0)")
    parser.add_argument("--devices", type=integer, help="devices to use, of each process (default: all; on CPU one per core)")
    parser.add_argument("--no-progress", dest="progress", action="store_false", default=None, help="no bar on stderr")
    parser.add_argument("--compile-cache", metavar="DIR", help="keep compiled code there for the next run")
    parser.add_argument("--distributed", action="store_true", help="one of several processes that Slurm, Kubernetes, Open MPI or a "
                        "TPU pod started: they share the replicas, and the first one writes")
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="without such a cluster: a free port of process 0's machine")
    parser.add_argument("--num-processes", type=integer, help="with --coordinator: how many processes run this command")
    parser.add_argument("--process-id", type=integer, help="with --coordinator: which of them this is, from 0")


def checkpoint_flags(parser: Parser) -> None:
    """--checkpoint and what belongs to it."""
    parser.add_argument("--checkpoint", metavar="FILE", help="keep there what the run needs to go on after an interrupt or a crash")
    parser.add_argument("--every", type=duration, metavar="TIME", help="between checkpoints: 30s, 10m or 2h (default 60s)")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint FILE, if it is there yet")


def checkpoint(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that these flags make."""
    if options.checkpoint is None and (options.every is not None or options.resume):
        raise ValueError(f"{'--resume' if options.resume else '--every'} needs --checkpoint FILE; got none; give the file to go on "
                         "from")
    return {"checkpoint": options.checkpoint, "resume": options.resume} | (
        {} if options.every is None else {"every": options.every})


def algorithm_flags(parser: Parser) -> None:
    """--algorithm and what belongs to it."""
    parser.add_argument("--algorithm", choices=("exact", "bulk", "leap"), default="exact",
                        help="bulk: exact, faster from n = 1e7 on (supermarket); leap: steps of time at a cost that does not "
                        "depend on n, with an estimate of their error")
    parser.add_argument("--step", type=number, help="of a leap, in units of time (default: from the rates)")
    parser.add_argument("--order", type=integer, help="1 or 2: order of a leap's error in the step (default 2)")


def algorithm(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that these flags make."""
    return {"algorithm": options.algorithm, "step": options.step, "order": options.order}


def times(options: argparse.Namespace) -> np.ndarray:
    """The save times that --t-end and --num-times ask for."""
    _check.real("--t-end", options.t_end, 0.0, open_low=True)
    count = 11 if options.num_times is None else _check.integer("--num-times", options.num_times, 1, _check.MOST_TIMES)
    return np.linspace(0.0, options.t_end, count) if count > 1 else np.array([options.t_end])


# the models

def supermarket_flags(parser: Parser, *, n_required: bool = True) -> None:
    """Flags of `Supermarket`."""
    parser.add_argument("--n", type=integer, required=n_required, help="number of servers")
    parser.add_argument("--d", type=integer, required=True, help="servers a customer samples")
    parser.add_argument("--arrival-rate", type=number, metavar="LAMBDA", help="per server and mean service time")
    parser.add_argument("--beta", type=number, help="instead of --arrival-rate: lambda = 1 - beta/eta, with --alpha or --eta")
    parser.add_argument("--alpha", type=number, help="eta = n^alpha (default 0.5)")
    parser.add_argument("--eta", type=number, help="eta itself")
    parser.add_argument("--buffer", type=capacity, default=None, help="customers a server holds (default: inf)")
    parser.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    pool_flags(parser)


def supermarket(options: argparse.Namespace) -> Any:
    """The `Supermarket` of the flags, or `SupermarketClasses` where they describe pools."""
    from .models.classes import SupermarketClasses
    from .models.supermarket import Supermarket

    heavy = options.beta is not None or options.alpha is not None or options.eta is not None
    if (options.arrival_rate is not None) == heavy:
        raise ValueError("give either --arrival-rate, or --beta with --alpha or --eta; "
                         + ("got both" if heavy else "got neither"))
    if heavy and (options.beta is None or (options.n is None and options.eta is None)):
        raise ValueError("--alpha and --eta need --beta, and --alpha needs --n as well; give them, or --arrival-rate")
    n = max(10**6, min(options.d, 2**31 - 1)) if options.n is None else options.n  # the mean field ignores n
    if options.fractions or options.service_rates or options.buffers:
        if heavy:
            raise ValueError("--fractions, --service-rates and --buffers need --arrival-rate, lambda per server; got --beta, "
                             "--alpha or --eta, whose limit is that of like servers")
        return SupermarketClasses(n, pools(options), options.d, options.arrival_rate, not options.no_replacement)
    if heavy:
        return Supermarket.heavy_traffic(n, options.d, options.beta, options.alpha, eta=options.eta,
                                         replacement=not options.no_replacement, buffer=options.buffer)
    return Supermarket(n, options.d, options.arrival_rate, not options.no_replacement, options.buffer)


def two_queues_flags(parser: Parser) -> None:
    """Flags of `TwoQueues`."""
    parser.add_argument("--capacity", type=capacity, required=True, help="customers each queue holds, or inf")
    parser.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="total arrival rate")
    parser.add_argument("--service-rates", type=number, nargs=2, default=(1.0, 1.0), metavar=("MU1", "MU2"), help="default 1 1")


def two_queues(options: argparse.Namespace) -> Any:
    """The `TwoQueues` of the flags."""
    from .models.two_queues import TwoQueues

    return TwoQueues(options.capacity, options.arrival_rate, tuple(options.service_rates))


def pull_flags(parser: Parser, *, many: bool = False) -> None:
    """Flags of `Pull`; `many`: lists of n and of routers."""
    count: Any = "+" if many else None
    parser.add_argument("--n", type=integer, nargs=count, required=True, help="number of servers")
    parser.add_argument("--routers", type=integer, nargs=count, required=True, help="number of routers R; 1 is join-idle-queue")
    parser.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="per server")
    pool_flags(parser)
    parser.add_argument("--messages", choices=("withdraw", "stale"), default="withdraw",
                        help="of a server made busy by another router: deleted, or kept")


def pull(options: argparse.Namespace) -> Any:
    """The `Pull` of the flags."""
    from .models.pull import Pull

    return Pull(options.n, pools(options), options.routers, options.arrival_rate, options.messages)


def pool_flags(parser: Parser) -> None:
    """Flags of pools of unlike servers."""
    parser.add_argument("--fractions", type=number, nargs="+", default=None, metavar="F",
                        help="of the servers in each pool (default: one pool)")
    parser.add_argument("--service-rates", type=number, nargs="+", default=None, metavar="MU", help="of each pool (default 1)")
    parser.add_argument("--buffers", type=capacity, nargs="+", default=None, metavar="B", help="of each pool, or inf (default)")


def pools(options: argparse.Namespace) -> list[Any]:
    """The pools of the flags."""
    from .models.pools import Pool

    fractions = options.fractions or [1.0]
    count, buffer = len(fractions), getattr(options, "buffer", None)  # --buffer is of all servers alike
    if options.buffers and buffer is not None:
        raise ValueError("give either --buffer for all servers or --buffers for each pool; got both")
    rates, buffers = options.service_rates or [1.0] * count, options.buffers or [buffer] * count
    if len(rates) != count or len(buffers) != count:
        raise ValueError(f"--service-rates and --buffers need one value per pool; got {count} fractions, {len(rates)} rates and "
                         f"{len(buffers)} buffers; give as many of each")
    return [Pool(*pool) for pool in zip(fractions, rates, buffers, strict=True)]


# values

def integer(text: str) -> int:
    """An integer; 1e6 counts as one."""
    try:
        return int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value == int(value) and abs(value) < 2**53):
            raise argparse.ArgumentTypeError(f"must be an integer; got {_check.shown(text)}") from None
        return int(value)


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number; got {_check.shown(text)}")
    return value


def duration(text: str) -> float:
    """Seconds, from a number with s, m or h behind it, or none."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    value = math.nan
    with contextlib.suppress(ValueError):
        value = float(text.rstrip("smh")) * units[text[-1] if text[-1:] in units else "s"]
    if not 0 <= value < math.inf or len(text.rstrip("smh")) < len(text) - 1:
        raise argparse.ArgumentTypeError(f"must be a time such as 30s, 10m or 2h; got {text!r}")
    return value


def capacity(text: str) -> int | None:
    """An integer, or inf for None."""
    return None if text == "inf" else integer(text)


def numbers_in(path: str, required: str = "--start must be 'empty', 'fixed-point' or a file of numbers T_1 T_2 ...") -> list[float]:
    """The numbers of a text file, separated by white space or commas; what was `required` begins the error."""
    try:
        words = Path(path).read_text().replace(",", " ").split()
    except (OSError, ValueError) as error:
        raise ValueError(f"{required}; got {_check.shown(path)} ({_check.reason(error)})") from None
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{required}; got {_check.shown(path)} with {str(error).partition(': ')[2]} in it") from None
