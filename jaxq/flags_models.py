"""The command line's flags of each model, and how they make it."""

from __future__ import annotations

import argparse
import math
from typing import Any

from . import _check
from .flags import Parser
from .flags_values import capacity, integer, number, numbers_in

_FAMILIES = ("ring", "torus", "complete", "regular", "erdos-renyi")
#: The graphs that a flag is for.
_OF = {"--n": _FAMILIES, "--rows": ("torus",), "--degree": ("ring", "regular", "erdos-renyi"),
       "--graph-seed": ("regular", "erdos-renyi")}


def supermarket_flags(parser: Parser, *, n_required: bool = True) -> None:
    """Flags of `Supermarket`."""
    group = parser.add_argument_group("model")
    group.add_argument("--n", type=integer, required=n_required, help="number of servers")
    group.add_argument("--d", type=integer, required=True, help="servers a customer samples")
    group.add_argument("--arrival-rate", type=number, metavar="LAMBDA", help="customers per server and mean service time, or:")
    parser.together(group.add_argument("--beta", type=number, metavar="BETA", help="lambda = 1 - beta/eta, with eta = n^alpha "
                                                                                   "(default 0.5) or eta itself"),
                    group.add_argument("--alpha", type=number, metavar="ALPHA", help="eta = n^alpha (default 0.5)"),
                    group.add_argument("--eta", type=number, metavar="ETA", help="eta itself"))
    group.add_argument("--buffer", type=capacity, default=None, metavar="B", help="customers a server holds (default: inf)")
    group.add_argument("--no-replacement", action="store_true", help="sample d distinct servers")
    pool_flags(parser, group)


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
    group = parser.add_argument_group("model")
    group.add_argument("--capacity", type=capacity, required=True, metavar="C", help="customers each queue holds, or inf")
    group.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="customers per unit of time, in all")
    group.add_argument("--service-rates", type=number, nargs=2, default=(1.0, 1.0), metavar=("MU1", "MU2"),
                       help="customers each queue serves per unit of time (default 1 1)")


def two_queues(options: argparse.Namespace) -> Any:
    """The `TwoQueues` of the flags."""
    from .models.two_queues import TwoQueues

    return TwoQueues(options.capacity, options.arrival_rate, tuple(options.service_rates))


def pull_flags(parser: Parser, *, many: bool = False) -> None:
    """Flags of `Pull`; `many`: lists of n and of routers."""
    count: Any = "+" if many else None
    group = parser.add_argument_group("model")
    group.add_argument("--n", type=integer, nargs=count, required=True, help="number of servers")
    group.add_argument("--routers", type=integer, nargs=count, required=True, metavar="R", help="number of routers; 1 is "
                       "join-idle-queue")
    group.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="customers per server and unit of time")
    pool_flags(parser, group)
    group.add_argument("--messages", choices=("withdraw", "stale"), default="withdraw",
                       help="of a server made busy by another router: deleted (default), or kept")


def pull(options: argparse.Namespace) -> Any:
    """The `Pull` of the flags."""
    from .models.pull import Pull

    return Pull(options.n, pools(options), options.routers, options.arrival_rate, options.messages)


def pool_flags(parser: Parser, group: Any) -> None:
    """Flags of pools of unlike servers."""
    parser.together(group.add_argument("--fractions", type=number, nargs="+", default=None, metavar="F",
                                       help="pools of unlike servers: their shares, rates (default 1) and buffers (inf)"),
                    group.add_argument("--service-rates", type=number, nargs="+", default=None, metavar="MU",
                                       help="of each pool (default 1)"),
                    group.add_argument("--buffers", type=capacity, nargs="+", default=None, metavar="B",
                                       help="of each pool, or inf (default)"))


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


def graph_flags(parser: Parser) -> None:
    """Flags of `GraphSupermarket`."""
    group = parser.add_argument_group("model")
    group.add_argument("--graph", required=True, metavar="GRAPH", help="ring, torus, complete, regular, erdos-renyi, or FILE.npz, "
                                                                       "an "
                       "adjacency matrix from scipy.sparse.save_npz")
    group.add_argument("--n", type=integer, help="number of vertices (not for a file)")
    group.add_argument("--rows", type=integer, help="of a torus (default: square)")
    parser.together(group.add_argument("--degree", type=number, metavar="DEGREE", help="of a regular graph or ring (default 2), or "
                                       "the mean one of erdos-renyi"),
                    group.add_argument("--graph-seed", type=integer, metavar="SEED", help="of a random graph (default 0)"))
    group.add_argument("--d", type=integer, required=True, help="servers a customer compares, its own included")
    group.add_argument("--arrival-rate", type=number, required=True, metavar="LAMBDA", help="customers per vertex and unit of time")
    group.add_argument("--buffer", type=capacity, default=None, metavar="B", help="customers a server holds (default: inf)")
    group.add_argument("--replacement", action="store_true", help="draw neighbours with replacement, the own vertex among them")
    group.add_argument("--service-rates", nargs="+", default=None, metavar="MU",
                       help="one rate per vertex, or a text file of them (default: 1 each)")


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
