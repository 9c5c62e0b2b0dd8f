"""The algorithms by name: a model as it is, or wrapped in what advances it otherwise."""

from __future__ import annotations

from . import _check
from .bulk import Bulk
from .chain import Model
from .leap import Leap

ALGORITHMS = ("exact", "bulk", "leap")


def choose(model: Model, algorithm: str, step: float | None = None, order: int | None = None) -> Model:
    """The model under an algorithm of `ALGORITHMS`. Raises ValueError for what does not go together."""
    _check.choice("algorithm", algorithm, ALGORITHMS)
    if algorithm == "leap":
        return Leap(model, step, 2 if order is None else order)  # type: ignore[arg-type]
    if step is not None or order is not None:
        raise ValueError(f"step and order belong to algorithm='leap'; got step={_check.shown(step)} and "
                         f"order={_check.shown(order)} with {algorithm!r}; leave them out")
    return Bulk(model) if algorithm == "bulk" else model  # type: ignore[arg-type]


def exact_model(model: Model) -> Model:
    """The model itself, without its algorithm."""
    return model.model if isinstance(model, (Bulk, Leap)) else model


def algorithm_of(model: Model) -> str:
    """The name of the algorithm."""
    return "leap" if isinstance(model, Leap) else "bulk" if isinstance(model, Bulk) else "exact"
