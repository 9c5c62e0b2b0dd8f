"""Two parallel queues solved exactly: elimination without subtractions, rational arithmetic, identities, stored values."""

from fractions import Fraction

import numpy as np
import pytest

from jaxq import exact, two_queue_law


def gth(rates):
    """Stationary vector by Grassmann, Taksar and Heyman's elimination: additions, products and quotients only."""
    a = rates.copy()
    for k in range(len(a) - 1, 0, -1):
        a[:k, k] /= a[k, :k].sum()
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    solution = np.zeros(len(a))
    solution[0] = 1.0
    for k in range(1, len(a)):
        solution[k] = solution[:k] @ a[:k, k]
    return solution / solution.sum()


def unordered_blocking(capacity, arrival):
    """Blocking probability of the equal-rate chain of (shorter, longer) queues, mu = 1."""
    index = {state: k for k, state in enumerate((i, j) for j in range(capacity + 1) for i in range(j + 1))}
    rates = np.zeros((len(index),) * 2)
    for (i, j), k in index.items():
        moves = [((i + 1, j) if i < j else (i, j + 1), arrival), ((i - 1, j), 1.0 if i < j else 2.0)]
        moves += [((i, j - 1), 1.0)] if i < j else []
        for target, rate in moves:
            if target in index:
                rates[k, index[target]] += rate
    return gth(rates)[index[capacity, capacity]]


def ordered_law(capacity, arrival, services):
    """pi(q1, q2) of the chain, (capacity + 1, capacity + 1)."""
    size = capacity + 1
    rates = np.zeros((size, size, size, size))
    for i in range(size):
        for j in range(size):
            if i < capacity and i <= j:
                rates[i, j, i + 1, j] = arrival * (0.5 if i == j else 1.0)
            if j < capacity and j <= i:
                rates[i, j, i, j + 1] = arrival * (0.5 if i == j else 1.0)
            if i > 0:
                rates[i, j, i - 1, j] = services[0]
            if j > 0:
                rates[i, j, i, j - 1] = services[1]
    return gth(rates.reshape(size**2, size**2)).reshape(size, size)


LOADS = (0.0501, 0.3, 0.7, 0.999999, 1.0, 1.0000001, 1.3, 1.5, 1.51, 1.9999, 2.0, 2.0000001, 2.7, 2.999)


@pytest.mark.parametrize("rho", LOADS)
@pytest.mark.parametrize("capacity", [1, 2, 3, 8, 15])
def test_blocking_is_that_of_the_chain(capacity, rho):
    assert abs(exact.blocking(capacity, rho) / unordered_blocking(capacity, 2 * rho) - 1) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("capacity", range(1, 31))
def test_blocking_is_that_of_the_chain_for_every_capacity(capacity):
    for rho in (*LOADS, *np.linspace(0.06, 2.99, 17), 1 - 1e-9, 2 - 1e-9, 1 + 1e-12, 2 - 1e-13):
        assert abs(exact.blocking(capacity, rho) / unordered_blocking(capacity, 2 * rho) - 1) < 1e-12


@pytest.mark.parametrize(("capacity", "rho"), [(1000, rho) for rho in (
    0.8, 0.97, 1 - 1e-6, 1 + 1e-12, 1.03, 1.5, 1.75, 2 - 1e-9, 2 + 1e-13, 2.25, 3.0)] + [(10_000, 0.999)])
def test_blocking_is_the_closed_form_in_rational_arithmetic(capacity, rho):
    """No cancellation and no overflow up to K = 10^4. Powers keep 2 K |log rho| eps, here at most 1e-11 for rho = .97."""
    r = Fraction(rho)
    b = (2 - r) * (1 - r) / (r ** (-2 * capacity) + (1 - r) / (2 * r) ** capacity - r * (2 - r))
    if b > Fraction(1, 10**300):
        assert abs(exact.blocking(capacity, rho) / float(b) - 1) < 1e-11
    else:
        assert exact.blocking(capacity, rho) < 1e-260


def test_blocking_at_the_two_removable_points_and_the_ends():
    for capacity in (1, 7, 10_000):
        assert exact.blocking(capacity, 1.0) == pytest.approx(1 / (2 * capacity + 0.5**capacity), rel=1e-14)
        assert exact.blocking(capacity, 2.0) == pytest.approx(1 / (2 - 0.25**capacity * (1 + capacity / 2)), rel=1e-14)
    assert exact.blocking(10_000, 0.05) == 0.0  # 1e-26021
    assert exact.blocking(10_000, 1e6) == pytest.approx(1 - 1e-6, rel=1e-14)


@pytest.mark.parametrize("capacity", [1, 4, 30, 10_000])
def test_pooled_and_separate_queues_bound_the_shorter_queue(capacity):
    for rho in (0.99, *LOADS):
        pooled, ours, single = (f(capacity, rho) for f in (exact.blocking_pooled, exact.blocking, exact.blocking_single))
        assert pooled <= ours * (1 + 1e-12)
        assert ours <= single * (1 + 1e-12)
        if rho != 1 and abs(capacity * np.log(rho)) < 25:
            assert pooled == pytest.approx(2 * rho ** (2 * capacity) * (1 - rho) / (1 + rho - 2 * rho ** (2 * capacity + 1)), 1e-5)
            assert single == pytest.approx(rho**capacity * (1 - rho) / (1 - rho ** (capacity + 1)), 1e-5)


@pytest.mark.parametrize("case", range(4))
def test_two_queues_meet_the_stored_values(case, reference):
    values = reference("two_queues")[case]
    found = exact.two_queues(values["capacity"], values["arrival_rate"], values["service_rates"])
    for name in ("blocking", "mean_customers", "p_empty", "p_0k"):
        np.testing.assert_allclose(getattr(found, name), values[name], rtol=1e-11)  # stored with 12 digits
    assert list(found.to_json()) == ["blocking", "mean_customers", "p_empty", "p_0k", "edge_error"]


@pytest.mark.parametrize(("capacity", "arrival", "services"), [
    (1, 0.3, (1.0, 1.0)), (3, 2.5, (1.0, 1.0)), (9, 0.1, (1.0, 1.0)), (12, 0.6, (0.5, 0.5)), (12, 6.0, (1.0, 1.0)),
    (1, 1.7, (1.0, 0.2)), (6, 0.2, (0.3, 2.0)), (11, 1.3, (1.0, 0.3)), (8, 9.0, (0.4, 2.0))])
def test_every_probability_of_two_queues_has_full_relative_accuracy(capacity, arrival, services):
    law, found = ordered_law(capacity, arrival, services), exact.two_queues(capacity, arrival, services)
    q = np.arange(capacity + 1)
    np.testing.assert_allclose(found.pi, law, rtol=1e-12)
    np.testing.assert_allclose(found.p_0k, law[0], rtol=1e-12)
    np.testing.assert_allclose(found.p_k0, law[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found.p_full, [law[-1].sum(), law[:, -1].sum()], rtol=1e-12)
    np.testing.assert_allclose([found.blocking, found.p_empty], [law[-1, -1], law[0, 0]], rtol=1e-12)
    np.testing.assert_allclose(found.mean_customers, np.sum(law * (q[:, None] + q)), rtol=1e-12)
    np.testing.assert_allclose(found.customers, [law[::-1].trace(m - capacity) for m in range(2 * capacity + 1)], rtol=1e-12)


@pytest.mark.parametrize(("capacity", "rho"), [(6, 0.4), (40, 1.0), (100, 1.1), (300, 0.9)])
def test_identities_of_two_equal_queues(capacity, rho):
    found = exact.two_queues(capacity, 6 * rho, (3.0, 3.0))
    np.testing.assert_allclose(found.customers[capacity:], found.customers_above, rtol=1e-11)
    lost = found.blocking
    np.testing.assert_allclose(found.pi[-1, -1], lost, rtol=1e-11)
    np.testing.assert_allclose(np.trace(found.pi), (1 + 2 * rho * lost) / (1 + 2 * rho), rtol=1e-12)
    np.testing.assert_allclose(found.p_0k.sum(), 1 - rho * (1 - lost), rtol=1e-11, atol=1e-14)  # served = let in


@pytest.mark.parametrize(("capacity", "x"), [(5, 0.8), (5, 1.1), (30, 0.85), (None, 0.9)])
def test_generating_functions_of_two_equal_queues(capacity, x):
    """Dester, Fricker and Tibi's equation on the curve Lambda (x - 1) + (1/z - 1) + (1/x - 1) = 0."""
    arrival = 1.2
    z = 1 / (2 - arrival * (x - 1) - 1 / x)
    found = exact.two_queues(capacity, arrival)
    lost, edge = found.blocking, 0.0 if capacity is None else (x * z) ** capacity
    pi = exact.two_queues(capacity or 200, arrival).pi
    diagonal = np.sum(np.diag(pi) * (x * z) ** np.arange(len(pi)))
    axis = 2 * np.sum(found.p_0k * z ** np.arange(len(found.p_0k)))  # unordered pairs, and (0, 0) once more
    left = (2 + arrival * z * (1 - arrival * x)) * diagonal - arrival * z * (1 - arrival * x) * lost * edge
    assert left == pytest.approx(axis, abs=1e-9)


@pytest.mark.parametrize(("arrival", "services"), [(0.4, (1.0, 1.0)), (1.7, (1.0, 1.0)), (1.1, (1.0, 0.4)), (0.9, (1.0, 0.05))])
@pytest.mark.parametrize("tolerance", [0.05, 1e-3, 1e-10])
def test_unbounded_queues_stay_within_their_certified_error(arrival, services, tolerance):
    """Against capacity 800, whose loss moves nothing here by 1e-14."""
    found, large = exact.two_queues(None, arrival, services, tolerance=tolerance), exact.two_queues(800, arrival, services)
    slack = found.edge_error + 1e-12
    assert found.edge_error <= tolerance
    assert found.columns < 800
    assert abs(found.mean_customers - large.mean_customers) <= slack
    assert abs(found.p_empty - large.p_empty) <= slack
    for ours, theirs in ((found.p_0k, large.p_0k), (found.p_k0, large.p_k0)):
        assert np.max(np.abs(ours - theirs[: ours.size])) <= slack
        assert theirs[ours.size:].max(initial=0) <= 2 * slack
    if tolerance == 1e-10:  # the servers work off what comes
        assert services[0] * (1 - found.p_0k.sum()) + services[1] * (1 - found.p_k0.sum()) == pytest.approx(arrival, abs=3e-9)
    assert found.blocking == 0


@pytest.mark.parametrize(("arrival", "services", "columns"), [
    (1.0, (1.0, 1.0), (7, 9)), (1.4, (1.0, 1.0), (15, 18)), (1.1, (1.0, 0.4), (27, 30)), (0.5, (0.2, 1.0), (22, 25))])
def test_every_part_of_the_certificate_holds(arrival, services, columns):
    """The mixture of returns, the time above column K and its customers, each by itself, against capacity 250 in full."""
    large = exact.two_queues(250, arrival, services)
    q = np.arange(251)
    longer, total = np.maximum(q[:, None], q), q[:, None] + q
    for K in columns:
        law = two_queue_law._columns(K, arrival, services, *two_queue_law._returns(K, services[0] == services[1]), keep=False)
        inside = large.pi[longer <= K].sum()
        for found, wanted in ((law.axes[0], large.pi[0, : K + 1]), (law.axes[1], large.pi[: K + 1, 0]),
                              (law.hub, large.pi[K, K]), (law.mean, np.sum((large.pi * total)[longer <= K]))):
            assert np.all(found.min(axis=-1) <= wanted / inside * (1 + 1e-12))
            assert np.all(found.max(axis=-1) >= wanted / inside * (1 - 1e-12))
        time, customers = two_queue_law._excursion(K, arrival, services)
        entries = arrival * large.pi[K, K]
        assert 1 < time / (large.pi[longer > K].sum() / entries) < 60
        assert 1 < customers / (np.sum((large.pi * total)[longer > K]) / entries) < 60
        (low, high), (low_axes, high_axes) = two_queue_law._bounds(K, arrival, services)
        assert low <= large.mean_customers <= high
        axes = np.stack([large.p_0k, large.p_k0])[:, : K + 1]
        assert np.all((low_axes <= axes * (1 + 1e-12)) & (axes * (1 - 1e-12) <= high_axes))


def test_thousands_of_places_are_solved():
    found = exact.two_queues(2000, 2.0)
    assert found.pi is None
    assert found.mean_customers == pytest.approx(2000, rel=1e-3)
    assert np.sum(found.customers_above) == pytest.approx(2001 * found.blocking)
    full = exact.two_queues(1000, 6.0)  # the free places do not feel the empty end
    assert full.blocking == pytest.approx(2 / 3, rel=1e-14)
    np.testing.assert_allclose(full.p_full, exact.two_queues(60, 6.0).p_full, rtol=1e-12)
    unequal = exact.two_queues(1000, 6.0, (1.0, 1.000001))
    np.testing.assert_allclose(unequal.p_full, full.p_full, rtol=1e-5)


@pytest.mark.parametrize(("arguments", "message"), [
    ((None, 2.0), "arrival_rate below"), ((None, 1.5, (1.0, 0.3)), r"below mu_1 \+ mu_2 = 1.3; got 1.5"),
    ((None, 1.9999), "must fit in 1500 columns"), ((20_000, 1.0), "capacity must be an integer at least 1 and at most 10000"),
    ((0, 1.0), "capacity"), ((3, -1.0), "arrival_rate"), ((3, 1.0, (1.0,)), "service_rates must be two rates")])
def test_two_queues_refuses_with_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        exact.two_queues(*arguments)
