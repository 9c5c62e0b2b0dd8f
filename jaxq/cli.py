"""The command line: one sub-command per verb, models as sub-commands, one sentence for every mistake."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

EXIT_BAD_INPUT, EXIT_INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jaxq`; returns the exit status: 0, 2 after bad input (one sentence on stderr), 130 after an interrupt."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["study"] and (len(words) == 1 or words[1].startswith("-")) and not {"-h", "--help"} & set(words):
        words.insert(1, "supermarket")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)  # ours; the libraries' deprecations are no news to a user
            warnings.showwarning = lambda message, *rest, **more: print(f"jaxq: warning: {message}", file=sys.stderr)
            options = _parse(words)
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


# commands

def _simulate(options: argparse.Namespace) -> None:
    from .simulate import Interrupted, simulate

    try:
        result = simulate(_supermarket(options), _times(options), options.seed, replicas=options.replicas,
                          save=options.save, progress=options.progress)
    except Interrupted as error:
        if error.partial is not None and options.out:
            error.partial.save(options.out)
            done = error.partial.times.size
            raise _Kept(f"; the {done} times reached are in {options.out}") from None
        raise
    if options.plot:
        from . import plot
        from .mean_field import mean_field

        theory = mean_field(_supermarket(options), np.linspace(0, result.times[-1], 200)) if result.times[-1] > 0 else None
        plot.save(plot.tails(result, theory), options.plot)
    _write(options, result)
    _show(options, result, lambda: _tail_table(result.times, result.mean_queue_length, result.tail_mean,
                                               result.mean_queue_length_stderr, result.tail_stderr))


def _ode(options: argparse.Namespace) -> None:
    from .mean_field import mean_field

    result = mean_field(_supermarket(options), _times(options))
    if options.plot:
        from . import plot

        plot.save(plot.curves(result.times, result.tail, "$S_{}$", "fraction of servers with at least $i$ customers"), options.plot)
    _write(options, result)
    _show(options, result, lambda: _tail_table(result.times, result.mean_queue_length, result.tail)
          + f"\ntruncation error {result.truncation_error:.1e}")


def _limit(options: argparse.Namespace) -> None:
    from . import heavy_traffic

    result = heavy_traffic.limit(_times(options), options.initial, options.d, above=options.above,
                                 method="exact" if options.exact else "ode")
    if options.plot:
        from . import plot

        plot.save(plot.curves(result.times, result.T, "$T_{}$", r"$T_i = \eta\,(1 - S_i)$"), options.plot)
    _write(options, result)
    levels = [f"T_{i + 1}" for i in range(result.T.shape[1])]
    _show(options, result, lambda: _table(["time", *levels], [[t, *row] for t, row in zip(result.times, result.T, strict=True)])
          + f"\ntruncation error {result.truncation_error:.1e}")


def _study(options: argparse.Namespace) -> None:
    from . import plot
    from .simulate import Interrupted
    from .study import make_folder, scaling_study

    start = options.start
    if start is not None and start not in ("empty", "fixed-point"):
        start = _read_numbers(start)
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
        rows = [[row["n"], row["eta"], row["arrival_rate"], _pm(row["bias"], row["bias_stderr"]), row["bias_finite"],
                 _pm(row["fluctuation"], row["fluctuation_stderr"])] for row in result.rows]
        table = _table(["n", "eta", "lambda", "bias", "finite-eta bias", "fluctuation"], rows)
        if result.slopes is None:
            return table
        bias, spread = result.slopes["bias"], result.slopes["fluctuation"]
        return (f"{table}\nslope of ln bias in ln n:        {_pm(bias['slope'], bias['stderr'])}, finite-eta system "
                f"{bias['finite_eta']:.4f}, asymptotically {bias['asymptotic']:g}"
                f"\nslope of ln fluctuation in ln n: {_pm(spread['slope'], spread['stderr'])}, predicted {spread['predicted']:g}"
                + (f"\nstudy.nc, study.csv and study.png are in {folder}" if folder else "\n--out-dir DIR keeps data and figure"))

    _show(options, result, text)


# flags

class _Parser(argparse.ArgumentParser):
    """argparse without abbreviations and with one sentence for an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument "):
            message = message.removeprefix("argument ").replace(": ", " ", 1)
        if message.startswith("the following arguments are required: "):
            message = "required but missing: " + message.split(": ", 1)[1]
        raise ValueError(f"{message}; see {self.prog} --help")


def _parse(words: list[str]) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        leaf = options.leaf
        flags = [flag for flag in leaf._option_string_actions if flag.startswith("--")]
        near = difflib.get_close_matches(unknown[0].split("=")[0], flags, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"{leaf.prog} takes only the flags of its --help; got {' '.join(unknown)}; {hint}see {leaf.prog} --help")
    return options


def _parser() -> _Parser:
    from . import __version__

    top = _Parser(prog="jaxq", description="The supermarket model in heavy traffic: exact ensembles, mean field, limit, scaling.",
                  epilog="Rates are per server and per mean service time; times are in mean service times.\n\n"
                         "example:  jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 "
                         "--out-dir study")
    top.add_argument("--version", action="version", version=f"jaxq {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    simulate = verbs.add_parser("simulate", help="exact ensemble of a model on a time grid").add_subparsers(
        dest="model", metavar="MODEL", required=True)
    leaf = _leaf(simulate, "supermarket", "join the shortest of d queues, exact chain", _simulate,
                 "jaxq simulate supermarket --n 1000 --d 2 --beta 1 --alpha 0.5 --t-end 10 --num-times 11 --replicas 1000")
    _model_flags(leaf, n_required=True)
    _time_flags(leaf)
    _run_flags(leaf)
    leaf.add_argument("--save", choices=("moments", "paths"), default="moments", help="keep every replica's path in --out as well")
    ode = verbs.add_parser("ode", help="mean-field ODE of a model").add_subparsers(dest="model", metavar="MODEL", required=True)
    leaf = _leaf(ode, "supermarket", "mean field of join the shortest of d queues", _ode,
                 "jaxq ode supermarket --d 2 --arrival-rate 0.9 --t-end 10 --num-times 11")
    _model_flags(leaf, n_required=False)
    _time_flags(leaf)
    leaf = _leaf(verbs, "limit", "linear heavy-traffic system of T = eta (1 - S)", _limit,
                 "jaxq limit --d 2 --initial 1 3 7 15 --t-end 5 --num-times 6 --exact")
    leaf.add_argument("--d", type=_integer, required=True, help="servers a customer samples")
    leaf.add_argument("--initial", type=_number, nargs="+", required=True, metavar="T", help="T_1, T_2, ... at time 0")
    leaf.add_argument("--above", choices=("fixed-point", "zero"), default="fixed-point",
                      help="levels above the last given: T_{i+1} = (d+1) T_i - d T_{i-1} (default), or zero")
    leaf.add_argument("--exact", action="store_true", help="by the Green function instead of the ODE")
    _time_flags(leaf)
    study = verbs.add_parser("study", help="T^n against its limit at growing n").add_subparsers(
        dest="model", metavar="[supermarket]", required=True)
    leaf = _leaf(study, "supermarket", "T^n = eta_n (1 - S^n) against its limit at growing n", _study,
                 "jaxq study --d 2 --beta 1 --alpha 0.5 --n 1000 10000 100000 --t-end 10 --replicas 200 --out-dir study")
    leaf.add_argument("--d", type=_integer, required=True, help="servers a customer samples")
    leaf.add_argument("--beta", type=_number, required=True, help="lambda_n = 1 - beta n^-alpha")
    leaf.add_argument("--alpha", type=_number, default=0.5, help="default 0.5")
    leaf.add_argument("--n", type=_integer, nargs="+", required=True, help="numbers of servers, increasing")
    leaf.add_argument("--start", metavar="FILE|empty|fixed-point", help="T profile at time 0: a file of numbers, or a name "
                      "(default: the finite-eta fixed point plus 2 beta on levels 1..3)")
    leaf.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    leaf.add_argument("--out-dir", metavar="DIR", help="write study.nc, study.csv and study.png there")
    _time_flags(leaf, num_times=101)
    _run_flags(leaf)
    return top


def _leaf(verbs: Any, name: str, text: str, run: Callable[[argparse.Namespace], None], example: str) -> _Parser:
    leaf = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=f"example:  {example}")
    leaf.set_defaults(run=run, leaf=leaf, replicas=None, seed=0, progress=None, devices=None, compile_cache=None)
    leaf.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    leaf.add_argument("--out", metavar="FILE.nc", help="write the result as netCDF")
    leaf.add_argument("--plot", metavar="FILE.png", help="write the figure (.png, .pdf or .svg)")
    leaf.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return leaf


def _model_flags(leaf: _Parser, n_required: bool) -> None:
    leaf.add_argument("--n", type=_integer, required=n_required, help="number of servers")
    leaf.add_argument("--d", type=_integer, required=True, help="servers a customer samples")
    leaf.add_argument("--arrival-rate", type=_number, metavar="LAMBDA", help="per server and mean service time")
    leaf.add_argument("--beta", type=_number, help="instead of --arrival-rate: lambda = 1 - beta/eta, with --alpha or --eta")
    leaf.add_argument("--alpha", type=_number, help="eta = n^alpha (default 0.5)")
    leaf.add_argument("--eta", type=_number, help="eta itself")
    leaf.add_argument("--buffer", type=_buffer, default=None, help="customers a server holds (default: inf)")
    leaf.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")


def _time_flags(leaf: _Parser, num_times: int = 11) -> None:
    leaf.add_argument("--t-end", type=_number, required=True, help="last save time, in mean service times")
    leaf.add_argument("--num-times", type=_integer, default=num_times, help=f"save times from 0 to --t-end (default {num_times})")


def _run_flags(leaf: _Parser) -> None:
    leaf.add_argument("--replicas", type=_integer, required=True, help="independent copies")
    leaf.add_argument("--seed", type=_integer, default=0, help="0 <= seed < 2^64 (default 0)")
    leaf.add_argument("--devices", type=_integer, help="devices to use (default: all; on CPU one per core)")
    leaf.add_argument("--no-progress", dest="progress", action="store_false", default=None, help="no bar on stderr")
    leaf.add_argument("--compile-cache", metavar="DIR", help="keep compiled code there for the next run")


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


def _supermarket(options: argparse.Namespace) -> Any:
    from .models.supermarket import Supermarket

    heavy = options.beta is not None or options.alpha is not None or options.eta is not None
    if (options.arrival_rate is not None) == heavy:
        raise ValueError("give either --arrival-rate, or --beta with --alpha or --eta; "
                         + ("got both" if heavy else "got neither"))
    if heavy and (options.beta is None or (options.n is None and options.eta is None)):
        raise ValueError("--alpha and --eta need --beta, and --alpha needs --n as well; give them, or --arrival-rate")
    n = max(10**6, options.d) if options.n is None else options.n  # the mean field ignores n
    if heavy:
        return Supermarket.heavy_traffic(n, options.d, options.beta, options.alpha, eta=options.eta,
                                         replacement=not options.no_replacement, buffer=options.buffer)
    return Supermarket(n, options.d, options.arrival_rate, not options.no_replacement, options.buffer)


def _times(options: argparse.Namespace) -> np.ndarray:
    from . import _check

    _check.real("--t-end", options.t_end, 0.0, open_low=True)
    count = _check.integer("--num-times", options.num_times, 1)
    return np.linspace(0.0, options.t_end, count) if count > 1 else np.array([options.t_end])


def _integer(text: str) -> int:
    """An integer; 1e6 counts as one."""
    try:
        return int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value == int(value) and abs(value) < 2**53):
            raise argparse.ArgumentTypeError(f"must be an integer; got {text!r}") from None
        return int(value)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number; got {text!r}")
    return value


def _buffer(text: str) -> int | None:
    return None if text == "inf" else _integer(text)


def _read_numbers(path: str) -> list[float]:
    try:
        return [float(word) for word in Path(path).read_text().replace(",", " ").split()]
    except (OSError, ValueError) as error:
        raise ValueError("--start must be 'empty', 'fixed-point' or a file of numbers T_1 T_2 ...; "
                         f"got {path!r} ({error})") from None


# output

def _write(options: argparse.Namespace, result: Any) -> None:
    result.attributes["command"] = "jaxq " + " ".join(sys.argv[1:])
    if options.out:
        result.save(options.out)


def _show(options: argparse.Namespace, result: Any, text: Callable[[], str]) -> None:
    print(json.dumps(result.to_json()) if options.json else text())


def _tail_table(times: Any, queue: Any, tail: Any, queue_error: Any = None, tail_error: Any = None) -> str:
    used = [i for i in range(tail.shape[1]) if np.max(tail[:, i]) > 0] or [0]
    rows = []
    for k, t in enumerate(times):
        values = [(queue[k], None if queue_error is None else queue_error[k])]
        values += [(tail[k, i], None if tail_error is None else tail_error[k, i]) for i in used]
        rows.append([t, *(value if error is None else _pm(value, error) for value, error in values)])
    note = "" if queue_error is None else ("\nQ: customers per server; S_i: fraction of servers with at least i; "
                                           "+- one standard error")
    return _table(["time", "Q", *(f"S_{i + 1}" for i in used)], rows) + note


def _pm(value: float, error: float) -> str:
    """value +- error, the error to two digits."""
    if not math.isfinite(error):
        return f"{value:.6g} +- ?"
    digits = 6 if error == 0 else max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} +- {error:.{digits}f}" if digits < 12 else f"{value:.2e} +- {error:.1e}"


def _table(header: list[str], rows: list[list[Any]]) -> str:
    cells = [header] + [[cell if isinstance(cell, str) else f"{cell:.7g}" for cell in row] for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
