"""Text tables for the terminal: aligned columns, values with their errors."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Right-aligned columns; numbers to seven digits, text as it is."""
    cells = [header] + [[cell if isinstance(cell, str) else f"{cell:.7g}" for cell in row] for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def tails(times: Any, queue: Any, tail: Any, queue_error: Any = None, tail_error: Any = None) -> str:
    """Mean queue length (time,) and tails (time, level) against time, with standard errors if given.

    Empty levels are left out, and solved ones that stay below 1e-9.
    """
    least = 0.0 if queue_error is not None else 1e-9
    used = [i for i in range(tail.shape[1]) if np.max(tail[:, i]) > least] or [0]
    rows = []
    for k, t in enumerate(times):
        values = [(queue[k], None if queue_error is None else queue_error[k])]
        values += [(tail[k, i], None if tail_error is None else tail_error[k, i]) for i in used]
        rows.append([t, *(value if error is None else pm(value, error) for value, error in values)])
    note = "" if queue_error is None else ("\nQ: customers per server; S_i: fraction of servers with at least i; "
                                           "+- one standard error")
    return table(["time", "Q", *(f"S_{i + 1}" for i in used)], rows) + note


def lines(pairs: list[tuple[str, str]], width: int | None = None) -> str:
    """Names and what they are, a line each."""
    width = max(len(name) for name, _ in pairs) + 2 if width is None else width
    return "\n".join(f"{name:{width}}{text}" for name, text in pairs)


def comma_separated(result: Any) -> str:
    """A result (`jaxq.ensemble.Result`) as CSV: a line for each number, with its labels and its standard error where it has one.

    Numbers of single replicas are left out; all digits are kept.
    """
    labels = result.coordinates()
    names = [name for name, dims in result.dims.items() if getattr(result, name) is not None
             and not set(dims) & {"replica", "control"} and name not in (*labels, "times")]
    scalars = [name for name, value in vars(result).items()
               if name not in result.dims and isinstance(value, (int, float, np.number))]
    errors = {name: error for name in (*names, *scalars) for error in (f"{name}_stderr", f"{name.removesuffix('_mean')}_stderr")
              if error in names or error in scalars}
    used = list(dict.fromkeys(dim for name in names for dim in result.dims[name]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["quantity", *used, "value", "stderr"])
    for name in (*names, *scalars):
        if name in errors.values():
            continue
        values = np.asarray(getattr(result, name))
        stderr = np.asarray(getattr(result, errors[name])) if name in errors else None
        dims = result.dims.get(name, ())
        for index in np.ndindex(values.shape):
            at = dict(zip(dims, index, strict=True))
            row = [_plain(labels.get(dim, np.arange(1 + at[dim]))[at[dim]]) if dim in at else "" for dim in used]
            error = "" if stderr is None else _plain(stderr[index])
            writer.writerow([name.removesuffix("_mean"), *row, _plain(values[index]), error])
    return text.getvalue().rstrip("\n")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def levels(tail: Any) -> str:
    """A stationary tail (level,), one line a level."""
    return table(["i", "S_i"], [[i + 1, value] for i, value in enumerate(tail) if value > 1e-12])


def pm(value: float, error: float) -> str:
    """value +- error, the error to two digits."""
    if not math.isfinite(error):
        return f"{value:.6g} +- ?"
    if error <= 1e-12 * abs(value):
        return f"{value:.10g} +- 0"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} +- {error:.{digits}f}" if digits < 12 else f"{value:.2e} +- {error:.1e}"
