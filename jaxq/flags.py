"""The command line's flags: a parser whose errors are one sentence, and what all runs have."""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from . import _check
from .flags_values import duration, integer, number

Build = Callable[[argparse.Namespace], Any]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wide lines, and one for flags that belong together (`Parser.together`)."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=max(80, min(shutil.get_terminal_size().columns, 120)) - 2)

    def add_argument(self, action: argparse.Action) -> None:
        if not getattr(action, "told", False):
            super().add_argument(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return " ".join([_invocation(action), *(f"[{_invocation(other)}]" for other in getattr(action, "others", ()))])


def _invocation(action: argparse.Action) -> str:
    """A flag and what follows it."""
    shown = action.metavar or action.choices or action.dest.upper()
    shown = shown if isinstance(shown, str) else (" " if isinstance(action.metavar, tuple) else "|").join(map(str, shown))
    shown += " ..." if action.nargs == "+" else ""
    names = ", ".join(action.option_strings) if action.dest == "help" else "".join(action.option_strings[-1:])
    return " ".join([*([names] if names else []), *([shown] if action.nargs != 0 else [])])


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations and with one sentence for an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **options)


    def together(self, first: Any, *others: Any, named: bool = True) -> None:
        """Give these flags one line of the help, with the text of the first; not `named`: which tells the others too."""
        first.others = others if named else ()
        for other in others:
            other.told = True

    def commands(self) -> dict[str, list[str]]:
        """The verbs, and the models of each."""
        def choices(parser: argparse.ArgumentParser) -> dict[str, Any]:
            return next((dict(action.choices or {}) for action in parser._actions
                         if isinstance(action, argparse._SubParsersAction)), {})

        return {verb: list(choices(parser)) for verb, parser in choices(self).items()}

    def format_help(self) -> str:
        """As argparse's, with no flags in the usage but those that are required."""
        if self._subparsers is None:
            required = [_invocation(action) for action in self._actions if action.required]
            self.usage = " ".join([self.prog, *required, "[flags]"])
        return super().format_help()

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
    none = ("replicas", "progress", "devices", "compile_cache", "checkpoint", "out", "plot", "out_dir", "coordinator",
            "num_processes", "process_id")
    parser.set_defaults(run=run, build=build, leaf=parser, seed=0, **dict.fromkeys(none),
                        **dict.fromkeys(("dry_run", "csv", "json", "debug", "distributed"), False))
    return parser


def output_flags(parser: Parser) -> None:
    """What every command can do with its result; last in the help."""
    group = parser.add_argument_group("output")
    parser.together(
        group.add_argument("--json", action="store_true", help="not a table but one JSON object, or a CSV line for each number"),
        group.add_argument("--csv", action="store_true", help="print CSV, a line for each number, instead of a table"))
    group.add_argument("--out", metavar="FILE.nc", help="write the result as netCDF")
    group.add_argument("--plot", metavar="FILE.png", help="write the figure (.png, .pdf or .svg)")
    debug_flag(group)


def debug_flag(parser: Any) -> None:
    """--debug, which `cli.main` reads."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


# what runs have

def time_flags(parser: Parser, num_times: int = 11, *, required: bool = True) -> None:
    """--t-end and --num-times."""
    parser.together(
        parser.add_argument("--t-end", type=number, required=required, metavar="T",
                            help=f"last save time in mean service times; save times from 0 on (default {num_times})"),
        parser.add_argument("--num-times", type=integer, default=num_times if required else None, metavar="K",
                            help=f"save times from 0 to --t-end (default {num_times})"))


def run_flags(parser: Parser, replicas: int | None = None) -> Any:
    """What a simulation needs, as the group that is returned; `replicas` if they are not asked for."""
    group = parser.add_argument_group("run")
    group.add_argument("--replicas", type=integer, required=replicas is None, default=replicas, metavar="R",
                       help="independent copies" + (f" (default {replicas})" if replicas else ""))
    group.add_argument("--seed", type=integer, default=0, help="0 <= seed < 2^64 (default 0)")
    group.add_argument("--dry-run", action="store_true", help="print events, memory and an estimate of the time; do not run")
    parser.together(
        group.add_argument("--checkpoint", metavar="FILE", help="keep what the run needs to go on (every 60s); go on from it"),
        group.add_argument("--every", type=duration, metavar="TIME", help="between checkpoints: 30s, 10m or 2h (default 60s)"),
        group.add_argument("--resume", action="store_true", help="go on from --checkpoint FILE, if it is there yet"))
    group.add_argument("--devices", type=integer, metavar="D", help="of each process (default: all; on CPU one per core)")
    group.add_argument("--compile-cache", metavar="DIR", help="keep compiled code there for the next run")
    parser.together(
        group.add_argument("--distributed", action="store_true", help="one of several processes of a cluster; elsewhere "
                           "--coordinator HOST:PORT --num-processes P --process-id K"),
        group.add_argument("--coordinator", metavar="HOST:PORT", help="without a cluster: a free port of process 0's machine"),
        group.add_argument("--num-processes", type=integer, metavar="P", help="with --coordinator: how many processes there are"),
        group.add_argument("--process-id", type=integer, metavar="K", help="with --coordinator: which of them this is, from 0"),
        named=False)
    group.add_argument("--no-progress", dest="progress", action="store_false", default=None, help="no bar on stderr")
    return group


def checkpoint(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that --checkpoint, --every and --resume make."""
    if options.checkpoint is None and (options.every is not None or options.resume):
        raise ValueError(f"{'--resume' if options.resume else '--every'} needs --checkpoint FILE; got none; give the file to go on "
                         "from")
    return {"checkpoint": options.checkpoint, "resume": options.resume} | (
        {} if options.every is None else {"every": options.every})


def algorithm_flags(parser: Parser, group: Any) -> None:
    """--algorithm and what belongs to it."""
    parser.together(
        group.add_argument("--algorithm", choices=("exact", "bulk", "leap"), default="exact", metavar="A",
                           help="exact, bulk (exact, faster from n = 1e7 on) or leap (steps of time at a cost that does not "
                           "depend on n, error told)"),
        group.add_argument("--step", type=number, metavar="TIME", help="of a leap, in units of time (default: from the rates)"),
        group.add_argument("--order", type=integer, metavar="1|2", help="order of a leap's error in the step (default 2)"))


def algorithm(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that these flags make."""
    return {"algorithm": options.algorithm, "step": options.step, "order": options.order}


def times(options: argparse.Namespace) -> np.ndarray:
    """The save times that --t-end and --num-times ask for."""
    _check.real("--t-end", options.t_end, 0.0, open_low=True)
    count = 11 if options.num_times is None else _check.integer("--num-times", options.num_times, 1, _check.MOST_TIMES)
    return np.linspace(0.0, options.t_end, count) if count > 1 else np.array([options.t_end])
