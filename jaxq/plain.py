"""Values as netCDF attributes and JSON hold them, and whether what a file holds can be such a value."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def fits(annotation: str, value: Any) -> bool:
    """Whether an attribute of a file can be what a field of this type was saved as."""
    kind = annotation.partition(" ")[0].partition("[")[0]
    if kind in ("int", "bool", "float"):
        whole = isinstance(value, (int, np.integer)) or str(value).removeprefix("-").isdigit()  # text beyond 64 bits
        return whole or (kind == "float" and isinstance(value, (float, np.floating)))
    if kind in ("dict", "tuple"):
        try:
            return isinstance(json.loads(value), dict if kind == "dict" else list)
        except (TypeError, ValueError):
            return False
    return kind != "str" or isinstance(value, str)


def plain(value: Any) -> Any:
    """A value netCDF can hold: numbers, text, or JSON text of anything else."""
    value = value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, (float, str)):
        return value
    return json.dumps(jsonable(value))


def jsonable(value: Any) -> Any:
    """A value JSON can hold: arrays as lists, nan and infinities as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
