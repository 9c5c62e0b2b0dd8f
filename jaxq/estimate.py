"""Means and standard errors from independent samples, sharpened by controls: quantities whose mean is known to be 0.

Regression on controls (Lavenberg and Welch 1981, doi:10.1287/mnsc.27.3.322): the mean of y is the intercept of the regression
of y on the controls, unbiased for jointly normal samples. Averages over short windows are not normal, and their residuals are
widest where the controls are far out: the errors are those of MacKinnon and White 1985, doi:10.1016/0304-4076(85)90158-7 (HC3,
each residual over one minus its leverage). With 16 samples for each control their intervals held in every system we tried, with 4
they did not.

Rare events make both wrong. Where controls leave of a value only what a few samples have, or nothing because it follows from them
in the states seen (at light load, where no look saw a third customer, S_2 and Q do), the error they leave is none. Such a value
keeps its plain mean, unless it follows from one control known to hold. And where few samples carry a value at all, its error is
that of two more like them (Agresti and Coull 1998, doi:10.2307/2685469).

For a chain in steady state every generator image has mean 0, E[(G f)(X)] = 0. With f the fraction of servers with at least i
customers these are the flow balances, E S_1 = lambda and E S_i = lambda E w(S_{i-1}) for the supermarket model; with f the
square of the mean queue length it is the balance of second moments, which holds most of what the first leave.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SAMPLES_PER_CONTROL = 16
_NEW = 1e-6       # share of a control's spread that those before it must leave,
_RARE = 10.0      # and kurtosis from which what they leave is up to a few samples: rare events would fit themselves, not their mean
_ROUNDING = 1e-9  # share of a value's spread below which controls leave nothing of it
FEW = 16          # samples that must carry what they leave of it, or a tenth of all
MISSED = 2**0.5   # error of the number of events of which none was seen


class Regression:
    """Regression of samples on controls.

    Args: controls (samples, controls), in order of importance; one for 16 samples at most, the first ones. unseen (controls,): by
      how much rare events that no sample has may move each control, all together; nan where nobody knows. exact: number of a
      control; a value that is a multiple of it but for a constant is known as exactly.
    """

    def __init__(self, controls: np.ndarray, unseen: Any = 0.0, exact: int | None = None) -> None:
        self.samples = controls.shape[0]
        kept = _independent(controls)[: self.samples // SAMPLES_PER_CONTROL]
        unseen = np.broadcast_to(np.asarray(unseen, float), controls.shape[1:])
        self._fits = [_Fit(controls[:, columns], unseen[columns]) for columns in (kept, [] if exact is None else [exact], [])]
        #: degrees of freedom of the t interval
        self.dof = self.samples - 1 - len(kept)

    def means(self, values: np.ndarray) -> tuple[Any, Any]:
        """Means (...,) of values (samples, ...) and their standard errors."""
        flat = values.reshape(self.samples, -1)
        (mean, error, rest, unseen), alone, plain = (fit.estimate(flat) for fit in self._fits)
        left, all_but_rounding = np.linalg.norm(rest, axis=0), _ROUNDING * np.linalg.norm(plain[2], axis=0)
        rare = carriers(rest) < min(FEW, self.samples / _RARE)
        worse = np.where(unseen == 0, rare, plain[1] < error) | np.isnan(unseen) & rare
        follows = (np.linalg.norm(alone[2], axis=0) <= all_but_rounding) & (all_but_rounding > 0) & np.isfinite(alone[3])
        chosen = np.where(follows, 1, np.where(worse | (left <= all_but_rounding), 2, 0))
        mean, error = (np.choose(chosen, parts) for parts in ((mean, alone[0], plain[0]), (error, np.abs(alone[3]), plain[1])))
        error = np.maximum(error, 4 * np.finfo(float).eps * np.max(np.abs(flat), axis=0))  # where controls leave rounding only
        return mean.reshape(values.shape[1:]), error.reshape(values.shape[1:])

    def ratio(self, numerator: np.ndarray, denominator: np.ndarray) -> tuple[Any, Any]:
        """Ratio of means (...,) and its standard error, by linearisation."""
        below = self.means(denominator)[0]
        value = self.means(numerator)[0] / below
        more, error = self.means((numerator - value * denominator) / below)
        return value + more, error

    def variance(self, values: np.ndarray, squares: np.ndarray) -> tuple[Any, Any]:
        """Mean of the squares minus the square of the mean, (...,), and its standard error, by linearisation."""
        mean = self.means(values)[0]
        less, error = self.means(squares - 2 * mean * values)
        return np.maximum(less + mean**2, 0.0), error


class _Fit:
    """The regression on these controls (samples, controls), of which rare events move each by `unseen`."""

    def __init__(self, controls: np.ndarray, unseen: np.ndarray) -> None:
        samples, mean = controls.shape[0], controls.mean(axis=0)
        self._basis, triangle = np.linalg.qr(controls - mean)
        if not np.all(np.diag(triangle)):  # a constant says nothing
            self._basis, triangle, mean, unseen = np.zeros((samples, 0)), np.zeros((0, 0)), np.zeros(0), np.zeros(0)
        # the mean of y is the sum of weights * y; a sample's leverage says how far it pulls the regression towards itself
        self._weights = (1 / samples - self._basis @ np.linalg.solve(triangle.T, mean))[:, None]
        leverage = 1 / samples + np.einsum("sk,sk->s", self._basis, self._basis)
        self._own = np.maximum(1 - leverage, 1 / samples)[:, None]
        self._unseen = np.linalg.solve(triangle.T, unseen)

    def estimate(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Means of values (samples, columns), errors, what the controls leave, and by how much `unseen` moves the means."""
        centred = values - values.mean(axis=0)
        slopes = self._basis.T @ centred
        rest, unseen = centred - self._basis @ slopes, self._unseen @ slopes
        excess = np.maximum(0, 2 / carriers(rest) - 6 / len(values))  # 0 for normal samples
        square = (1 + excess) * np.sum((self._weights * rest / self._own) ** 2, axis=0) + np.nan_to_num(unseen) ** 2
        return np.sum(self._weights * values, axis=0), np.sqrt(square), rest, unseen


def plain_error(values: np.ndarray) -> Any:
    """Standard error (...,) of the mean of values (samples, ...), without controls."""
    return values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])


def in_errors(difference: float, error: float, dof: int) -> float:
    """A difference in standard errors, made normal: the same tail probability as under the t law with these degrees of freedom."""
    from scipy.special import ndtri, stdtr  # scipy.stats takes a second to import

    if not error > 0:
        return 0.0
    size = -float(ndtri(stdtr(dof, -abs(difference) / error)))
    return math.copysign(min(size, abs(difference) / error), difference)


def carriers(residuals: np.ndarray) -> np.ndarray:
    """How many of the samples carry the squares of residuals (samples, ...): all of alike size, a third of normal ones, one at
    least; all where there is nothing to carry."""
    square = residuals**2
    total, fourth = square.sum(axis=0), (square**2).sum(axis=0)
    return np.where(fourth > 0, total**2 / np.where(fourth > 0, fourth, 1), residuals.shape[0])


def _independent(controls: np.ndarray) -> list[int]:
    """The columns that add something to those before them and are spread over many samples."""
    kept: list[int] = []
    samples = controls.shape[0]
    basis = np.zeros((samples, 0))
    for k, column in enumerate((controls - controls.mean(axis=0)).T):
        scale = float(np.linalg.norm(column))
        if scale <= _ROUNDING * float(np.linalg.norm(controls[:, k])):
            continue
        for _ in range(2):  # once more for what rounding leaves
            column = column - basis @ (basis.T @ column)
        size = float(np.linalg.norm(column))
        if size > _NEW * scale and carriers(column) >= samples / _RARE:
            kept.append(k)
            basis = np.column_stack([basis, column / size])
    return kept
