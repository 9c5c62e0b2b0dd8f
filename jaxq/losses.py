"""Customers lost at full servers, and what a run that saw few of them may believe.

The balance of all customers, arrivals - losses - services, and that of their square sharpen every mean of a steady state, but only
where a run has seen losses as often as they are: in a run that by chance saw few, they are wrong by those it missed, and the error
they leave is too small. So unless many samples have losses the error of their number joins that of every mean: that of two more
samples with losses, as Agresti and Coull 1998, doi:10.2307/2685469, add two successes, each with as many customers as those seen or
as are lost in one spell at full servers, 1/(1 - load) in M/M/1/B.
"""

from __future__ import annotations

import math

import numpy as np

from .chain import Model, Steady
from .estimate import FEW, carriers

EVERYONE = 1  # number of the balance of all customers among the controls


class Losses:
    """Losses of the samples of a run.

    Args: known, of the steady state; the model; lost (samples,), customers, or None where it does not tell; time, of all samples
      together.
    """

    def __init__(self, known: Steady, model: Model, lost: np.ndarray | None, time: float) -> None:
        servers = self._servers = int(model.n)
        self._sampled, self._time = int(getattr(model, "d", 1)), time
        load = (known.arrivals or 0.0) / (servers * np.dot(known.rates, known.fractions)) if known.rates is not None else 0.0
        lost = None if lost is None else lost.astype(float)
        self._often = known.lossless or lost is None or bool(lost.any() and carriers(lost) >= min(FEW, lost.size / 2))
        #: error of the number of customers lost where few were seen; 0 where none is or many were, nan where nobody knows
        self.missed = 0.0 if self._often and (known.lossless or lost is not None) else math.nan
        if lost is not None and not self._often:
            seen, spell = float(np.sum(lost**2)), 1 / (1 - load) if load < 1 else 0.0 if lost.any() else math.inf
            self.missed = math.sqrt(seen + 2 * max(seen / carriers(lost), spell**2))

    def balances(self, second: np.ndarray, flow: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray]:
        """The controls (samples, controls) that hold in this run, and what missed losses add to each, (controls,); nan: unknown.

        They are the balance of the square of all customers, `second` (samples,), of all customers, then of levels 1, 2, ... of each
        pool, `flow` (samples, pools, levels), per server and unit of time. most: the most customers per server seen at a time.
        """
        everyone, levels = np.column_stack([second, flow.sum(axis=(1, 2))]), np.moveaxis(flow, 1, 2).copy()
        if not self._often:
            for pool in range(flow.shape[1]):  # the highest level that a server reached, and where it may have been full
                levels[:, np.max(np.flatnonzero(flow[:, pool].any(axis=0)), initial=0), pool] = 0.0
        unseen = np.zeros(2 + levels[0].size) if math.isfinite(self.missed) else np.full(2 + levels[0].size, math.nan)
        # when a customer is lost, those sampled are full beside the most that was seen
        queue = min(most + self._sampled * flow.shape[2] / self._servers, flow.shape[2])
        unseen[:2] -= self.missed / (self._servers * self._time) * np.array([2 * queue + 1 / self._servers, 1.0])
        return np.column_stack([everyone, levels.reshape(second.size, -1)]), unseen
