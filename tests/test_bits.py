"""Random words against Random123 and JAX; ranks and thresholds against Python integers."""

from fractions import Fraction

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxq import bits

WORD = st.integers(0, 2**32 - 1)
DOUBLE = st.integers(0, 2**64 - 1)


def u(value):
    return np.array([value], np.uint32)


def double(value):
    return u(value >> 32), u(value & 0xFFFFFFFF)


@pytest.mark.parametrize(("key", "counter", "block"), [  # kat_vectors of Random123, threefry2x32 20 rounds
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
])
def test_threefry_gives_the_vectors_of_random123(key, counter, block):
    for make in (u, lambda value: jnp.asarray(u(value))):
        assert tuple(int(word[0]) for word in bits.threefry(*map(make, key + counter))) == block


def test_threefry_gives_the_words_of_jax():
    rng = np.random.default_rng(1)
    key = rng.integers(0, 2**32, 2, dtype=np.uint32)
    counter = rng.integers(0, 2**32, 2000, dtype=np.uint32)
    theirs = jax.extend.random.threefry_2x32(jnp.asarray(key), jnp.asarray(counter))
    ours = bits.threefry(key[:1], key[1:], counter[:1000], counter[1000:])
    np.testing.assert_array_equal(np.concatenate(ours), np.asarray(theirs))


def test_replica_keys_are_those_of_jax_fold_in():
    ids = np.array([0, 1, 7, 2**31, 2**32 - 1], np.uint32)
    ours = np.stack(bits.fold_in(bits.key_words(123), ids), axis=1)
    theirs = [jax.random.key_data(jax.random.fold_in(jax.random.key(123), i)) for i in ids]
    np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_seeds_are_two_words_and_agree_with_typed_keys():
    assert bits.key_words(2**32 + 5).tolist() == [1, 5]
    assert bits.key_words(2**64 - 1).tolist() == [2**32 - 1] * 2
    assert bits.key_words(jax.random.key(77)).tolist() == bits.key_words(77).tolist()


@pytest.mark.parametrize("bad", [-1, 2**64, 1.5, True, None, "0", np.zeros(2, np.uint32)])
def test_anything_else_is_no_seed(bad):
    with pytest.raises(ValueError, match="typed JAX key or an integer seed with 0 <= seed < 2\\*\\*64; got"):
        bits.key_words(bad)


def test_rbg_and_batched_keys_are_refused():
    with pytest.raises(ValueError, match="one typed threefry2x32 key"):
        bits.key_words(jax.random.key(0, impl="rbg"))
    with pytest.raises(ValueError, match="one typed threefry2x32 key"):
        bits.key_words(jax.random.split(jax.random.key(0)))


def test_streams_differ_from_the_ticks_and_from_each_other():
    key = u(5), u(9)
    words = {tuple(int(w[0]) for w in bits.stream(*key, u(i), p)) for i in range(50) for p in range(1, 5)}
    words |= {tuple(int(w[0]) for w in bits.tick_block(*key, u(t), u(0), b)) for t in range(50) for b in range(4)}
    assert len(words) == 400
    # counters of ticks below 2**52 never reach a purpose's: the second word stays below 1 << 28
    assert ((2**52 - 1 >> 32) << 8 | 255) < 1 << 28


@given(WORD, WORD)
def test_mulhi32(a, b):
    assert int(bits.mulhi32(u(a), u(b))[0]) == a * b >> 32


@given(DOUBLE, st.integers(1, 2**32 - 1))
def test_mulhi64(word, n):
    assert int(bits.mulhi64(*double(word), u(n))[0]) == word * n >> 64


@given(DOUBLE, st.integers(1, 2**32 - 1))
def test_rank64_leaves_the_high_word_of_the_fraction(word, n):
    rank, left = bits.rank64(*double(word), u(n))
    assert int(rank[0]) == word * n >> 64
    assert int(left[0]) == (word * n & (2**64 - 1)) >> 32


@given(DOUBLE, st.integers(1, 2**16))
def test_next_rank_splits_a_word_without_loss(word, n):
    rank, hi, lo = bits.next_rank(*double(word), u(n))
    assert (int(rank[0]) << 64 | int(hi[0]) << 32 | int(lo[0])) == word * n


@given(DOUBLE, DOUBLE)
def test_lt64(a, b):
    assert bool(bits.lt64(*double(a), *double(b))[0]) == (a < b)
    assert not bits.lt64(*double(a), *double(a))[0]


@given(st.floats(1e-12, 1e9), st.floats(1.0, 1e3))
def test_thresholds_are_the_nearest_integer_to_the_exact_ratio(a, factor):
    b = a * factor
    exact = Fraction(a) / Fraction(b) * 2**64
    assert abs(bits.threshold64(a, b) - exact) <= Fraction(1, 2)


def test_thresholds_refuse_what_is_no_probability():
    with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\]"):
        bits.threshold64(1.5, 1.0)
    assert [int(w) for w in bits.split64(2**64)] == [2**32 - 1] * 2
