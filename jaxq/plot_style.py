"""What all figures share: colours, style, axes of n, and writing them to a file."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

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

        with plt.rc_context(STYLE):
            if ax is None:
                ax = plt.subplots(figsize=(5.2, 3.8), layout="constrained")[1]
            return draw(*args, ax=ax, **options)

    return drawn


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


def log_n(ax: Any, sizes: Any) -> None:
    """A logarithmic axis of n labelled at the sizes that were run: labels between them run into each other."""
    from matplotlib.ticker import NullFormatter

    ax.set(xscale="log", xlabel="servers $n$")
    ax.set_xticks(sizes, labels=[f"${power(n)}$" for n in sizes])
    ax.xaxis.set_minor_formatter(NullFormatter())


def legend_above(ax: Any) -> None:
    """The legend in one row above the axes."""
    ax.legend(ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0, handletextpad=0.4)


def power(n: int) -> str:
    """n as TeX, a power of ten where it is one."""
    exponent = round(np.log10(n))
    return f"10^{{{exponent}}}" if n == 10**exponent else f"{int(n)}"
