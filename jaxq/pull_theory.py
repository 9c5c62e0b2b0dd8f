"""The closed theory of PULL: its equilibrium as n grows, and the case of many routers.

With R routers fixed, a customer waits with probability of order 1/n (R >= 2) or exponentially small (R = 1). The fluid
limit is smooth only while every router holds a message, and for R >= 2 the split of the messages over routers is neutral
there: R - 1 zero eigenvalues, a relaxation over times of order n (1 - lambda)**2, and no refined correction.
Source: Stolyar 2017, arXiv:1512.07873.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check
from .ensemble import Result
from .models.pools import check_fractions, listed


@dataclass(frozen=True)
class Equilibrium(Result):
    """Equilibrium of PULL as n grows, where nobody waits and nobody is lost.

    nu: (pool,) busy servers of each pool as a fraction of all n; busy: (pool,) the fraction of the pool, nu / beta.
    flow: g, arrivals per idle server and unit time. mean_queue_length: customers per server of all; mean_response_time: in
    the unit of the rates.

    Example::

        >>> result = jaxq.pull_theory.equilibrium([jaxq.Pool(0.5, 1.5), jaxq.Pool(0.5, 0.5)], 0.3125)
        >>> round(result.flow, 6), round(result.mean_response_time, 6)
        (0.5, 1.2)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {"nu": ("pool",), "busy": ("pool",)}
    json_keys: ClassVar[tuple[str, ...]] = ("nu", "busy", "flow", "mean_queue_length", "mean_response_time")

    nu: np.ndarray
    busy: np.ndarray
    flow: float
    mean_queue_length: float
    mean_response_time: float


def equilibrium(pools: Sequence[Any], arrival_rate: float) -> Equilibrium:
    """The equilibrium of PULL as n grows: nu_j = beta_j g/(g + mu_j) with sum_j beta_j mu_j g/(g + mu_j) = lambda.

    Every idle server, of whatever pool, receives customers at the same rate g; idle servers are split equally over routers,
    whose number does not matter.

    Args:
      pools: list of `jaxq.Pool`, fractions beta_j and rates mu_j; buffers do not matter.
      arrival_rate: lambda per server.

    Raises ValueError unless 0 < lambda < sum_j beta_j mu_j. Source: arXiv:1512.07873, section 2.

    Example::

        >>> result = jaxq.pull_theory.equilibrium([jaxq.Pool(0.5, 1.5), jaxq.Pool(0.5, 0.5)], 0.3125)
        >>> result.busy.round(6).tolist()  # g/(g + mu) at g = 1/2
        [0.25, 0.5]
    """
    from scipy.optimize import brentq

    beta = np.array(check_fractions(listed(pools)))
    mu = np.array([float(pool.rate) for pool in pools])
    rate = _check.real("arrival_rate", arrival_rate, 0.0, open_low=True, hint="it is lambda per server")
    capacity = math.fsum(beta * mu)
    if not rate < capacity:
        raise ValueError(f"the equilibrium of PULL needs arrival_rate below sum beta_j mu_j = {capacity:g}; "
                         f"got {rate:g}; lower arrival_rate or speed up the servers")
    # in z = g/(1 + g), which maps the half line to [0, 1)
    z = brentq(lambda z: float(np.sum(beta * mu * z / (z + mu * (1 - z)))) - rate, 0.0, 1.0, xtol=1e-16, rtol=1e-15)
    busy = z / (z + mu * (1 - z))
    nu = beta * busy
    attributes = {"pools": [str(pool) for pool in pools], "arrival_rate": rate}
    return Equilibrium(attributes, nu, busy, float(z / (1 - z)), float(nu.sum()), float(nu.sum() / rate))


def many_routers_response_time(r: float, arrival_rate: float) -> float:
    """Mean time in system as n grows with R = n / r routers, like servers of rate 1, no buffers, withdrawn messages.

    E T = 1/(1 - lambda q0), where the fraction q0 of routers without a message solves
    1/q0 = sum_{k >= 0} prod_{j=1..k} r (1 - lambda q0)/(r + j q0).

    Args:
      r: servers per router, 0 < r <= 1e5.
      arrival_rate: 0 < lambda < 1 per server.

    Raises ValueError outside these ranges. Source: derived from the mean field of arXiv:1512.07873 with R proportional to n.

    Example::

        >>> # from random routing, 1/(1 - lambda), to no waiting
        >>> [round(jaxq.pull_theory.many_routers_response_time(r, 0.5), 2) for r in (0.001, 1.0, 1000.0)]
        [2.0, 1.46, 1.0]
    """
    from scipy.optimize import brentq

    r = _check.real("r", r, 0.0, 1e5, open_low=True, hint="it is n / R, servers per router")
    rate = _check.real("arrival_rate", arrival_rate, 0.0, 1.0, open_low=True, open_high=True)

    def excess(log_q: float) -> float:
        q = math.exp(log_q)
        k = np.arange(1, int(18 * math.sqrt(r / q)) + 100)  # what is left out is below exp(-40) of the first term
        return q * (1.0 + float(np.sum(np.cumprod(r * (1 - rate * q) / (r + k * q))))) - 1.0

    q0 = math.exp(brentq(excess, math.log(min(0.5, 0.1 / r)), 0.0, xtol=1e-14, rtol=1e-14))
    return 1.0 / (1.0 - rate * q0)


def messages_per_customer(p_wait: float, p_block: float) -> float:
    """Messages sent per arriving customer with `messages="withdraw"`, in a stationary system: 1 - P(wait) - P(block).

    Each customer that finds an idle server ends one message, and as many are sent as end. With "stale" messages it is the
    chance that the customer's router holds a message, which is at most this.

    Args: two probabilities per customer. Raises ValueError unless they are, and sum to at most 1.
    Source: the balance of messages in arXiv:1512.07873.

    Example::

        >>> round(jaxq.pull_theory.messages_per_customer(0.05, 0.02), 6)
        0.93
    """
    p_wait = _check.real("p_wait", p_wait, 0.0, 1.0)
    return float(1.0 - p_wait - _check.real("p_block", p_block, 0.0, 1.0 - p_wait + 1e-9, hint="p_wait and it sum to 1 at most"))
