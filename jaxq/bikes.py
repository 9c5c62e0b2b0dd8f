"""Bike sharing where a returning user takes the emptier of two neighbouring stations, beside the plain system.

Mean field of many stations with K places and s bikes each. Users come to a station at rate lambda and take a bike if there is
one; a trip lasts Exp(mu) on average 1/mu; a user who can return to neither station rides on for another trip. Seen from a
station, rentals are the services, at rate lambda, and returns the arrivals, at rate lambda rho with rho to be found: a pair of
stations is the two-queue system at Lambda = 2 lambda rho. Bikes on the road arrive at rate mu each, so there are
(lambda/mu) rho of them per station, failed returns included, and

    s = (lambda/mu) rho + E[bikes at a station](K, rho),

increasing in rho: one rho for each fleet size. Plain system: a user returns to a station chosen beforehand, which is M/M/1/K,
P(k bikes) = rho^k / (1 + rho + ... + rho^K). Its share of problematic stations (empty or full), (1 + rho^K)/(1 + ... + rho^K),
is least at rho = 1, since rho^k is convex in k: there it is 2/(K+1), at s = lambda/mu + K/2 (Fricker and Gast 2016).

Sources: Dester, Fricker and Tibi 2017, arXiv:1704.06442; Fricker and Gast 2016, arXiv:1201.1178.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import _check
from .ensemble import Result
from .two_queue_law import two_queues

_MOST_PLACES = 1000
_MOST_LOAD = 1e5   # bikes on the road, in mean trips' worth of users


@dataclass(frozen=True)
class Stations:
    """One kind of station at return load rho: `bikes` parked on average, and the chances that it is `empty` and `full`.

    Example::

        >>> station = jaxq.bikes.plain(4, 1.0)
        >>> [round(x, 6) for x in (station.bikes, station.empty, station.full)]
        [2.0, 0.2, 0.2]
    """

    bikes: float
    empty: float
    full: float


@dataclass(frozen=True)
class BikeSharing(Result):
    """Problematic stations, P(empty) + P(full), against fleet size, from `bike_sharing`.

    fleet (fleet,): bikes per station. rho, empty, full, problematic (fleet,): with the choice between two stations;
    plain_rho, plain_empty, plain_full, plain_problematic (fleet,): without. best_fleet, best_problematic, plain_best_fleet,
    plain_best_problematic: the fleet with the fewest problematic stations, and their share.

    Example::

        >>> result = jaxq.bikes.bike_sharing(4, 1.0, 0.5, [2.0, 4.0])
        >>> round(result.best_fleet, 3), round(result.plain_best_fleet, 3)  # plain: lambda/mu + K/2
        (3.61, 4.0)
    """

    dims: ClassVar[dict[str, tuple[str, ...]]] = {name: ("fleet",) for name in (
        "fleet", "rho", "empty", "full", "problematic", "plain_rho", "plain_empty", "plain_full", "plain_problematic")}
    json_keys: ClassVar[tuple[str, ...]] = (
        "fleet", "rho", "problematic", "plain_rho", "plain_problematic", "best_fleet", "best_problematic", "plain_best_fleet",
        "plain_best_problematic")

    fleet: np.ndarray
    rho: np.ndarray
    empty: np.ndarray
    full: np.ndarray
    problematic: np.ndarray
    plain_rho: np.ndarray
    plain_empty: np.ndarray
    plain_full: np.ndarray
    plain_problematic: np.ndarray
    best_fleet: float
    best_problematic: float
    plain_best_fleet: float
    plain_best_problematic: float


def bike_sharing(places: int, rental_rate: float, trip_rate: float, fleet: Any = None) -> BikeSharing:
    """Problematic stations against fleet size, with and without the choice of the emptier of two stations.

    Args:
      places: K bikes that a station holds, 2 <= K <= 1000 (a station with one place is always problematic).
      rental_rate: lambda, users per station and unit time. trip_rate: mu, one over the mean trip.
      fleet: bikes per station (fleet,), > 0, increasing; None: 33 sizes up to twice the plain optimum lambda/mu + K/2.

    Raises ValueError for parameters outside these ranges. Sources: arXiv:1704.06442; the plain system arXiv:1201.1178.

    Example::

        >>> result = jaxq.bikes.bike_sharing(4, 1.0, 0.5, [2.0, 4.0])
        >>> result.problematic.round(3).tolist(), result.plain_problematic.round(3).tolist()
        ([0.452, 0.327], [0.525, 0.4])
    """
    places, ride = _parameters(places, rental_rate, trip_rate)
    best = ride + places / 2
    sizes = np.linspace(best / 16, 2 * best, 33) if fleet is None else _check.vector("fleet", fleet).astype(np.float64)
    if sizes.min() <= 0 or np.any(np.diff(sizes) <= 0) or sizes[-1] > ride * _MOST_LOAD:
        raise ValueError("fleet must be increasing numbers of bikes per station above 0, at most "
                         f"{ride * _MOST_LOAD:g}; got {_check.shown(fleet)}")
    (rho, empty, full), (plain_rho, plain_empty, plain_full) = (_curve(kind, places, ride, sizes) for kind in (paired, plain))
    best_fleet, best_share = optimal_fleet(places, rental_rate, trip_rate)
    return BikeSharing(
        {"places": places, "rental_rate": float(rental_rate), "trip_rate": float(trip_rate)}, fleet=sizes, rho=rho, empty=empty,
        full=full, problematic=empty + full, plain_rho=plain_rho, plain_empty=plain_empty, plain_full=plain_full,
        plain_problematic=plain_empty + plain_full, best_fleet=best_fleet, best_problematic=best_share, plain_best_fleet=best,
        plain_best_problematic=2 / (places + 1))


def load(places: int, rental_rate: float, trip_rate: float, fleet: float, *, choice: bool = True) -> float:
    """The return load rho of a system with `fleet` bikes per station; choice=False: the plain one.

    Units and errors as `bike_sharing`.

    Example::

        >>> round(jaxq.bikes.load(4, 1.0, 0.5, 4.0, choice=False), 6)  # the best plain fleet, lambda/mu + K/2
        1.0
    """
    places, ride = _parameters(places, rental_rate, trip_rate)
    return _load(paired if _check.flag("choice", choice) else plain, places, ride,
                 _check.real("fleet", fleet, 0.0, ride * _MOST_LOAD, open_low=True))


def optimal_fleet(places: int, rental_rate: float, trip_rate: float) -> tuple[float, float]:
    """(bikes per station, share of problematic stations) of the best fleet with the choice. Units, errors as `bike_sharing`.

    The share is minimised over rho by a grid on log rho, rho in [1/4, 4], and golden-section search around its least point;
    a minimum being flat, the fleet size has about 7 digits.

    Example::

        >>> [round(x, 3) for x in jaxq.bikes.optimal_fleet(4, 1.0, 0.5)]  # without the choice 4 bikes and 2/(K + 1) = 0.4
        [3.61, 0.321]
    """
    from scipy.optimize import minimize_scalar

    places, ride = _parameters(places, rental_rate, trip_rate)

    def share(exponent: float) -> float:
        station = paired(places, math.exp(exponent))
        return station.empty + station.full

    grid = np.linspace(-math.log(4), math.log(4), 33)
    at = int(np.clip(np.argmin([share(exponent) for exponent in grid]), 1, grid.size - 2))
    found = minimize_scalar(share, bracket=tuple(grid[at - 1: at + 2]), method="golden", options={"xtol": 1e-8})
    rho = math.exp(found.x)
    return ride * rho + paired(places, rho).bikes, float(found.fun)


def paired(places: int, rho: float) -> Stations:
    """A station of a pair whose returns join the emptier one: `two_queues` at Lambda = 2 rho, mu = 1.

    Args: places K; rho, the rate of returns over that of rentals. Raises ValueError unless 1 <= K <= 1000, 0 < rho <= 1e5.

    Example::

        >>> station = jaxq.bikes.paired(1, 1.0)  # 0, 1, 2 bikes in the pair with chances 1/5, 2/5, 2/5
        >>> round(station.empty, 6), round(station.full, 6)
        (0.4, 0.6)
    """
    places = _check.integer("places", places, 1, _MOST_PLACES)
    law = two_queues(places, 2 * _check.real("rho", rho, 0.0, _MOST_LOAD, open_low=True))
    return Stations(law.mean_customers / 2, float(law.p_0k.sum()), float(law.p_full[0]))


def plain(places: int, rho: float) -> Stations:
    """A station by itself: M/M/1/K. Args: places K; rho as `paired`. Raises ValueError unless 1 <= K <= 1000 and rho > 0.

    Example::

        >>> round(jaxq.bikes.plain(4, 1.0).full, 6)
        0.2
    """
    k = np.arange(_check.integer("places", places, 1, _MOST_PLACES) + 1)
    rho = _check.real("rho", rho, 0.0, open_low=True)
    weights = np.exp(math.log(rho) * (k if rho < 1 else k - places))  # the largest is 1
    chances = weights / weights.sum()
    return Stations(float(k @ chances), float(chances[0]), float(chances[-1]))


def _curve(kind: Callable[[int, float], Stations], places: int, ride: float, sizes: np.ndarray) -> np.ndarray:
    """(3, fleet): rho, chance of empty, chance of full."""
    loads = [_load(kind, places, ride, float(size)) for size in sizes]
    found = [kind(places, rho) for rho in loads]
    return np.array([loads, [station.empty for station in found], [station.full for station in found]])


def _load(kind: Callable[[int, float], Stations], places: int, ride: float, fleet: float) -> float:
    """The rho with ride rho + bikes(rho) = fleet; at most fleet/ride, since bikes >= 0, and at least (fleet - K)/ride."""
    from scipy.optimize import brentq

    low, high = max((fleet - places) / ride, 1e-12 * fleet / (1 + ride)), fleet / ride
    solution = brentq(lambda y: math.log((ride * math.exp(y) + kind(places, math.exp(y)).bikes) / fleet),
                      math.log(low), math.log(high), xtol=1e-13, rtol=1e-14)
    return math.exp(solution)


def _parameters(places: Any, rental_rate: Any, trip_rate: Any) -> tuple[int, float]:
    """K and lambda/mu, the bikes on the road per station at rho = 1."""
    places = _check.integer("places", places, 2, _MOST_PLACES, "it counts the bikes a station holds")
    rental = _check.real("rental_rate", rental_rate, 0.0, 1e6, open_low=True, hint="it is lambda per station")
    trip = _check.real("trip_rate", trip_rate, 0.0, 1e6, open_low=True, hint="it is one over the mean trip")
    return places, rental / trip
