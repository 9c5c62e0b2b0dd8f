"""Bike sharing: flow balance, the plain system's closed forms, the optimum, and a simulated city."""

import random

import numpy as np
import pytest

import jaxq
from jaxq import bikes
from jaxq.two_queue_law import blocking


@pytest.mark.parametrize("choice", [True, False])
@pytest.mark.parametrize(("places", "rental", "trip", "fleet"), [
    (2, 1.0, 1.0, 0.01), (5, 0.7, 0.2, 3.0), (20, 1.0, 0.5, 12.0), (20, 1.0, 0.5, 50.0), (3, 1.0, 1e4, 2.9), (3, 1.0, 1e4, 3.1)])
def test_every_bike_is_parked_or_on_the_road(places, rental, trip, fleet, choice):
    rho = bikes.load(places, rental, trip, fleet, choice=choice)
    station = (bikes.paired if choice else bikes.plain)(places, rho)
    assert rental / trip * rho + station.bikes == pytest.approx(fleet, rel=1e-11)
    refused = blocking(places, rho) if choice else station.full
    assert rho * (1 - refused) == pytest.approx(1 - station.empty, rel=1e-11)  # returns = rentals


def test_plain_stations_are_truncated_geometric():
    for rho in (0.3, 1.0, 2.5):
        weights = np.array([rho**k for k in range(8)])
        chances = weights / weights.sum()
        station = bikes.plain(7, rho)
        np.testing.assert_allclose([station.bikes, station.empty, station.full], [chances @ range(8), chances[0], chances[-1]],
                                   rtol=1e-13)
    assert bikes.plain(1000, 3.0).bikes == pytest.approx(999.5)
    assert bikes.plain(7, 0.5).full == pytest.approx(bikes.plain(7, 2.0).empty)


@pytest.mark.parametrize("places", [3, 20])
def test_the_best_fleet_is_a_minimum_and_choice_helps(places):
    best, share = bikes.optimal_fleet(places, 1.0, 0.5)
    around = bikes.bike_sharing(places, 1.0, 0.5, best * np.array([0.95, 0.99, 1.0, 1.01, 1.05]))
    assert np.all(np.diff(around.problematic)[:2] < 0)
    assert np.all(np.diff(around.problematic)[2:] > 0)
    assert around.problematic[2] == pytest.approx(share, rel=1e-9)
    plain = bikes.bike_sharing(places, 1.0, 0.5, around.plain_best_fleet * np.array([0.95, 1.0, 1.05]))
    assert plain.plain_problematic[1] == pytest.approx(2 / (places + 1), rel=1e-12)
    assert np.all(plain.plain_problematic[[0, 2]] > plain.plain_problematic[1])
    assert plain.plain_rho[1] == pytest.approx(1.0, rel=1e-12)
    assert share < around.plain_best_problematic
    assert around.best_fleet == best


def test_a_curve_against_fleet_size(tmp_path):
    curve = bikes.bike_sharing(10, 1.0, 1.0)
    assert curve.fleet.size == 33
    for rho in (curve.rho, curve.plain_rho):
        assert np.all(np.diff(rho) > 0)
    np.testing.assert_array_equal(curve.problematic, curve.empty + curve.full)
    assert curve.fleet[np.argmin(curve.problematic)] == pytest.approx(curve.best_fleet, abs=np.diff(curve.fleet)[0])
    curve.save(tmp_path / "bikes.nc")
    assert jaxq.load(tmp_path / "bikes.nc").plain_problematic.dims == ("fleet",)
    assert curve.to_json()["best_problematic"] == curve.best_problematic


def city(places, ride, fleet, pairs, events, choice, seed):
    """Shares of empty and full stations of a city of 2 pairs stations (lambda = 1), over the second half of `events`."""
    draw, stations = random.Random(seed), 2 * pairs
    parked = [min(places, int(fleet))] * stations
    road = round(fleet * stations) - sum(parked)
    empty, full = parked.count(0), parked.count(places)
    time = problem_empty = problem_full = 0.0
    for event in range(events):
        total = stations + road / ride
        if event >= events // 2:
            time += 1 / total
            problem_empty += empty / total
            problem_full += full / total
        at, step = draw.randrange(stations), 0
        if draw.random() * total < stations:
            step = -1 if parked[at] else 0
        else:
            other = at ^ 1
            if choice and parked[other] < parked[at]:
                at = other
            step = 1 if parked[at] < places else 0
        if step:
            empty += (parked[at] + step == 0) - (parked[at] == 0)
            full += (parked[at] + step == places) - (parked[at] == places)
            parked[at] += step
            road -= step
    return problem_empty / time / stations, problem_full / time / stations


@pytest.mark.parametrize("choice", [True, False])
def test_a_city_of_400_stations_is_near_its_mean_field(choice):
    """K = 4, mean trip 2, 6 bikes per station: 6 runs of 150 000 events, 5 standard errors (p about 6e-7) and a bias of 1/n."""
    found = np.array([city(4, 2.0, 6.0, 200, 150_000, choice, seed) for seed in range(6)])
    curve = bikes.bike_sharing(4, 1.0, 0.5, [6.0])
    exact = (curve.empty[0], curve.full[0]) if choice else (curve.plain_empty[0], curve.plain_full[0])
    error = found.std(axis=0, ddof=1) / 6**0.5
    assert np.all(np.abs(found.mean(axis=0) - exact) < 5 * error + 1 / 400)
    assert np.all(error < 0.002)
    assert exact[1] > 0.3


@pytest.mark.parametrize(("arguments", "message"), [
    ((1, 1.0, 1.0), "places must be an integer at least 2"), ((2000, 1.0, 1.0), "places must be"),
    ((5, 0.0, 1.0), "rental_rate must be a finite number above 0"), ((5, 1.0, -1.0), "trip_rate must be"),
    ((5, 1.0, 1.0, [2.0, 1.0]), "fleet must be increasing"), ((5, 1.0, 1.0, [0.0, 1.0]), "fleet must be increasing"),
    ((5, 1.0, 1.0, "all"), "fleet must be a one-dimensional list")])
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        bikes.bike_sharing(*arguments)
    assert "\n" not in str(caught.value)
