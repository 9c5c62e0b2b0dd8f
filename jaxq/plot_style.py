"""What all figures share: colours, style, axes of n, and writing them to a file."""

from __future__ import annotations

import functools
import inspect
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _check, files

#: Okabe and Ito's colours, told apart by colour-blind readers and, with the markers, in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "font.size": 9,
          "legend.frameon": False, "legend.fontsize": 8, "figure.dpi": 150, "savefig.bbox": "tight"}


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draw in the project's style, leaving the user's settings as they are; without `ax` on a figure of its own."""

    @functools.wraps(draw)
    def drawn(*args: Any, ax: Any = None, **options: Any) -> Any:
        import matplotlib.pyplot as plt

        if ax is not None and not hasattr(ax, "errorbar"):
            raise ValueError(f"ax must be the axes of a figure, as plt.subplots() makes them; got {_check.shown(ax)}")
        with plt.rc_context(STYLE):
            axes = plt.subplots(figsize=(5.2, 3.8), layout="constrained")[1] if ax is None else ax
            try:
                return draw(*args, ax=axes, **options)
            except ValueError:
                if ax is None:
                    plt.close()
                raise

    return drawn


def shows(kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that draws a result of this class, its first argument: ValueError for anything else, before there is a figure."""

    def decorate(draw: Callable[..., Any]) -> Callable[..., Any]:
        name, *others = inspect.signature(draw).parameters

        @functools.wraps(draw)
        def drawn(*args: Any, **options: Any) -> Any:
            given = dict(zip((name, *others), args, strict=False)) | options
            _check.instance(name, given.get(name), kind, f"a result of the class {kind.__name__}")
            if "levels" in given:
                _check.integer("levels", given["levels"], 1)
            return draw(*args, **options)

        return drawn

    return decorate


def check_ending(path: Path) -> None:
    """ValueError for the path of a figure in no format that Matplotlib writes; without an ending it is a PNG."""
    from matplotlib.backend_bases import FigureCanvasBase

    if path.suffix and path.suffix[1:].lower() not in FigureCanvasBase.get_supported_filetypes():
        raise ValueError("the figure needs a path that can be written, ending in .png, .pdf or .svg; got "
                         f"{_check.shown(str(path))}; choose another ending")


def save(axes: Any, path: str | os.PathLike[str]) -> None:
    """Write the figure of these axes (PNG, PDF or SVG by the ending, else PNG), whole or not at all, and close it. Raises
    ValueError if it cannot.

    Example::

        >>> axes = jaxq.plot.curves([0.0, 1.0], [[0.5, 0.2], [0.6, 0.3]], "$S_{}$", "fraction of servers")
        >>> jaxq.plot.save(axes, "curves.png")
        >>> np.fromfile("curves.png", np.uint8)[1:4].tobytes()
        b'PNG'
    """
    import matplotlib.pyplot as plt

    figure: Any = next((getattr(one, "figure", None) for one in np.ravel(np.asarray(axes, object))), None)
    if not hasattr(figure, "savefig"):
        raise ValueError(f"axes must be what a function of jaxq.plot returned; got {_check.shown(axes)}")

    try:
        target = _check.path("path", path)
        check_ending(target)
        drawn = io.BytesIO()  # first: where a disk is full, Matplotlib's PDF fails with errors of its own
        figure.savefig(drawn, format=target.suffix[1:] or "png", dpi=200, bbox_inches="tight")
        files.write_whole(target if target.suffix or not target.name else target.with_suffix(".png"),
                          lambda partial: partial.write_bytes(drawn.getvalue()), "the figure")
    finally:
        plt.close(figure)


def log_n(ax: Any, sizes: Any) -> None:
    """A logarithmic axis of n labelled at the sizes that were run: labels between them run into each other."""
    from matplotlib.ticker import NullFormatter

    ax.set(xscale="log", xlabel="servers $n$")
    ax.set_xticks(sizes, labels=[f"${n if max(sizes) < 10**4 else power(n)}$" for n in sizes])
    ax.xaxis.set_minor_formatter(NullFormatter())


def legend(ax: Any, **options: Any) -> None:
    """The legend with the data, which have error bars, before the theory."""
    from matplotlib.container import ErrorbarContainer

    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(handles)), key=lambda k: not isinstance(handles[k], ErrorbarContainer))
    ax.legend([handles[k] for k in order], [labels[k] for k in order], **options)


def legend_above(ax: Any) -> None:
    """The legend in one row above the axes."""
    ax.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0, handletextpad=0.4)


def power(n: int) -> str:
    """n as TeX, a power of ten where it is one."""
    exponent = round(np.log10(n))
    return f"10^{{{exponent}}}" if n == 10**exponent else f"{int(n)}"
