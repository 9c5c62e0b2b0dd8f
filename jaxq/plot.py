"""Figures of results: no simulation here, only drawing. Each function takes `ax=` (or makes a figure) and returns the axes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .study import Study

#: Okabe and Ito's colours, told apart by colour-blind readers and, with the markers, in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "font.size": 9,
          "legend.frameon": False, "legend.fontsize": 8, "figure.dpi": 150, "savefig.bbox": "tight"}


def _styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draw in the project's style, leaving the user's settings as they are; without `ax` on a figure of its own."""

    @functools.wraps(draw)
    def drawn(*args: Any, ax: Any = None, **options: Any) -> Any:
        import matplotlib.pyplot as plt

        with plt.rc_context(_STYLE):
            if ax is None:
                ax = plt.subplots(figsize=(5.2, 3.8), layout="constrained")[1]
            return draw(*args, ax=ax, **options)

    return drawn


@_styled
def tails(result: Any, mean_field: Any = None, *, levels: int = 5, ax: Any = None) -> Any:
    """S_i(t), the fraction of servers with at least i customers, with 95 % error bars, and a `MeanField` as dashed lines.

    Args: result, an `Ensemble`; levels, how many from level 1. Returns the axes.
    """
    for i in range(min(levels, result.tail_mean.shape[1])):
        colour, mean, error = COLOURS[i % 7], result.tail_mean[:, i], 1.96 * result.tail_stderr[:, i]
        ax.errorbar(result.times, mean, yerr=error, color=colour, marker=MARKERS[i % 7], markersize=3.5, capsize=2, elinewidth=0.8,
                    linewidth=1, linestyle="none" if mean_field is not None else "-", label=f"$S_{i + 1}$")
        if mean_field is not None:
            ax.plot(mean_field.times, mean_field.tail[:, i], color=colour, linestyle="--", linewidth=1.2)
    if mean_field is not None:
        ax.plot([], [], color="black", linestyle="--", label="mean field")
    ax.set(xlabel="time (mean service times)", ylabel="fraction of servers with at least $i$ customers", ylim=(0, 1.02))
    _legend_above(ax)
    return ax


@_styled
def curves(times: Any, values: Any, name: str, label: str, *, ax: Any = None) -> Any:
    """Solid curves of a solved system, values (time, level), one per level, named like "$T_{}$". Returns the axes."""
    for i in range(values.shape[1]):
        if np.any(values[:, i]):
            ax.plot(times, values[:, i], color=COLOURS[i % 7], marker=MARKERS[i % 7], markersize=3.5,
                    markevery=max(1, len(times) // 8), linewidth=1.2, label=name.replace("{}", f"{{{i + 1}}}"))
    ax.set(xlabel="time (mean service times)", ylabel=label)
    _legend_above(ax)
    return ax


@_styled
def limit_paths(study: Study, *, levels: int = 4, ax: Any = None) -> Any:
    """T_i(t) = eta (1 - S_i) for each n, with the band of one standard deviation over replicas, and the limit in black."""
    for k, n in enumerate(study.n):
        colour, marks = COLOURS[k % 6], slice(k, None, max(1, study.times.size // 8))
        for i in range(levels):
            mean, std = study.T_mean[k, :, i], study.T_std[k, :, i]
            ax.plot(study.times, mean, color=colour, linewidth=1, marker=MARKERS[k % 7], markersize=3.5, markevery=marks,
                    label=f"$n = {_power(n)}$" if i == 0 else None)
            ax.fill_between(study.times, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    for i in range(levels):
        ax.plot(study.times, study.T_limit[-1, :, i], color="black", linestyle="--", linewidth=1.2,
                label="limit, $n = \\infty$" if i == 0 else None)
        ax.annotate(f"$T_{i + 1}$", (study.times[-1], study.T_limit[-1, -1, i]), xytext=(3, 0), textcoords="offset points",
                    va="center", annotation_clip=False)
    ax.set(xlabel="time (mean service times)", ylabel=r"$T_i = \eta_n\,(1 - S_i)$", ylim=(0, None))
    _legend_above(ax)
    return ax


@_styled
def convergence(study: Study, *, ax: Any = None) -> Any:
    """Bias and fluctuation against n, both axes logarithmic, with 95 % errors, the finite-eta system and the slopes."""
    n = study.n.astype(float)
    names = {"bias": r"$|\,\overline{T} - T_{\rm limit}|$", "fluctuation": "std of $T$ over replicas"}
    for k, (name, words) in enumerate(names.items()):
        values, errors = getattr(study, name), 1.96 * getattr(study, f"{name}_stderr")
        label = words
        if study.slopes is not None:
            fit = study.slopes[name]
            label += f", slope ${fit['slope']:.3f} \\pm {1.96 * fit['stderr']:.3f}$"
            level = np.exp(np.mean(np.log(values) - fit["slope"] * np.log(n)))
            ax.plot(n, level * n ** fit["slope"], color=COLOURS[k], linewidth=1)
        ax.errorbar(n, values, yerr=errors, color=COLOURS[k], marker=MARKERS[k], markersize=5, linestyle="none", capsize=2,
                    label=label)
    expected = "" if study.slopes is None else f", slope ${study.slopes['bias']['finite_eta']:.3f}$"
    ax.plot(n, study.bias_finite, color="black", marker="x", linestyle=":", linewidth=1,
            label=r"the same of the finite-$\eta$ system" + expected)
    if study.slopes is not None:
        predicted = study.slopes["fluctuation"]["predicted"]
        level = np.exp(np.mean(np.log(study.fluctuation) - predicted * np.log(n)))
        ax.plot(n, level * n**predicted, color=COLOURS[1], linestyle="--", linewidth=1, label=f"predicted slope ${predicted:g}$")
    _log_n(ax, study.n)
    ax.set(yscale="log", ylabel=r"largest over $t$ and $i \leq 4$ of $d^{-i}\,|\cdot|$")
    ax.legend(loc="lower left")
    return ax


def study(result: Study) -> Any:
    """The figure of a scaling study: the paths beside the convergence. Returns the two axes."""
    import matplotlib.pyplot as plt

    beta = "" if result.beta == 1 else f"{result.beta:g}\\,"
    with plt.rc_context(_STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
        limit_paths(result, ax=left)
        convergence(result, ax=right)
        figure.suptitle(rf"Supermarket model, $d = {result.d}$, $\lambda_n = 1 - {beta}n^{{-{result.alpha:g}}}$: "
                        f"{result.replicas} replicas, bands of one standard deviation, errors of 95 %", fontsize=9)
    return left, right


def save(axes: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure of these axes (PNG, PDF or SVG by the ending) and close it. Raises ValueError if it cannot."""
    import matplotlib.pyplot as plt

    figure = np.ravel(axes)[0].figure
    try:
        figure.savefig(path, dpi=200, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise ValueError(f"the figure needs a path that can be written, ending in .png, .pdf or .svg; got {str(path)!r} "
                         f"({error})") from error
    finally:
        plt.close(figure)


def _log_n(ax: Any, sizes: Any) -> None:
    """A logarithmic axis of n labelled at the sizes that were run: labels between them run into each other."""
    from matplotlib.ticker import NullFormatter

    ax.set(xscale="log", xlabel="servers $n$")
    ax.set_xticks(sizes, labels=[f"${_power(n)}$" for n in sizes])
    ax.xaxis.set_minor_formatter(NullFormatter())


def _legend_above(ax: Any) -> None:
    ax.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0, handletextpad=0.4)


def _power(n: int) -> str:
    exponent = round(np.log10(n))
    return f"10^{{{exponent}}}" if n == 10**exponent else f"{n}"


def pull(result: Any) -> Any:
    """The figure of a PULL study: P(wait) against n for each R, and the mean response time. Returns the two axes."""
    import matplotlib.pyplot as plt

    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.0), layout="constrained")
        for ax, name, other, label in ((axes[0], "p_wait", "supermarket_p_wait", "P(wait)"),
                                       (axes[1], "mean_response_time", "supermarket_response_time", "mean response time")):
            for j, routers in enumerate(result.routers):
                ax.errorbar(result.n, getattr(result, name)[:, j], yerr=1.96 * getattr(result, f"{name}_stderr")[:, j],
                            color=COLOURS[j % 6], marker=MARKERS[j % 7], markersize=4, linewidth=1, capsize=2,
                            label=f"PULL, $R = {routers}$")
            if np.all(np.isfinite(getattr(result, other))):
                ax.errorbar(result.n, getattr(result, other), yerr=1.96 * getattr(result, f"{other}_stderr"), color="black",
                            marker="X", markersize=4, linestyle="--", linewidth=1, capsize=2, label="shorter of two")
            _log_n(ax, result.n)
            ax.set(ylabel=label)
        axes[0].set_yscale("log")
        axes[1].legend()
        figure.suptitle(rf"PULL at $\lambda = {result.arrival_rate:g}$ per server: {result.replicas} replicas, errors of 95 %",
                        fontsize=9)
    return tuple(axes)


@_styled
def bike_sharing(result: Any, *, ax: Any = None) -> Any:
    """Problematic stations against fleet size, with the choice between two stations and without. Returns the axes."""
    for k, (values, best, least, label) in enumerate((
            (result.problematic, result.best_fleet, result.best_problematic, "emptier of two stations"),
            (result.plain_problematic, result.plain_best_fleet, result.plain_best_problematic, "one station"))):
        ax.plot(result.fleet, values, color=COLOURS[k], linestyle=("-", "--")[k], linewidth=1.2, label=label)
        ax.plot(best, least, color=COLOURS[k], marker=MARKERS[k], markersize=5)
    ax.set(xlabel="bikes per station", ylabel="fraction of problematic stations", yscale="log")
    ax.legend()
    return ax


@_styled
def graph_gap(result: Any, *, ax: Any = None) -> Any:
    """Mean queue length above the clique's mean field against the mean degree, 95 % errors, with the pair approximation."""
    for k, kind in enumerate(dict.fromkeys(result.kind.tolist())):
        mine = result.kind == kind
        ax.errorbar(result.mean_degree[mine], result.gap[mine], yerr=1.96 * result.gap_stderr[mine], color=COLOURS[k],
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
    ax.legend(title=rf"$n = {result.n}$, $d = {result.d}$, $\lambda = {result.arrival_rate:g}$")
    return ax
