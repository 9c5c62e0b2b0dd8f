"""Exact solutions: two parallel queues (`two_queues`), and any small chain by enumeration of its states.

`stationary` and `transient` walk through every state that a model's `jumps` and `rates` (at inverse_n = 1/n) can reach, build
the sparse generator and solve it: by elimination without subtractions, which gives every probability full relative accuracy,
where the band is narrow enough, else by sparse LU; and by uniformisation in time.

Sources: Grassmann, Taksar and Heyman 1985, doi:10.1287/opre.33.5.1107; Jensen 1953, doi:10.1080/03461238.1953.10419459.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check
from .chain import Model
from .ensemble import Result, describe
from .enumeration import MOST_STATES as MOST_STATES
from .enumeration import Enumerable as Enumerable
from .enumeration import enumerated
from .two_queue_law import ExactTwoQueues as ExactTwoQueues
from .two_queue_law import blocking as blocking
from .two_queue_law import blocking_pooled as blocking_pooled
from .two_queue_law import blocking_single as blocking_single
from .two_queue_law import two_queues as two_queues

_BAND = 4e9      # multiplications of a banded elimination; wider chains go to sparse LU
_CELLS = 6e7     # numbers of its band
_STEPS = 5e10    # multiplications of a uniformisation
_NEGLECTED = 1e-14


@dataclass(frozen=True)
class ExactStationary(Result):
    """Stationary law of a finite chain: `tail` (level,), the expected fraction of servers with at least i customers,
    `mean_queue_length` per server, and the law itself: `states` (state, row), integer counts as the model's `jumps` change
    them, with their `probability` (state,). `method` is "elimination" (relative accuracy) or "lu", `residual` the largest
    |probability @ generator| as a share of the largest rate.

    Example::

        >>> law = jaxq.exact.stationary(jaxq.TwoQueues(1, 1.0))
        >>> law.states.tolist(), law.probability.round(6).tolist()
        ([[0, 0], [1, 0], [0, 1], [1, 1]], [0.4, 0.2, 0.2, 0.2])
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"tail": ("level",), "states": ("state", "row"), "probability": ("state",)}
    json_keys: ClassVar[tuple[str, ...]] = ("tail", "mean_queue_length")

    tail: np.ndarray
    mean_queue_length: float
    states: np.ndarray
    probability: np.ndarray
    method: str
    residual: float


@dataclass(frozen=True)
class ExactTransient(Result):
    """Expectations of a finite chain from a fixed start: `times` (time,), `tail` (time, level) expected fractions of servers
    with at least i customers, `mean_queue_length` (time,) per server. `error` bounds what uniformisation leaves out, as a
    probability.

    Example::

        >>> law = jaxq.exact.transient(jaxq.TwoQueues(1, 1.0), [0.0, 100.0])
        >>> law.mean_queue_length.round(6).tolist()
        [0.0, 0.4]
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"times": ("time",), "tail": ("time", "level"),
                                                  "mean_queue_length": ("time",)}
    json_keys: ClassVar[tuple[str, ...]] = ("times", "tail", "mean_queue_length")

    times: np.ndarray
    tail: np.ndarray
    mean_queue_length: np.ndarray
    error: float


def stationary(model: Model) -> ExactStationary:
    """The exact stationary law of a small chain.

    Args: model, a `PopulationModel` or a model with the members of `Enumerable`, finite: with a buffer or a capacity.

    Raises ValueError for an infinite chain, more than 200 000 states, a chain with several closed classes, or rates that are
    negative or lead to negative counts. Source: Grassmann, Taksar and Heyman 1985, doi:10.1287/opre.33.5.1107.

    Example::

        >>> law = jaxq.exact.stationary(jaxq.Supermarket(2, 2, 0.5, buffer=1))  # busy servers: up 1, 3/4; down 1, 2
        >>> (19 * law.probability).round(6).tolist()
        [8.0, 8.0, 3.0]
    """
    states, generator, tails = enumerated(model, None, fixed=False)
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(generator, connection="strong")
    rows, columns = generator.nonzero()
    left = np.unique(label[rows][label[rows] != label[columns]])
    if count - left.size != 1:
        raise ValueError(f"stationary needs a chain with one closed class of states; got {count - left.size} in "
                         f"{_check.shown(model)}")
    closed = np.flatnonzero(~np.isin(label, left))
    inner = generator[closed][:, closed].tocsr()
    solution, method = _solve(inner)
    out = inner.sum(axis=1)
    residual = float(np.max(np.abs(inner.T @ solution - out * solution)) / max(out.max(), 1e-300))
    if not (residual < 1e-12 and solution.min() > -1e-12):
        raise ValueError(f"stationary must solve to a residual of 1e-12; got {residual:.2g} with {closed.size} states; "
                         "use a smaller buffer")
    probability = np.zeros(len(states))
    probability[closed] = solution
    tail = probability @ tails
    return ExactStationary({"model": describe(model)}, tail, float(tail.sum()), states, probability, method, residual)


def transient(model: Model, ts: Any, initial: Any = None) -> ExactTransient:
    """Exact expectations at the times `ts` of a small chain that starts in `initial` (None: empty) at time 0.

    By uniformisation: a Poisson number of steps of the jump chain, cut where less than 1e-14 of the probability is left.

    Args: model as for `stationary`; ts (time,) >= 0, increasing, in the unit of the model's rates; initial as `simulate` takes
    it, one state (PULL: counts).

    Raises ValueError as `stationary`, and for a horizon so long that the steps would take minutes.
    Source: Jensen 1953, doi:10.1080/03461238.1953.10419459.

    Example::

        >>> law = jaxq.exact.transient(jaxq.Supermarket(1, 1, 0.5, buffer=1), [0.0, 1.0])  # (1 - exp(-3t/2))/3
        >>> law.tail.round(4).tolist(), round((1 - float(np.exp(-1.5))) / 3, 4)
        ([[0.0], [0.259]], 0.259)
    """
    ts = _check.times(ts)
    if isinstance(model, Model) and model.clock() * ts[-1] > 1e6 * _STEPS:  # whatever the chain, before it is made
        raise ValueError(f"transient needs an earlier end of ts; got {ts[-1]:g}, of about {model.clock() * ts[-1]:.2g} steps; use "
                         "exact.stationary for the far future")
    _, generator, tails = enumerated(model, initial, fixed=True)
    from scipy.sparse import diags_array
    from scipy.stats import poisson

    out = generator.sum(axis=1)
    clock = float(out.max()) or 1.0
    mean, rare = clock * ts[-1], -np.log(_NEGLECTED)
    steps = int(mean + rare / 3 + np.sqrt(rare**2 / 9 + 2 * mean * rare)) + 1  # Bernstein's bound of the Poisson tail
    if steps * (generator.nnz + tails.size) > _STEPS:
        raise ValueError(f"transient needs fewer than {_STEPS / (generator.nnz + tails.size):.2g} steps for this chain; got about "
                         f"{steps:.2g} up to the last of ts, {ts[-1]:g}; use an earlier end, a smaller buffer, or exact.stationary")
    step = (generator / clock + diags_array(1 - out / clock)).T.tocsr()
    probability = np.zeros(len(out))
    probability[0] = 1.0
    tail, transposed = np.zeros((ts.size, tails.shape[1])), np.ascontiguousarray(tails.T)
    weights, first = np.zeros((ts.size, 0)), 0
    for k in range(steps + 1):
        if k == first + weights.shape[1]:
            first, weights = k, poisson.pmf(np.arange(k, k + 4096), clock * ts[:, None])
        if np.any(weights[:, k - first] > 1e-300):
            tail += weights[:, k - first, None] * (transposed @ probability)
        probability = step @ probability
    return ExactTransient({"model": describe(model)}, ts, tail, tail.sum(axis=1), _NEGLECTED)


def _solve(generator: Any) -> tuple[np.ndarray, str]:
    """Stationary vector of an irreducible chain with these off-diagonal rates, and how it was found."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order = reverse_cuthill_mckee(csr_array(generator + generator.T), symmetric_mode=True)
    entries = generator[order][:, order].tocoo()
    size, band = entries.shape[0], int(np.max(np.abs(entries.row - entries.col), initial=0))
    if size * band**2 <= _BAND and size * (2 * band + 1) <= _CELLS:
        solved, method = _eliminate(entries, size, band), "elimination"
    else:
        solved, method = _factorise(entries.tocsr()), "lu"
    solution = np.empty(size)
    solution[order] = solved / solved.sum()
    return solution, method


def _eliminate(entries: Any, size: int, band: int) -> np.ndarray:
    """GTH elimination, last state first, of rates with |row - column| <= band; row i of the band starts at column i - band."""
    flat = np.zeros(size * (2 * band + 1) + 1)
    flat[entries.row * 2 * band + entries.col + band] = entries.data
    item = flat.itemsize
    for k in range(size - 1, 0, -1):
        low = max(0, k - band)
        rates = flat[k * 2 * band + band + low: k * 2 * band + band + k]                      # from k to low..k-1
        into = np.lib.stride_tricks.as_strided(flat[low * 2 * band + band + k:], (k - low,), (2 * band * item,))
        square = np.lib.stride_tricks.as_strided(flat[low * 2 * band + band + low:], (k - low,) * 2, (2 * band * item, item))
        into /= rates.sum()
        square += into[:, None] * rates
    solution = np.zeros(size)
    solution[0] = 1.0
    for k in range(1, size):
        low = max(0, k - band)
        into = np.lib.stride_tricks.as_strided(flat[low * 2 * band + band + k:], (k - low,), (2 * band * item,))
        solution[k] = solution[low:k] @ into
        if solution[k] > 1e200:
            solution[: k + 1] *= 1e-200
    return solution


def _factorise(generator: Any) -> np.ndarray:
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    size = generator.shape[0]
    balance = (diags_array(generator.sum(axis=1)) - generator).T.tocsc()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factors = splu(balance[: size - 1, : size - 1], permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                       options={"SymmetricMode": True})
    return np.append(factors.solve(-balance[: size - 1, [size - 1]].toarray()[:, 0]), 1.0)
