"""The model interface: what a user's own model of jumps and rates gets for it."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxq
from jaxq import chain
from jaxq.rates_model import RatesModel
from jaxq.testing import check_model


@dataclass(frozen=True)
class Breakdowns(RatesModel, leaves=("n", "arrival_rate", "repair_rate")):
    """n servers without a queue: idle, busy or broken; a busy server breaks at rate 0.2. States: busy, broken."""

    n: Any
    arrival_rate: Any
    repair_rate: Any = 0.5

    @property
    def jumps(self):
        return np.array([[1, 0], [-1, 0], [-1, 1], [0, -1]])

    def rates(self, x, inverse_n=0.0):
        busy, broken = x
        return jnp.stack([self.arrival_rate * (1 - busy - broken), busy, 0.2 * busy, self.repair_rate * broken])

    def clock(self):
        return self.n * (self.arrival_rate + 1.2 + self.repair_rate)

    def tail(self, counts):
        return counts[:1]


MODEL = Breakdowns(12, 0.7)


def test_a_rates_only_model_follows_its_rates():
    assert check_model(MODEL, [[0, 0], [12, 0], [0, 12], [5, 3], [6, 6], [1, 11]], lanes=2**18).least_p > 1e-6
    check_model(MODEL, lanes=2**15)


def test_a_rates_only_model_simulates_its_exact_law():
    ts = [0.5, 2.0, 20.0]
    result = jaxq.simulate(MODEL, ts, 3, replicas=4000)
    law = jaxq.exact.transient(MODEL, ts)
    assert np.all(np.abs(result.tail_mean[:, 0] - law.tail[:, 0]) < 5 * result.tail_stderr[:, 0])
    fixed = jaxq.fixed_point(MODEL)
    x = 0.7 / (0.7 + 1.2 + 0.7 * 0.2 / 0.5)  # busy: arrivals = ends, repairs = breakdowns
    assert fixed.density[0] == pytest.approx(x, rel=1e-10)


def test_what_a_rates_only_model_does_not_count_is_not_told_as_0():
    """Its customers may be lost, and it has no counter of them."""
    class Known(Breakdowns):
        def steady(self):
            return chain.Steady(arrivals=12 * 0.7)

    run = jaxq.stationary(Known(12, 0.7), 1, replicas=64, warmup=5.0, horizon=5.0)
    assert np.isnan([run.p_block, run.mean_response_time]).all()


def test_rates_that_are_impossible_are_raised_not_clipped():
    @dataclass(frozen=True)
    class Hasty(Breakdowns, leaves=("n", "arrival_rate", "repair_rate")):
        def clock(self):
            return self.n * 0.1

    with pytest.raises(ValueError, match=r"Hasty\.rates must be >= 0, sum to at most clock/n"):
        jaxq.simulate(Hasty(12, 0.7), [10.0], 0, replicas=2)


def test_the_program_is_the_static_part():
    one, other = jaxq.Supermarket(100, 2, 0.9, levels=12), jaxq.Supermarket(900, 2, 0.5, levels=12)
    assert one.program() == other.program()
    assert hash(one.program()) == hash(other.program())
    assert one.program() != replace(one, d=3).program()
    assert one.program().arrival_rate is None


def test_models_are_pytrees_whose_numbers_can_be_differentiated():
    model = jaxq.Supermarket(100, 2, 0.9, levels=12)
    assert jax.tree.leaves(model) == [100, 0.9]
    with jax.enable_x64(True):
        x = jnp.asarray(model.guess())
        slope = jax.grad(lambda rate: jaxq.Supermarket(100, 2, rate, levels=12).drift(x)[0])(0.9)
        assert float(slope) == pytest.approx(1 - 0.9**2, rel=1e-12)  # of lambda (1 - S_1**2) - ...


def test_drift_and_diffusion_are_sums_over_jumps():
    model = jaxq.Supermarket(50, 2, 0.8, levels=8)
    with jax.enable_x64(True):
        x = jnp.asarray(np.linspace(0.9, 0.1, 8))
        rates, jumps = np.asarray(model.rates(x)), model.jumps
        np.testing.assert_allclose(model.drift(x), sum(r * j for r, j in zip(rates, jumps, strict=True)), atol=1e-14)
        np.testing.assert_allclose(model.diffusion(x), sum(r * np.outer(j, j) for r, j in zip(rates, jumps, strict=True)),
                                   atol=1e-14)


def test_clocks_are_never_below_the_exact_rate():
    for exact in (Fraction(1, 3), Fraction(10**20 + 1, 7), Fraction(19, 10)):
        assert Fraction(chain.ceil_clock(exact)) >= exact
        assert chain.ceil_clock(exact) == pytest.approx(float(exact), rel=1e-15)
