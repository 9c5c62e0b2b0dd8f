"""What a run that saw few losses believes, by hand."""

import math

import numpy as np
import pytest

import jaxq
from jaxq.losses import Losses
from jaxq.time_average import balance, look_at

MODEL = jaxq.Supermarket(10, 2, 0.8, buffer=5)
FLOW = np.arange(1.0, 31.0).reshape(6, 1, 5)      # 6 samples, one pool, 5 levels
SECOND = np.arange(6.0)


def losses(lost, model=MODEL, time=300.0):
    return Losses(model.steady(), model, lost, time)


def test_where_none_was_seen_two_spells_may_have_been_missed():
    found = losses(np.zeros(6))
    assert found.missed == pytest.approx(2**0.5 / 0.2)          # a spell loses 1/(1 - .8) customers
    controls, unseen = found.balances(SECOND, FLOW, most=2.0)
    rate = found.missed / (10 * 300)
    np.testing.assert_allclose(unseen[:2], [-rate * (2 * (2 + 2 * 5 / 10) + 1 / 10), -rate])  # two of ten servers full, and 2 each
    assert not unseen[2:].any()
    np.testing.assert_array_equal(controls[:, :2], np.column_stack([SECOND, FLOW.sum(axis=(1, 2))]))
    np.testing.assert_array_equal(controls[:, 2:6], FLOW[:, 0, :4])
    assert not controls[:, 6].any()                             # full servers are on the highest level
    assert losses(np.zeros(6)).balances(SECOND, FLOW, most=4.9)[1][0] == pytest.approx(-rate * 10.1)  # never more than the buffer


def test_where_few_were_seen_there_may_be_two_samples_more():
    assert losses(np.array([0, 0, 30, 0, 0, 0])).missed == pytest.approx(math.sqrt(900 * 3))
    assert losses(np.array([0, 0, 1, 1, 0, 0])).missed == pytest.approx(math.sqrt(2 + 2 * 25))


def test_where_many_were_seen_or_none_can_be_nothing_is_missed():
    many = losses(np.full(6, 3.0).repeat(3))
    assert many.missed == 0
    for known in (many, losses(None, jaxq.Supermarket(10, 2, 0.8))):
        controls, unseen = known.balances(SECOND, FLOW, 2.0)
        assert controls[:, 6].any()
        assert not unseen.any()


def test_few_samples_and_large_numbers_may_be_many():
    assert losses(np.arange(30, 46)).missed == 0
    for each in (6 * 10**4, 10**6, 10**7):                      # whose fourth power is no 64-bit integer
        assert losses(each + np.arange(64)).missed == 0


def test_where_the_model_does_not_tell_nobody_knows():
    assert np.isnan(losses(None).balances(SECOND, FLOW, 2.0)[1]).all()


def test_overload_without_losses_is_not_believed():
    assert np.isnan(losses(np.zeros(6), jaxq.Supermarket(10, 2, 1.2, buffer=5)).balances(SECOND, FLOW, 2.0)[1]).all()


def test_sums_remember_the_most_customers_at_one_look():
    looks = [look_at(MODEL, balance(MODEL), np.array(counts)[:, None] * [1, 0], 1, {})
             for counts in ([5, 2, 0, 0, 0], [9, 3, 1, 0, 0], [1, 0, 0, 0, 0])]
    together = looks[0] + looks[1] + looks[2]
    np.testing.assert_allclose(together.queue_most, [1.3, 0.0])
    np.testing.assert_allclose(together.queue, [2.1, 0.0])
