"""The kernel of many ticks: the integers of plain Python and of the scan (interpreted), and what it becomes on GPUs and TPUs."""

import contextlib
import functools
import re
import sys

import interpreter
import jax
import numpy as np
import pytest

import jaxq
from jaxq import bits, engine, kernel

SEED = 2**33 + 5
START = 2**32 - 60   # the ticks pass a 32-bit boundary
SYSTEMS = {
    "packed": jaxq.Supermarket(20, 2, 0.9),
    "buffer, narrow, distinct": jaxq.Supermarket(12, 9, 1.3, replacement=False, buffer=3),
    "wide": jaxq.Supermarket(25, 3, 0.99999),
    "packed distinct": jaxq.Supermarket(9, 3, 0.7, replacement=False),
    "buffer": jaxq.Supermarket(12, 2, 1.3, buffer=3),
    "narrow": jaxq.Supermarket(30, 9, 0.8),
    "wide distinct": jaxq.Supermarket(7, 2, 0.99999, replacement=False),
    "one server": jaxq.Supermarket(1, 1, 0.6),
}
NAMES = [pytest.param(name, marks=[] if k < 3 else [pytest.mark.slow]) for k, name in enumerate(SYSTEMS)]
TAKES = np.array([[0, 33, 80, 128, 200, 1, 7], [60, 0, 31, 150, 2, 77, 0]])  # of 7 replicas on 2 devices: lanes are padded


def advanced(model, **options):
    run = engine.Engine(model, None, bits.key_words(SEED), TAKES.shape[1], **options)
    run.ticks += START
    return run, run.advance(TAKES)


@pytest.mark.parametrize("name", NAMES)
def test_every_lane_gets_its_own_ticks_and_they_are_those_of_plain_python(name):
    model = SYSTEMS[name]
    run, (saved, _) = advanced(model, kernel=True)
    assert run._kernel == "cpu"
    for segment, ticks in enumerate(np.cumsum(TAKES, axis=0)):
        for replica, count in enumerate(ticks):
            expected = interpreter.run(model, SEED, replica, int(count), START)
            assert saved[segment, : len(expected), replica].tolist() == expected
            assert not saved[segment, len(expected):, replica].any()


@pytest.mark.parametrize("model", [jaxq.Supermarket(20, 2, 0.9, levels=2),
                                   pytest.param(jaxq.Supermarket(25, 3, 1.00001, levels=1), marks=pytest.mark.slow),
                                   pytest.param(SYSTEMS["buffer"], marks=pytest.mark.slow)])
def test_state_counters_and_growth_are_those_of_the_scan(model):
    (one, saved), (other, wanted) = advanced(model, kernel=True), advanced(model, kernel=False)
    assert (one._kernel, other._kernel) == ("cpu", None)
    assert one.model == other.model
    assert model.buffer or one.model.levels > model.levels
    jax.tree.map(np.testing.assert_array_equal, saved, wanted)
    for ours, theirs in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours)[..., :7], np.asarray(theirs)[..., :7])


def test_models_without_a_kernel_and_processors_use_the_scan():
    for model in (jaxq.TwoQueues(3, 0.9), jaxq.Pull(6, [jaxq.Pool(1.0)], 1, 0.5), jaxq.Supermarket(70, 70, 0.9),
                  jaxq.GraphSupermarket(jaxq.graphs.complete(5), 2, 0.8)):
        assert [kernel.choose_kernel(model, platform, True) for platform in ("gpu", "tpu", "cpu")] == [None] * 3
    chosen = {(platform, asked): kernel.choose_kernel(SYSTEMS["wide"], platform, asked)
              for platform in ("cpu", "gpu", "cuda", "rocm", "tpu", "metal") for asked in (True, False)}
    assert {pair: kind for pair, kind in chosen.items() if kind} == {
        ("cpu", True): "cpu", ("tpu", True): "tpu",
        **{(platform, True): "gpu" for platform in ("gpu", "cuda", "rocm")}}
    assert advanced(jaxq.TwoQueues(3, 0.9), kernel=True)[0]._kernel is None


def test_a_jax_without_these_compilers_uses_the_scan(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas", None)
    assert kernel.choose_kernel(SYSTEMS["packed"], "gpu", True) is None


def without_device(platform):
    """JAX from 0.11 on wants to know the GPU that it compiles for."""
    if platform == "tpu" or not hasattr(jax.sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    device = jax.sharding.AbstractDevice("NVIDIA H200", 1, platform)
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


def prepared(name):
    ids = bits.fold_in(bits.key_words(SEED), np.arange(100, dtype=np.uint32))
    model, state = SYSTEMS[name].init(None, ids)
    return model, (ids, state, np.zeros(100, np.uint32), np.zeros(100, np.uint32))


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("platform", "call"), [("cuda", "__gpu$xla.gpu.triton"), ("tpu", "tpu_custom_call")])
def test_it_compiles_for_devices_that_are_not_here(name, platform, call, x64):
    model, lanes = prepared(name)
    run = functools.partial(kernel.run_kernel, model.program(), kernel.choose_kernel(model, platform, True))
    with jax.enable_x64(x64), without_device(platform):
        traced = jax.jit(run).trace(model.tables(model.clock()), *lanes, np.zeros(100, np.uint32))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert text.count(f"custom_call @{call}") == 1
    assert "stablehlo.while" not in text   # no scan beside it
    assert not re.search(r":u32\[\d*\] = max ", str(traced.jaxpr))   # compilers for TPUs refuse it, after lowering


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_the_engine_calls_it():
    model, lanes = prepared("packed")
    with without_device("cuda"):
        traced = jax.jit(functools.partial(engine._local, model.program(), 100, 32, "gpu")).trace(
            model.tables(model.clock()), np.ones(2, bool), *lanes, np.zeros((2, 100), np.int32))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("custom_call @__gpu$xla.gpu.triton") == 1
