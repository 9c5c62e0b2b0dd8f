"""Figures of results: no simulation here, only drawing. Each function takes `ax=` (or makes a figure) and returns the axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _check
from .ensemble import Ensemble
from .linear_noise import LinearNoise
from .mean_field import MeanField
from .plot_steady import bike_sharing as bike_sharing
from .plot_steady import blocking as blocking
from .plot_steady import fit as fit
from .plot_steady import graph_gap as graph_gap
from .plot_steady import pull as pull
from .plot_steady import stationary as stationary
from .plot_style import COLOURS, MARKERS, STYLE, legend, legend_above, log_n, power, shows, styled
from .plot_style import save as save
from .study import Study


@shows(Ensemble)
@styled
def tails(result: Any, mean_field: Any = None, *, levels: int = 5, ax: Any = None) -> Any:
    """S_i(t), the fraction of servers with at least i customers, with 95 % error bars, and a `MeanField` as dashed lines.

    Args: result, an `Ensemble`; mean_field, a `MeanField`, or a `LinearNoise`, which adds the band that holds 95 % of single
    systems (far wider than the error bars, which are those of the mean over replicas); levels, how many from level 1.
    Returns the axes. Raises ValueError for anything else.

    Example::

        >>> result = jaxq.simulate(jaxq.Supermarket(100, 2, 0.9), [0.0, 5.0], key=0, replicas=50)
        >>> jaxq.plot.tails(result, levels=2).get_legend_handles_labels()[1]
        ['$S_1$', '$S_2$']
    """
    if mean_field is not None:
        _check.instance("mean_field", mean_field, (MeanField, LinearNoise), "what jaxq.mean_field or jaxq.linear_noise returned")
    noise = mean_field if isinstance(mean_field, LinearNoise) else None
    for i in range(min(levels, result.tail_mean.shape[1])):
        colour, mean, error = COLOURS[i % 7], result.tail_mean[:, i], 1.96 * result.tail_stderr[:, i]
        ax.errorbar(result.times, mean, yerr=error, color=colour, marker=MARKERS[i % 7], markersize=3.5, capsize=2, elinewidth=0.8,
                    linewidth=1, linestyle="none" if mean_field is not None else "-", label=f"$S_{i + 1}$")
        if mean_field is not None and i < mean_field.tail.shape[1]:
            ax.plot(mean_field.times, mean_field.tail[:, i], color=colour, linestyle="--", linewidth=1.2)
        if noise is not None and i < noise.tail.shape[1]:
            centre, width = noise.refined_tail[:, i], 1.96 * noise.tail_stdev[:, i]
            ax.fill_between(noise.times, centre - width, centre + width, color=colour, alpha=0.15, linewidth=0)
    if mean_field is not None:
        ax.plot([], [], color="black", linestyle="--", label="mean field")
    if noise is not None:
        ax.fill_between([], [], [], color="black", alpha=0.15, linewidth=0, label="95 % of single systems")
    alike = result.model["name"] in ("Supermarket", "GraphSupermarket") and result.model.get("service_rates") is None
    ax.set(xlabel=f"time ({'mean service times' if alike else 'unit of the rates'})",
           ylabel="fraction of servers with at least $i$ customers", ylim=(0, 1.02))
    legend_above(ax)
    return ax


@styled
def curves(times: Any, values: Any, name: str, label: str, *, ax: Any = None) -> Any:
    """Solid curves of a solved system, values (time, level) at times (time,), one per level, named like "$T_{}$", with the
    axes' label. Returns the axes. Raises ValueError for values of another shape.

    Example::

        >>> axes = jaxq.plot.curves([0.0, 1.0], [[0.5, 0.2], [0.6, 0.3]], "$S_{}$", "fraction of servers")
        >>> axes.get_legend_handles_labels()[1], axes.get_xlabel()
        (['$S_{1}$', '$S_{2}$'], 'time (unit of the rates)')
    """
    times, values = _check.times(times, "times"), _check.grid("values", values)
    for text_of, text in (("name", name), ("label", label)):
        _check.instance(text_of, text, str, "text")
    if values.ndim != 2 or len(values) != times.size or not values.size:
        raise ValueError(f"values must be (time, level) at {times.size} times; got shape {values.shape}")
    for i in range(values.shape[1]):
        if np.any(values[:, i]):
            ax.plot(times, values[:, i], color=COLOURS[i % 7], marker=MARKERS[i % 7], markersize=3.5,
                    markevery=max(1, len(times) // 8), linewidth=1.2, label=name.replace("{}", f"{{{i + 1}}}"))
    ax.set(xlabel="time (unit of the rates)", ylabel=label)
    legend_above(ax)
    return ax


@shows(Study)
@styled
def limit_paths(study: Study, *, levels: int = 4, ax: Any = None) -> Any:
    """T_i(t) = eta (1 - S_i) for each n, with the band of one standard deviation over replicas, and the limit in black.

    Args: study, a `Study`; levels, how many from level 1. Returns the axes. Raises ValueError for anything else.

    Example::

        >>> study = jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3)
        >>> [text.get_text() for text in jaxq.plot.limit_paths(study).texts]
        ['$T_1$', '$T_2$', '$T_3$', '$T_4$']
    """
    levels = min(levels, study.T_mean.shape[2])
    for k, n in enumerate(study.n):
        colour, marks = COLOURS[k % 6], slice(k, None, max(1, study.times.size // 8))
        for i in range(levels):
            mean, std = study.T_mean[k, :, i], study.T_std[k, :, i]
            ax.plot(study.times, mean, color=colour, linewidth=1, marker=MARKERS[k % 7], markersize=3.5, markevery=marks,
                    label=f"$n = {power(n)}$" if i == 0 else None)
            ax.fill_between(study.times, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0)
    for i in range(levels):
        ax.plot(study.times, study.T_limit[-1, :, i], color="black", linestyle="--", linewidth=1.2,
                label="limit, $n = \\infty$" if i == 0 else None)
        ax.annotate(f"$T_{i + 1}$", (study.times[-1], study.T_limit[-1, -1, i]), xytext=(5, 0), textcoords="offset points",
                    va="center", annotation_clip=False)
    ax.set(xlabel="time (mean service times)", ylabel=r"$T_i = \eta_n\,(1 - S_i)$", ylim=(0, None))
    legend_above(ax)
    return ax


@shows(Study)
@styled
def convergence(study: Study, *, ax: Any = None) -> Any:
    """Bias and fluctuation against n, both axes logarithmic, with 95 % errors, the finite-eta system and the slopes.

    Args: study, a `Study`. Returns the axes. Raises ValueError for anything else.

    Example::

        >>> axes = jaxq.plot.convergence(jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3))
        >>> axes.get_xscale(), axes.get_yscale(), axes.get_xlabel()
        ('log', 'log', 'servers $n$')
    """
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
            label=r"$|\,T - T_{\rm limit}|$ of the finite-$\eta$ system" + expected)
    if study.slopes is not None:
        predicted = study.slopes["fluctuation"]["predicted"]
        level = np.exp(np.mean(np.log(study.fluctuation) - predicted * np.log(n)))
        ax.plot(n, level * n**predicted, color=COLOURS[1], linestyle="--", linewidth=1, label=f"predicted slope ${predicted:g}$")
    log_n(ax, study.n)
    ax.set(yscale="log", ylabel=r"largest over $t$ and $i \leq 4$ of $d^{-i}\,|\cdot|$")
    legend(ax, loc="lower left")
    return ax


@shows(Study)
def study(result: Study) -> Any:
    """The figure of a scaling study: the paths beside the convergence. Returns the two axes. Raises ValueError for any result
    but a `Study`.

    Example::

        >>> left, right = jaxq.plot.study(jaxq.scaling_study(2, 1.0, n=[2_500, 10_000], t_end=1.0, replicas=10, key=0, num_times=3))
        >>> left.get_xlabel(), right.get_xlabel()
        ('time (mean service times)', 'servers $n$')
    """
    import matplotlib.pyplot as plt

    beta = "" if result.beta == 1 else f"{result.beta:g}\\,"
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
        limit_paths(result, ax=left)
        convergence(result, ax=right)
        figure.suptitle(rf"Supermarket model, $d = {result.d}$, $\lambda_n = 1 - {beta}n^{{-{result.alpha:g}}}$: "
                        f"{result.replicas} replicas, bands of one standard deviation, errors of 95 %", fontsize=9)
    return left, right
