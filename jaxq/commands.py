"""What each command of the command line does: flags to parameters, one public function, then table, JSON, files and figure."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _check, flags, flags_models, flags_values, tables


class Kept(KeyboardInterrupt):
    """An interrupt after which something was written: `said`, and the checkpoint."""

    def __init__(self, options: argparse.Namespace, said: str = "") -> None:
        if options.checkpoint is not None and Path(options.checkpoint).exists():
            said += f"; --checkpoint {options.checkpoint} --resume goes on"
        super().__init__(said)


def simulate(options: argparse.Namespace) -> None:
    """`jaxq simulate MODEL`."""
    from .simulate import Interrupted
    from .simulate import simulate as run

    model = options.build(options)
    try:
        result = run(model, flags.times(options), options.seed, replicas=options.replicas, save=options.save, kernel=options.kernel,
                     progress=options.progress, **flags.algorithm(options), **flags.checkpoint(options))
    except Interrupted as error:
        if error.partial is not None and options.out:
            write(options, error.partial)
            raise Kept(options, f"; the {error.partial.times.size} times reached are in {options.out}") from None
        raise Kept(options) from None
    finish(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail_mean,
                                                 result.mean_queue_length_stderr, result.tail_stderr) + _step(result),
           lambda plot: plot.tails(result, _mean_field_of(model, result.times[-1])))


def _step(result: Any) -> str:
    """What the steps of a leap add to the means, as the last line."""
    if result.step is None:
        return ""
    k = int(np.argmax(np.abs(result.mean_queue_length_step_error)))
    added = tables.pm(result.mean_queue_length_step_error[k], result.mean_queue_length_step_error_stderr[k])
    return (f"\nsteps of {result.step:g}: they add about {added} to the mean queue length at time {result.times[k]:g}, the most at "
            "a time shown")


def _mean_field_of(model: Any, t_end: float) -> Any:
    """What to draw beside a simulation of the supermarket model: its mean field, with the band of single systems where it has
    few enough levels for that to be quick."""
    from .linear_noise import linear_noise
    from .mean_field import mean_field
    from .models.classes import SupermarketClasses
    from .models.supermarket import Supermarket

    if not isinstance(model, (Supermarket, SupermarketClasses)) or t_end <= 0:
        return None
    return (linear_noise if model.levels <= 16 else mean_field)(model, np.linspace(0, t_end, 100))


def ode(options: argparse.Namespace) -> None:
    """`jaxq ode MODEL`."""
    from .mean_field import mean_field

    result = mean_field(options.build(options), flags.times(options))
    finish(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail)
           + f"\ntruncation error {result.truncation_error:.1e}",
           lambda plot: plot.curves(result.times, result.tail, "$S_{}$", "fraction of servers with at least $i$ customers"))


def limit(options: argparse.Namespace) -> None:
    """`jaxq limit`."""
    from . import heavy_traffic

    result = heavy_traffic.limit(flags.times(options), options.initial, options.d, above=options.above,
                                 method="exact" if options.exact else "ode")
    header = ["time", *(f"T_{i + 1}" for i in range(result.T.shape[1]))]
    finish(options, result, lambda: tables.table(header, [[t, *row] for t, row in zip(result.times, result.T, strict=True)])
           + f"\ntruncation error {result.truncation_error:.1e}",
           lambda plot: plot.curves(result.times, result.T, "$T_{}$", r"$T_i = \eta\,(1 - S_i)$"))


def study(options: argparse.Namespace) -> None:
    """`jaxq study supermarket`."""
    from .study import make_folder, scaling_study

    start = options.start
    if start is not None and start not in ("empty", "fixed-point"):
        start = flags_values.numbers_in(start)
    folder = None if options.out_dir is None else make_folder(options.out_dir)
    try:
        result = scaling_study(options.d, options.beta, options.alpha, n=options.n, t_end=options.t_end,
                               num_times=options.num_times, replicas=options.replicas, key=options.seed, start=start,
                               replacement=not options.no_replacement, out_dir=folder, progress=options.progress,
                               **flags.algorithm(options), **flags.checkpoint(options))
    except KeyboardInterrupt:
        raise Kept(options, f"; the sizes finished are in {folder}" if folder else "") from None

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

    finish(options, result, text, lambda plot: plot.study(result), folder)


def study_pull(options: argparse.Namespace) -> None:
    """`jaxq study pull`."""
    from .pull_study import pull_study
    from .study import make_folder

    folder = None if options.out_dir is None else make_folder(options.out_dir)
    try:
        result = pull_study(flags_models.pools(options), options.arrival_rate, n=options.n, routers=options.routers,
                            replicas=options.replicas, key=options.seed, messages=options.messages, warmup=options.warmup,
                            horizon=options.horizon, progress=options.progress, **flags.checkpoint(options))
    except KeyboardInterrupt:
        raise Kept(options) from None

    def text() -> str:
        names = ("p_wait", "p_block", "messages_per_customer", "mean_response_time")
        rows = [[n, r, *(tables.pm(getattr(result, name)[i, j], getattr(result, f"{name}_stderr")[i, j]) for name in names)]
                for i, n in enumerate(result.n) for j, r in enumerate(result.routers)]
        return tables.table(["n", "routers", "P(wait)", "P(block)", "messages/customer", "response time"], rows)

    finish(options, result, text, lambda plot: plot.pull(result), folder, "pull")


def study_graph(options: argparse.Namespace) -> None:
    """`jaxq study graph`."""
    from .graph_study import graph_study
    from .study import make_folder

    folder = None if options.out_dir is None else make_folder(options.out_dir)
    try:
        result = graph_study(options.kinds, options.degrees, options.n, options.d, options.arrival_rate, options.replicas,
                             options.seed, graph_seed=options.graph_seed, warmup=options.warmup, horizon=options.horizon,
                             replacement=options.replacement, progress=options.progress, **flags.checkpoint(options))
    except KeyboardInterrupt:
        raise Kept(options) from None

    def text() -> str:
        rows = [[row["kind"], row["mean_degree"], tables.pm(row["mean_queue_length"], row["mean_queue_length_stderr"]),
                 tables.pm(row["gap"], row["gap_stderr"]), row["pair_approximation"]] for row in result.rows]
        return (tables.table(["graph", "degree", "Q", "gap", "pair approximation"], rows)
                + f"\ncomplete graph, n = {result.n}: {tables.pm(result.clique, result.clique_stderr)}; mean field "
                  f"{result.mean_field:.6g}")

    finish(options, result, text, lambda plot: plot.graph_gap(result), folder, "graph")


def exact_two_queues(options: argparse.Namespace) -> None:
    """`jaxq exact two-queues`."""
    from .exact import two_queues

    no_plot(options)
    result = two_queues(options.capacity, options.arrival_rate, tuple(options.service_rates))
    finish(options, result, lambda: f"blocking       {result.blocking:.12g}\nmean customers {result.mean_customers:.12g}\n"
           f"P(both empty)  {result.p_empty:.12g}\n" + tables.table(["k", "P(queue 1 empty, queue 2 = k)"],
                                                                   [[k, p] for k, p in enumerate(result.p_0k) if p > 0]))


def exact(options: argparse.Namespace) -> None:
    """`jaxq exact supermarket` and `jaxq exact pull`."""
    from .exact import stationary, transient

    no_plot(options)
    if options.t_end is None and options.num_times is not None:
        raise ValueError(f"--num-times needs --t-end, the last of the times; got "
                         f"--num-times {_check.shown(options.num_times)}; give both")
    if options.t_end is None:
        result: Any = stationary(options.build(options))
        finish(options, result, lambda: f"mean queue length {result.mean_queue_length:.12g}\n" + tables.levels(result.tail))
    else:
        result = transient(options.build(options), flags.times(options))
        finish(options, result, lambda: tables.tails(result.times, result.mean_queue_length, result.tail))


def no_plot(options: argparse.Namespace) -> None:
    """Refuse --plot where a command has no figure."""
    if options.plot:
        raise ValueError(f"--plot has no figure for this command; got {options.plot!r}; use --out or --json")


def write(options: argparse.Namespace, result: Any) -> None:
    """Write the result to --out, with the command that made it."""
    result.attributes["command"] = options.command
    if options.out:
        result.save(options.out)


def finish(options: argparse.Namespace, result: Any, text: Callable[[], str], figure: Callable[[Any], Any] | None = None,
           folder: Path | None = None, name: str = "study") -> None:
    """Print the result, the table or with --json one object; then write --out, the files in `folder`, and the `figure`, which is
    drawn with the module `plot`. Each is tried whatever happened to the others, so that no full disk loses the rest of a run."""

    def show() -> None:
        try:
            print(json.dumps(result.to_json()) if options.json else tables.comma_separated(result) if options.csv else text(),
                  flush=True)
        except OSError as error:
            mute()
            if not isinstance(error, BrokenPipeError):  # the reader left, as `head` does
                raise ValueError(f"the result could not be printed ({_check.reason(error)}); write it to --out") from error

    def draw() -> None:
        path = options.plot or (folder and folder / f"{name}.png")
        if figure is not None and path:
            from . import plot

            plot.save(figure(plot), path)

    steps: list[Callable[[], Any]] = [show, lambda: write(options, result)]
    if folder is not None:
        steps += [lambda: result.save(folder / f"{name}.nc"), lambda: result.save_csv(folder / f"{name}.csv")]
    result.attributes["command"] = options.command
    refusals: list[ValueError] = []
    for step in (*steps, draw):
        try:
            step()
        except ValueError as error:
            refusals.append(error)
    if refusals:
        raise ValueError("; ".join(map(str, refusals))) from refusals[0]


def mute() -> None:
    """Let what is still held for stdout go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
