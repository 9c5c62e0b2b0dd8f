"""A one-dimensional population model that no shipped one covers."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from jaxq.rates_model import RatesModel


@dataclass(frozen=True)
class Epidemic(RatesModel, leaves=("n", "contact", "imported")):
    """Infected fraction x: x' = (imported + contact x)(1 - x) - x. Not truncated; its guess 0 is on the wrong branch."""

    n: Any
    contact: Any
    imported: Any

    def clock(self):
        return self.n * (self.contact + self.imported + 1.0)

    @property
    def jumps(self):
        return np.array([[1], [-1]])

    def rates(self, x, inverse_n=0.0):
        return jnp.stack([(self.imported + self.contact * x[0]) * (1 - x[0]), x[0]])

    def tail(self, counts):
        return counts

    def moments(self, t, start):
        """n, expectation and n times the variance of x at time t, from the generator of the chain on 0..n."""
        k = np.arange(self.n + 1.0)
        up, down = (self.imported + self.contact * k / self.n) * (self.n - k), k
        law = scipy.linalg.expm(t * (np.diag(up[:-1], 1) + np.diag(down[1:], -1) - np.diag(up + down)))[start]
        mean = law @ k / self.n
        return mean, self.n * (law @ (k / self.n - mean) ** 2)
