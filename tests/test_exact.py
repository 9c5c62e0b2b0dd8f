"""Small chains by enumeration: stored values, closed forms, identities, and what is refused."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import exact
from jaxq.models.two_queues import TwoQueues
from jaxq.rates_model import RatesModel


@pytest.mark.parametrize("case", range(3))
def test_stationary_meets_the_stored_values(case, reference):
    values = reference("supermarket_exact")[case]
    found = exact.stationary(supermarket(values))
    np.testing.assert_allclose(found.tail[:8], values["tail"], rtol=1e-11)
    assert found.mean_queue_length == pytest.approx(values["mean_queue_length"], rel=1e-11)
    assert list(found.to_json()) == ["tail", "mean_queue_length"]


def test_transient_meets_the_stored_values(reference):
    values = reference("supermarket_exact")[3]
    found = exact.transient(supermarket(values), values["times"])
    np.testing.assert_allclose(found.tail[:, :6], values["tails_from_empty"], rtol=1e-11)
    assert list(found.to_json()) == ["times", "tail", "mean_queue_length"]


def supermarket(values):
    return jaxq.Supermarket(*(values[name] for name in ("n", "d", "arrival_rate", "replacement", "buffer")))


@pytest.mark.parametrize("replacement", [True, False])
def test_level_by_level_balance(replacement):
    """E S_i = lambda E[w(S_{i-1}) - w(S_B)] for any chain of this kind."""
    model = jaxq.Supermarket(7, 3, 0.9, replacement, 4)
    found = exact.stationary(model)
    density = np.concatenate([np.ones((len(found.states), 1)), found.states / 7], axis=1)
    count = np.rint(7 * density)
    w = density**3 if replacement else count * (count - 1) * (count - 2) / 210
    flow = 0.9 * found.probability @ (w[:, :-1] - w[:, -1:])
    np.testing.assert_allclose(found.tail, flow, rtol=1e-12)
    assert found.probability.min() >= 0


@pytest.mark.parametrize(("capacity", "arrival", "services"), [(4, 1.5, (1.0, 0.6)), (20, 0.8, (1.0, 1.0))])
def test_enumeration_and_columns_agree(capacity, arrival, services):
    found, law = exact.stationary(TwoQueues(capacity, arrival, services)), exact.two_queues(capacity, arrival, services)
    pi = np.zeros_like(law.pi)
    pi[tuple(found.states.T)] = found.probability
    np.testing.assert_allclose(pi, law.pi, rtol=1e-11)
    assert found.method == "elimination"
    assert 2 * found.mean_queue_length == pytest.approx(law.mean_customers, rel=1e-12)


def test_sparse_lu_agrees_with_elimination(monkeypatch):
    model = jaxq.Supermarket(3, 2, 0.8, True, 12)
    one = exact.stationary(model)
    monkeypatch.setattr(exact, "_BAND", 0)
    other = exact.stationary(model)
    assert (one.method, other.method) == ("elimination", "lu")
    np.testing.assert_allclose(other.probability, one.probability, atol=1e-15)


def test_one_server_in_time_and_in_equilibrium():
    model, rate = jaxq.Supermarket(1, 1, 0.7, buffer=1), 1.7
    times = np.array([0.0, 0.4, 3.0])
    np.testing.assert_allclose(exact.transient(model, times).tail[:, 0], 0.7 / rate * (1 - np.exp(-rate * times)), rtol=1e-12)
    full = exact.transient(model, times, initial=[1])
    np.testing.assert_allclose(full.mean_queue_length, (0.7 + np.exp(-rate * times)) / rate, rtol=1e-12)
    queue = exact.stationary(jaxq.Supermarket(3, 1, 1.3, buffer=6))  # three M/M/1/6 side by side
    weights = 1.3 ** np.arange(7)
    np.testing.assert_allclose(queue.tail, np.cumsum(weights[::-1])[::-1][1:] / weights.sum(), rtol=1e-12)


def test_transient_ends_in_equilibrium_and_averages_simulation():
    model = TwoQueues(5, 1.6, (1.0, 0.7))
    found = exact.transient(model, [1.5, 400.0], initial=[3, 0])
    np.testing.assert_allclose(found.tail[1], exact.stationary(model).tail, rtol=1e-10)
    run = jaxq.simulate(model, [1.5], 4, replicas=20_000, initial=np.array([3, 0]))
    assert np.all(np.abs(run.tail_mean[0, :5] - found.tail[0]) < 5 * run.tail_stderr[0, :5] + 1e-12)


@dataclasses.dataclass(frozen=True)
class Epidemic(RatesModel, leaves=("n", "infection")):
    """Infected of n, cured at rate 1; `kind` breaks it."""

    n: int
    infection: float
    kind: str = ""

    @property
    def jumps(self):
        return np.array([[1], [-1]])

    def clock(self):
        return self.n * (self.infection + 1.0)

    def rates(self, x, inverse_n=0.0):
        cure = {"negative": x[0] - 0.5, "stays": x[0] + inverse_n}.get(self.kind, x[0])
        return jnp.stack([self.infection * x[0] * (1 - x[0]), cure])

    def tail(self, counts):
        return counts


@dataclasses.dataclass(frozen=True)
class Sorter(Epidemic, leaves=("n", "infection")):
    """A chain that ends in one of two states."""

    @property
    def jumps(self):
        return np.array([[1], [2]])

    def rates(self, x, inverse_n=0.0):
        return jnp.where(x[0] == 0, 1.0, 0.0) * jnp.ones(2)


@dataclasses.dataclass(frozen=True)
class Kept(Epidemic, leaves=("n", "infection")):
    """Infected from outside; the last infected is not cured, so that the start, nobody infected, does not come again."""

    def rates(self, x, inverse_n=0.0):
        return jnp.stack([self.infection * (1 - x[0]), jnp.where(x[0] > 1.5 * inverse_n, x[0], 0.0)])


@dataclasses.dataclass(frozen=True)
class Scattered(Epidemic, leaves=("n", "infection")):
    """Starts at random unless told where."""

    def init(self, initial, keys):
        counts = keys[0].astype(np.int32)[None] % 5 if initial is None else np.full((1, keys[0].size), initial[0], np.int32)
        return self, self.state_of(counts)


def test_a_random_start_is_no_single_state():
    with pytest.raises(ValueError, match="one initial state; from None Scattered starts at random"):
        exact.transient(Scattered(5, 2.0), [1.0])
    one, other = exact.transient(Scattered(5, 2.0), [1.0], initial=[3]), exact.transient(Epidemic(5, 2.0), [1.0], initial=np.array([3]))
    assert one.tail == other.tail


def test_transient_states_get_no_mass_and_broken_rates_are_refused():
    found = exact.stationary(Kept(4, 2.0))
    weights = np.array([0, 1, 3, 4, 2])  # ratios 2 (n - k)/(k + 1): 3, 4/3, 1/2
    np.testing.assert_allclose(found.probability[np.argsort(found.states[:, 0])], weights / 10, rtol=1e-14)
    assert exact.stationary(Epidemic(5, 2.0)).tail.tolist() == [0.0]
    dying = exact.transient(Epidemic(5, 2.0), [0.0, 500.0], initial=np.array([4]))
    assert dying.mean_queue_length[0] == 0.8
    assert 0 < dying.mean_queue_length[1] < 0.1
    with pytest.raises(ValueError, match="one closed class of states; got 2"):
        exact.stationary(Sorter(4, 1.0))
    with pytest.raises(ValueError, match=r"rates must be >= 0; got -2.5 for jump \[-1\]"):
        exact.stationary(Epidemic(5, 2.0, "negative"))
    with pytest.raises(ValueError, match="rates must vanish where a count would fall below 0"):
        exact.stationary(Epidemic(5, 2.0, "stays"))


@pytest.mark.parametrize(("solve", "message"), [
    (lambda: exact.stationary(jaxq.Supermarket(3, 2, 0.5)), "finitely many states.*give it a buffer"),
    (lambda: exact.stationary(TwoQueues(None, 0.5)), "finite capacity.*two_queues"),
    (lambda: exact.stationary(jaxq.Supermarket(300, 2, 0.5, buffer=4)), "may have 200000 states; got more"),
    (lambda: exact.stationary(jaxq.GraphSupermarket(jaxq.graphs.complete(4), 2, 0.5, buffer=2)), "needs a model with jumps and rates"),
    (lambda: exact.transient(TwoQueues(3, 0.5), [1e12]), "needs fewer than .* steps"),
    (lambda: exact.transient(TwoQueues(3, 0.5), [2.0, 1.0]), "strictly increasing"),
    (lambda: exact.transient(TwoQueues(3, 0.5), [1.0], initial=[4, 0]), "initial must be two integer queue lengths")])
def test_impossible_questions_are_refused_with_one_sentence(solve, message):
    with pytest.raises(ValueError, match=message) as caught:
        solve()
    assert "\n" not in str(caught.value)


def test_results_are_labelled(tmp_path):
    exact.two_queues(3, 1.0).save(tmp_path / "two.nc")
    stored = jaxq.load(tmp_path / "two.nc")
    assert stored.p_0k.dims == ("queue_2",)
    assert stored.pi.shape == (4, 4)
    assert stored.attrs["blocking"] == exact.blocking(3, 0.5)
    exact.transient(TwoQueues(3, 0.5), [1.0]).save(tmp_path / "times.nc")
    assert jaxq.load(tmp_path / "times.nc")["tail"].dims == ("time", "level")
    exact.stationary(TwoQueues(3, 0.5)).save(tmp_path / "chain.nc")
    assert jaxq.load(tmp_path / "chain.nc").states.shape == (16, 2)
