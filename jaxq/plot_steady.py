"""Figures of steady states: estimates beside their theory, studies, and fits. `jaxq.plot` gives them to users."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _check, two_queue_law
from .bikes import BikeSharing
from .exact import ExactStationary
from .fit import ScalingFit
from .graph_study import GraphStudy
from .plot_style import COLOURS, MARKERS, STYLE, legend, legend_above, log_n, shows, styled
from .pull_study import PullStudy
from .refined import Refined
from .steady_state import Stationary


@shows(Stationary)
@styled
def stationary(result: Any, refined: Any = None, exact: Any = None, *, ax: Any = None) -> Any:
    """The stationary tail with 95 % error bars on a logarithmic scale, beside the mean field with its 1/n refinement and the
    exact solution.

    Args: result, a `Stationary`; refined, a `Refined`, and exact, an `ExactStationary`, of the same model. Returns the axes.
    Raises ValueError for anything else.

    Example::

        >>> model = jaxq.Supermarket(3, 1, 0.5, buffer=8)
        >>> result = jaxq.stationary(model, key=0, replicas=64, rel_error=0.02)
        >>> axes = jaxq.plot.stationary(result, exact=jaxq.exact.stationary(model))
        >>> axes.get_yscale(), axes.get_legend_handles_labels()[1]
        ('log', ['exact', 'simulation, 95 %'])
    """
    if refined is not None:
        _check.instance("refined", refined, Refined, "what jaxq.refined returned")
    if exact is not None:
        _check.instance("exact", exact, ExactStationary, "what jaxq.exact.stationary returned")
    shown = result.tail > np.maximum(1.96 * result.tail_stderr, 1e-12)  # a logarithm has no place for less
    level = np.arange(1, result.tail.size + 1)[shown]
    ax.errorbar(level, result.tail[shown], yerr=1.96 * result.tail_stderr[shown], color=COLOURS[0], marker=MARKERS[0], markersize=4,
                linestyle="none", capsize=2, label="simulation, 95 %")
    count = int(level[-1])
    if exact is not None:
        tail = exact.tail[:count]
        ax.plot(np.arange(1, len(tail) + 1), tail, color=COLOURS[2], linestyle="none", marker="x", markersize=8, label="exact")
    if refined is not None:
        better = np.where(refined.refined_tail > 0, refined.refined_tail, np.nan)[:count]
        for values, colour, style, label in ((refined.fixed_point[:count], "black", "--", "mean field"),
                                             (better, COLOURS[1], "-", "mean field and its $1/n$ term")):
            ax.plot(np.arange(1, len(values) + 1), values, color=colour, linestyle=style, linewidth=1, label=label)
    ax.set(yscale="log", xlabel="customers $i$", ylabel="fraction of servers with at least $i$ customers")
    ax.xaxis.get_major_locator().set_params(integer=True)
    legend(ax)
    return ax


@shows(ScalingFit)
def fit(result: Any) -> Any:
    """A `ScalingFit`: 1 - lambda_n at each n by itself with the power law and its 95 % band, beside the residuals in standard
    errors, those of one n apart by level. Returns the two axes. Raises ValueError for any other result.

    Example::

        >>> data = {"n": [100, 400, 1600], "level": [1, 1, 1], "value": [0.9, 0.95, 0.975], "stderr": [0.001] * 3}
        >>> left, right = jaxq.plot.fit(jaxq.fit_scaling(data, d=1))
        >>> left.get_legend_handles_labels()[1][-1], right.get_ylabel()
        ('each $n$ by itself', 'data minus fit, in standard errors')
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
        n = np.geomspace(result.n.min() / 1.3, result.n.max() * 1.3, 200)
        relative = result.beta_stderr / result.beta
        error = np.sqrt(relative**2 + (np.log(n) * result.alpha_stderr) ** 2
                        - 2 * np.log(n) * result.correlation * relative * result.alpha_stderr)
        line = result.beta * n**-result.alpha
        left.fill_between(n, line * np.exp(-1.96 * error), line * np.exp(1.96 * error), color=COLOURS[0], alpha=0.25, linewidth=0,
                          label="95 % band")
        left.plot(n, line, color=COLOURS[0], linewidth=1.2, label=r"fit $\beta n^{-\alpha}$")
        left.errorbar(result.n, result.gap, yerr=1.96 * result.gap_stderr, color="black", marker="o", markersize=4,
                      linestyle="none", capsize=2, label="each $n$ by itself")
        log_n(left, np.unique(result.n))
        left.set(yscale="log", ylabel=r"$1 - \lambda_n$")
        legend(left)
        levels = np.unique(result.row_level)
        step = min(1.25, float(np.exp(np.diff(np.log(np.unique(result.row_n))).min() / (levels.size + 1))))  # no two n may mix
        apart = dict(zip(levels.tolist(), step ** (np.arange(levels.size) - (levels.size - 1) / 2), strict=True))
        for k, level in enumerate(levels.tolist()):
            mine = result.row_level == level
            right.errorbar(result.row_n[mine] * apart[level], (result.value - result.fitted)[mine] / result.value_stderr[mine],
                           yerr=1.96, color=COLOURS[k % 7], marker=MARKERS[k % 7], markersize=4, linestyle="none", capsize=2,
                           linewidth=1, label=f"$S_{{{level}}}$" if level else "$Q$")
        right.axhline(0.0, color="black", linewidth=0.8)
        log_n(right, np.unique(result.n))
        right.set(ylabel="data minus fit, in standard errors")
        legend_above(right)
        figure.suptitle(rf"$\alpha = {result.alpha:.4f} \pm {result.alpha_stderr:.4f}$, $\beta = {result.beta:.3f} \pm "
                        rf"{result.beta_stderr:.3f}$, $d = {result.d}$: {result.prediction}, $\chi^2 = {result.chi_square:.1f}$ on "
                        rf"{result.dof} degrees of freedom, $p = {result.p_value:.2g}$; $\pm$ one standard error, bars of 95 %",
                        fontsize=9)
    return left, right


@shows(PullStudy)
def pull(result: Any) -> Any:
    """The figure of a PULL study: P(wait) against n for each R, zeros left out, and the mean response time, with 95 % errors.
    Returns the two axes. Raises ValueError for any other result.

    Example::

        >>> study = jaxq.pull_study([jaxq.Pool(1.0)], 0.5, n=[10, 40], routers=1, replicas=64, key=0, warmup=10.0, horizon=40.0)
        >>> [axes.get_ylabel() for axes in jaxq.plot.pull(study)]
        ['P(wait)', 'mean response time (unit of the rates)']
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.0), layout="constrained")
        for ax, name, other, label in ((axes[0], "p_wait", "supermarket_p_wait", "P(wait)"),
                                       (axes[1], "mean_response_time", "supermarket_response_time",
                                        "mean response time (unit of the rates)")):
            for j, routers in enumerate(result.routers):
                ax.errorbar(result.n, _positive(getattr(result, name)[:, j]), yerr=1.96 * getattr(result, f"{name}_stderr")[:, j],
                            color=COLOURS[j % 6], marker=MARKERS[j % 7], markersize=4, linewidth=1, capsize=2,
                            label=f"PULL, $R = {routers}$")
            if np.all(np.isfinite(getattr(result, other))):
                ax.errorbar(result.n, getattr(result, other), yerr=1.96 * getattr(result, f"{other}_stderr"), color="black",
                            marker="X", markersize=4, linestyle="--", linewidth=1, capsize=2, label="shorter of two")
            log_n(ax, result.n)
            ax.set(ylabel=label)
        axes[0].set_yscale("log")
        axes[1].legend()
        figure.suptitle(rf"PULL at $\lambda = {result.arrival_rate:g}$ per server: {result.replicas} replicas, errors of 95 %",
                        fontsize=9)
    return tuple(axes)


@styled
def blocking(rho: float, capacities: Any, runs: Any = (), *, ax: Any = None) -> Any:
    """Customers lost by two like queues against the places of each: join the shorter, two queues apart, one common queue.

    rho: load of each server, Lambda/(2 mu). capacities: integers (K,). runs: results of `stationary` for `TwoQueues`, drawn
    with 95 % errors. Returns the axes. Raises ValueError for what is none of these.

    Example::

        >>> axes = jaxq.plot.blocking(0.5, [1, 2])
        >>> axes.get_lines()[1].get_ydata().round(3).tolist(), round(jaxq.exact.blocking(2, 0.5), 3)
        ([0.2, 0.048], 0.048)
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    capacities = [_check.integer("capacities", K, 1, 10**12) for K in _check.vector("capacities", capacities).tolist()]
    for k, (law, label) in enumerate(((two_queue_law.blocking_single, "two queues apart, M/M/1/$K$"),
                                      (two_queue_law.blocking, "join the shorter, exact"),
                                      (two_queue_law.blocking_pooled, "one queue, M/M/2/$2K$"))):
        ax.plot(capacities, [law(K, rho) for K in capacities], color=COLOURS[(1, 0, 2)[k]], linestyle=("--", "-", ":")[k],
                linewidth=1.2, label=label)
    for run in _check.instance("runs", runs, (list, tuple), "a list of results of stationary for TwoQueues"):
        _check.instance("runs", run, Stationary, "a list of results of stationary for TwoQueues")
        if run.model["name"] != "TwoQueues":
            raise ValueError(f"runs must be a list of results of stationary for TwoQueues; got one for {run.model['name']}")
    if runs:
        ax.errorbar([run.model["capacity"] for run in runs], [run.p_block for run in runs],
                    yerr=[1.96 * run.p_block_stderr for run in runs], color="black", marker="o", markersize=4, linestyle="none",
                    capsize=2, label="join the shorter, simulated, 95 %")
    ax.set(xscale="log", yscale="log", xlabel="places of each queue $K$", ylabel="fraction of customers lost",
           title=rf"$\rho = {rho:g}$")
    if max(capacities) < 100 * min(capacities):  # few decades; places are whole numbers
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    legend(ax)
    return ax


@shows(BikeSharing)
@styled
def bike_sharing(result: Any, *, ax: Any = None) -> Any:
    """Problematic stations against fleet size, with the choice between two stations and without, and the best fleet of each.
    Returns the axes. Raises ValueError for any result but a `BikeSharing`.

    Example, whose best fleet without the choice is lambda/mu + K/2 = 6 bikes per station::

        >>> axes = jaxq.plot.bike_sharing(jaxq.bikes.bike_sharing(10, 1.0, 1.0))
        >>> axes.get_legend_handles_labels()[1][1]
        'one station, least at 6'
    """
    for k, (values, best, least, label) in enumerate((
            (result.problematic, result.best_fleet, result.best_problematic, "emptier of two neighbours"),
            (result.plain_problematic, result.plain_best_fleet, result.plain_best_problematic, "one station"))):
        ax.plot(result.fleet, values, color=COLOURS[k], linestyle=("-", "--")[k], linewidth=1.2, marker=MARKERS[k],
                markevery=[], label=f"{label}, least at {best:.3g}")
        ax.plot(best, least, color=COLOURS[k], marker=MARKERS[k], markersize=5)
    ax.set(xlabel="bikes per station", ylabel="fraction of problematic stations", yscale="log")
    ax.legend()
    return ax


@shows(GraphStudy)
@styled
def graph_gap(result: Any, *, ax: Any = None) -> Any:
    """Mean queue length above the clique's mean field against the mean degree, where it is above, with the pair approximation
    and the complete graph on n vertices; bars and band of 95 %. Returns the axes. Raises ValueError for any other result.

    Example::

        >>> study = jaxq.graph_study("ring", 2, n=30, d=3, arrival_rate=0.5, replicas=16, key=0, warmup=20.0, horizon=100.0)
        >>> jaxq.plot.graph_gap(study).get_legend_handles_labels()[1]
        ['complete graph, same $n$', 'ring']
    """
    for k, kind in enumerate(dict.fromkeys(result.kind.tolist())):
        mine = result.kind == kind
        ax.errorbar(result.mean_degree[mine], _positive(result.gap[mine]), yerr=1.96 * result.gap_stderr[mine], color=COLOURS[k],
                    marker=MARKERS[k], markersize=4, linewidth=1, capsize=2, label=kind)
    known = np.isfinite(result.pair_approximation)
    pairs = dict(zip(result.mean_degree[known].tolist(), result.pair_approximation[known] - result.mean_field, strict=True))
    if pairs:
        degrees = sorted(pairs)
        ax.plot(degrees, [pairs[degree] for degree in degrees], color="black", linestyle=":", marker="x", markersize=4,
                linewidth=1, label="pair approximation")
    ax.axhline(result.clique - result.mean_field, color="black", linestyle="--", linewidth=0.8, label="complete graph, same $n$")
    from matplotlib.ticker import NullLocator

    ax.set(xscale="log", yscale="log", xlabel="mean degree", ylabel="mean queue length above the mean field")
    asked = sorted(set(result.degree.tolist()))
    ax.set_xticks(asked, labels=map(str, asked))
    ax.xaxis.set_minor_locator(NullLocator())
    shown, gap = ax.get_ylim(), result.clique - result.mean_field
    error = 1.96 * result.clique_stderr
    ax.axhspan(max(gap - error, shown[0]), gap + error, color="black", alpha=0.1, linewidth=0)
    ax.set_ylim(shown)
    legend(ax, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0,
           title=f"$n = {result.n}$, $d = {result.d}$, $\\lambda = {result.arrival_rate:g}$; bars and band of 95 %")
    return ax


def _positive(values: Any) -> Any:
    """The values with nan where a logarithmic axis has no place for them: a line to 0 would look like an error bar."""
    return np.where(values > 0, values, np.nan)
