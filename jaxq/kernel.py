"""Many ticks in one launch on a GPU or TPU: `draw` and `apply` of the model itself in a Pallas kernel.

A scan launches kernels of the device for every tick. Here a few lanes and all their levels stay in registers, and one loop on
the device draws and applies their ticks. The words, the marks and the update are those of the scan (`chain.tick_words`,
`Model.draw`, `Model.apply`), so the integers are the same.

A Triton kernel takes arrays of 2^k entries only, and no gather, slice or concatenation of values. A model that keeps to that
says so (`Model.kernel`); all others, and JAX without these compilers, use the scan. Its state is padded with rows of zeros to a
power of two, and its lanes with lanes that get no ticks.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .chain import Model, tick_words

#: Lanes of one program: as many as threads in a warp of a GPU, or as lanes in a register of a TPU.
WIDTH = {"gpu": 32, "tpu": 128, "cpu": 32}
_GPU = ("gpu", "cuda", "rocm")


def choose_kernel(model: Model, platform: str, asked: bool) -> str | None:
    """The kind of kernel, "gpu", "tpu" or "cpu" (interpreted, for tests), or None for the scan: where it is not asked for, or
    the model has none."""
    kind = "gpu" if platform in _GPU else platform
    return kind if asked and kind in WIDTH and model.kernel() is not None and _compilers() else None


def _compilers() -> Any:
    """Pallas and its forms for TPUs and GPUs, loaded (a third of a second) only where a kernel is wanted; None without them."""
    try:
        from jax.experimental import pallas
        from jax.experimental.pallas import tpu, triton
    except ImportError:  # Triton in Pallas is deprecated since JAX 0.11
        return None
    return pallas, tpu, triton


def run_kernel(program: Model, kind: str, tables: Any, keys: Any, state: Any, low: Any, high: Any, take: Any) -> Any:
    """The state after `take` ticks of every lane, the first of them number high * 2**32 + low.

    keys: two uint32 (lanes,); state: leaves (lanes,) or (rows, lanes); low, high, take: uint32 (lanes,).
    """
    pl, pltpu, pltriton = _compilers()
    width, lanes = WIDTH[kind], take.size
    leaves, tree = jax.tree.flatten(state)
    columns = -(-lanes // width) * width
    numbers, restore = _pack(tables)

    def pad(leaf: Any) -> Any:
        rows = leaf.reshape(-1, lanes)
        rows = rows.astype(np.int32) if rows.dtype == np.int16 else rows
        return jnp.pad(rows, ((0, _power(rows.shape[0]) - rows.shape[0]), (0, columns - lanes)))

    def spec(array: Any) -> Any:
        return pl.BlockSpec((array.shape[0], width), lambda i: (jnp.int32(0), i))

    inputs = [pad(leaf) for leaf in (*keys, low, high, take, *leaves)]
    body = functools.partial(_body, program.kernel(), restore, tree, [leaf.ndim for leaf in leaves])
    scalars = pl.BlockSpec((numbers.size,), lambda i: (jnp.int32(0),))
    options: dict[str, Any] = {}
    if kind == "tpu":
        scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    if kind == "gpu":
        options["compiler_params"] = pltriton.CompilerParams(num_warps=1, num_stages=1)
    specs = [spec(array) for array in inputs]
    after = pl.pallas_call(body, grid=(columns // width,), in_specs=[scalars, *specs], out_specs=specs[5:],
                           out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs[5:]],
                           interpret=kind == "cpu", name="ticks", **options)(numbers, *inputs)
    done = [new.reshape(-1, columns)[: leaf.size // lanes, :lanes].reshape(leaf.shape).astype(leaf.dtype)
            for new, leaf in zip(after, leaves, strict=True)]
    return jax.tree.unflatten(tree, done)


def _body(program: Any, restore: Any, tree: Any, dims: list[int], numbers: Any, *refs: Any) -> None:
    """One program: the ticks of `width` lanes."""
    tables = restore(numbers)
    k0, k1, low, high, take = (ref[0, :] for ref in refs[:5])
    inputs, outputs = refs[5: 5 + len(dims)], refs[5 + len(dims):]
    null = program.null(tables)

    def tick(offset: Any, state: Any) -> Any:
        at = low + offset.astype(np.uint32)
        words = tick_words(program, k0, k1, at, high + (at < low).astype(np.uint32))
        going = offset.astype(np.uint32) < take
        mark = jax.tree.map(lambda drawn, nothing: jnp.where(going, drawn, nothing), program.draw(tables, words), null)
        return program.apply(tables, state, mark)

    start = [ref[0, :] if dim == 1 else ref[...] for ref, dim in zip(inputs, dims, strict=True)]
    most = jnp.max(take.astype(np.int32))
    end = lax.fori_loop(np.int32(0), most, tick, jax.tree.unflatten(tree, start))
    for ref, leaf, dim in zip(outputs, jax.tree.leaves(end), dims, strict=True):
        if dim == 1:
            ref[0, :] = leaf
        else:
            ref[...] = leaf


def _pack(tables: Any) -> tuple[jax.Array, Any]:
    """The tables as one uint32 vector of 2^k numbers, and a function that reads them from a reference to it.

    What it returns has tuples of numbers in place of the vectors, for no program can slice one.
    """
    leaves, tree = jax.tree.flatten(tables)
    flat = [lax.bitcast_convert_type(jnp.ravel(leaf), np.uint32) for leaf in leaves]
    size = sum(part.size for part in flat)
    numbers = jnp.concatenate([*flat, jnp.zeros(_power(size) - size, np.uint32)])

    def restore(ref: Any) -> Any:
        found, at = [], 0
        for leaf in leaves:
            values = tuple(lax.bitcast_convert_type(ref[at + k], leaf.dtype) for k in range(leaf.size))
            found.append(values if leaf.ndim else values[0])
            at += leaf.size
        return jax.tree.unflatten(tree, found)

    return numbers, restore


def _power(size: int) -> int:
    """The least 2^k >= size."""
    return 1 << (size - 1).bit_length()
