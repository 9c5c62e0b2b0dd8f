"""The command line's flags of a graph, and how they make its model."""

from __future__ import annotations

import argparse
import math
from typing import Any

from . import _check
from .flags import Parser, capacity, integer, number, numbers_in

_FAMILIES = ("ring", "torus", "complete", "regular", "erdos-renyi")
#: The graphs that a flag is for.
_OF = {"--n": _FAMILIES, "--rows": ("torus",), "--degree": ("ring", "regular", "erdos-renyi"),
       "--graph-seed": ("regular", "erdos-renyi")}


def graph_flags(parser: Parser) -> None:
    """Flags of `GraphSupermarket`."""
    parser.add_argument("--graph", required=True, metavar="ring|torus|complete|regular|erdos-renyi|FILE.npz",
                        help="a family, or an adjacency matrix from scipy.sparse.save_npz")
    parser.add_argument("--n", type=integer, help="number of vertices (not for a file)")
    parser.add_argument("--rows", type=integer, help="of a torus (default: square)")
    parser.add_argument("--degree", type=number, help="of a regular graph or ring (default 2), or the mean one of erdos-renyi")
    parser.add_argument("--graph-seed", type=integer, help="of a random graph (default 0)")
    parser.add_argument("--d", type=integer, required=True, help="servers a customer compares, its own included")
    parser.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="per vertex")
    parser.add_argument("--buffer", type=capacity, default=None, help="customers a server holds (default: inf)")
    parser.add_argument("--replacement", action="store_true", help="draw neighbours with replacement, the own vertex among them")
    parser.add_argument("--service-rates", nargs="+", default=None, metavar="FILE|MU",
                        help="one number per vertex, or a text file of them (default: 1 each)")


def graph(options: argparse.Namespace) -> Any:
    """The `GraphSupermarket` of the flags."""
    from . import graphs
    from .models.graph import GraphSupermarket

    name, n, seed = options.graph, options.n, options.graph_seed or 0
    if not name.endswith(".npz") and name not in _FAMILIES:
        raise ValueError(f"--graph must be {', '.join(_FAMILIES)} or a file ending in .npz; got {_check.shown(name)}")
    for flag, families in _OF.items():
        value = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if value is not None and name not in families:
            raise ValueError(f"{flag} is for --graph {', '.join(families)}; got {flag} {_check.shown(value)} with "
                             f"--graph {_check.short(name)}; leave it out")
    if name.endswith(".npz"):
        made = graphs.load(name)
    elif n is None:
        raise ValueError(f"--graph {name} needs --n, the number of vertices; got none")
    elif name == "torus":
        n = _check.integer("--n", n, 9)
        rows = math.isqrt(n) if options.rows is None else _check.integer("--rows", options.rows, 3)
        if rows * (n // rows) != n:
            raise ValueError(f"a torus needs --n divisible by its rows, square unless --rows is given; got n={n} with {rows} rows")
        made = graphs.torus(rows, n // rows)
    elif name == "complete":
        made = graphs.complete(n)
    elif options.degree is None and name != "ring":
        raise ValueError(f"--graph {name} needs --degree; got none")
    elif name == "erdos-renyi":
        made = graphs.erdos_renyi(n, options.degree, seed)
    else:
        degree = 2.0 if options.degree is None else options.degree
        if degree != int(degree):
            raise ValueError(f"--degree of a {name} graph must be an integer; got {degree:g}")
        made = graphs.ring(n, int(degree)) if name == "ring" else graphs.random_regular(n, int(degree), seed)
    return GraphSupermarket(made, options.d, options.arrival_rate, options.replacement, options.buffer,
                            service_rates=_vertex_rates(options.service_rates))


def _vertex_rates(words: list[str] | None) -> list[float] | None:
    """The numbers of --service-rates, or those in the file it names."""
    if words is None:
        return None
    required = "--service-rates must be one number per vertex or a text file of them"
    try:
        return [float(word) for word in words]
    except ValueError:
        if len(words) > 1:
            raise ValueError(f"{required}; got {_check.shown(' '.join(words))}") from None
    return numbers_in(words[0], required)
