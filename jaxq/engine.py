"""The engine: the only scan over ticks.

All replicas advance together, on the last axis, in blocks small enough for the cache, sharded over devices. The outer loop
draws the marks of a chunk of ticks, the inner scan applies them; there is no clock and no float in either. Replica r sees
words of (seed, r, tick) alone, so its integers do not depend on the number of replicas, blocks, chunks, calls or devices.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from . import _check, bits, hosts
from .bulk import Bulk
from .chain import Model, tick_words
from .kernel import choose_kernel, run_kernel

CHUNK = 32         # ticks whose marks are drawn at once
SEGMENTS = 8       # saves per call of the compiled function
MAX_TICK = 2**52
_CALL = 1.5e8      # ticks of a small chain a call, over all lanes


class Mark(NamedTuple):
    """What an engine goes on from: state, ticks and counters' totals, padding lanes included."""

    state: Any
    ticks: np.ndarray
    totals: dict[str, np.ndarray]


class Engine:
    """An ensemble of replicas of one model, at a known tick each.

    Args:
      model: the model, and `initial` what its `init` takes.
      key: two uint32 words (`bits.key_words`).
      replicas: their number R; replica r has id `first` + r.
      devices: JAX devices to shard the replicas over (default: all, those of other processes included).
      block, chunk: replicas advanced together (None: the model's own choice), ticks drawn together; choices of speed that
        never change a result.
      kernel: many ticks in one launch (`jaxq.kernel`) in place of the scan, where the model has it; the same integers.
      first: id of the first replica.

    `ticks` (lanes,) int64 counts the ticks each replica has had and `totals` the model's counters, per lane, int64; lanes
    beyond the replicas only pad. `clock` is in ticks per unit time. Raises ValueError for bad arguments.

    Example::

        >>> from jaxq.engine import Engine
        >>> engine = Engine(jaxq.Supermarket(100, 2, 0.9), None, jaxq.bits.key_words(0), replicas=50)
        >>> engine.model.levels, round(engine.clock, 6)
        (8, 190.0)
    """

    def __init__(self, model: Model, initial: Any, key: np.ndarray, replicas: int, *, devices: Sequence[Any] | None = None,
                 block: int | None = None, chunk: int = CHUNK, segments: int = SEGMENTS, clock: float | None = None,
                 kernel: bool = False, first: int = 0) -> None:
        self.replicas = _check.integer("replicas", replicas, 1, 2**31 - 1, "give the number of independent copies")
        devices = _check.devices(devices)
        self._several = hosts.spans(devices)
        if not self._several:  # else every process needs its share, if only padding
            devices = devices[: max(1, min(len(devices), replicas))]
        local = -(-replicas // len(devices))
        self._kernel = choose_kernel(model, devices[0].platform, _check.flag("kernel", kernel))
        default = model.block if devices[0].platform == "cpu" and not self._kernel else local  # blocks are for caches
        wanted = default if block is None else _check.integer("block", block, 1)
        blocks = -(-local // wanted)
        self.block = -(-local // blocks)
        if block is None and self.block > 16:
            self.block = -(-self.block // 16) * 16
        self.chunk, self.segments = _check.integer("chunk", chunk, 1, 2**12), segments
        self.lanes = self.block * blocks * len(devices)
        self._mesh = jax.make_mesh((len(devices),), ("replica",), devices=devices)
        self.keys = bits.fold_in(key, np.arange(self.lanes, dtype=np.uint32) + np.uint32(first))
        self._keys = tuple(self._put(part) for part in self.keys)
        self.clock = model.clock() if clock is None else clock
        streams = bits.stream(*self.keys, np.zeros(self.lanes, np.uint32), bits.INITIAL)
        self.model, state = model.init(initial, streams)
        self.tables = self.model.tables(self.clock)
        if self._several:
            hosts.check_same("model, start, seed and replicas", *map(np.asarray, jax.tree.leaves((self.tables, state, self.keys))))
        with self._precision():
            self.state = jax.tree.map(self._put, state)
        #: ticks a call may give a replica: int32 counters, and int16 lanes where the state has them, do not wrap
        self.longest = 2**15 - 1 if any(leaf.dtype == np.int16 for leaf in jax.tree.leaves(state)) else 2**30
        self.ticks = np.zeros(self.lanes, np.int64)
        self.totals: dict[str, np.ndarray] = {}
        self.compile_seconds = 0.0

    def advance(self, takes: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Give replica r takes[0, r], then takes[1, r], ... more ticks.

        takes: (S <= segments, replicas) integers, together at most `longest` for a replica.

        Returns the counts after each segment, (S, states, replicas), and the counters' totals there by name, (S, replicas)
        int64. A call that runs out of levels is done again with more. Raises ValueError for more than `longest` ticks, and
        beyond 2**52 in all.

        Example::

            >>> from jaxq.engine import Engine
            >>> engine = Engine(jaxq.Supermarket(100, 2, 0.9), None, jaxq.bits.key_words(0), replicas=50)
            >>> counts, totals = engine.advance(np.full((1, 50), 1900))
            >>> counts.shape, round(float(totals["arrivals"].mean() / 1900), 2)  # 0.9 / (0.9 + 1)
            ((1, 8, 50), 0.47)
        """
        rows, replicas = takes.shape
        given = np.zeros(self.lanes, np.int64)
        given[:replicas] = takes.sum(axis=0, dtype=np.int64)
        if given.max() > self.longest:
            raise ValueError(f"a replica can be given at most {self.longest} ticks in one call of advance, so that no counter of "
                             f"{type(self.model).__name__} wraps; got {int(given.max())}; use several calls")
        after = self.ticks + given
        if after.max() >= MAX_TICK:
            raise ValueError(f"a replica can have fewer than 2**52 ticks; got {int(after.max())}; use a shorter horizon")
        state, saved, counters = self._try(takes)
        self.state, self.ticks = state, after
        totals = {name: self.totals.get(name, 0) + np.cumsum(np.asarray(value)[:rows], axis=0, dtype=np.int64)
                  for name, value in counters.items()}
        self.totals = {name: total[-1].copy() for name, total in totals.items()}  # a view would keep all segments
        return np.asarray(saved)[:rows, :, :replicas], {name: total[:, :replicas] for name, total in totals.items()}

    def peek(self, fraction: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """What `advance` would return after a fraction of the next tick, where ticks are steps of time (`Leap`)."""
        _, saved, counters = self._try(np.ones((1, self.replicas), np.int64), self.clock / fraction)
        totals = {name: (self.totals.get(name, 0) + np.asarray(value)[:1])[:, : self.replicas] for name, value in counters.items()}
        return np.asarray(saved)[:1, :, : self.replicas], totals

    def mark(self) -> Mark:
        """Where the replicas are; nothing in it changes any more."""
        return Mark(self.state, self.ticks, self.totals)

    def arrays(self, mark: Mark) -> dict[str, np.ndarray]:
        """A mark as host arrays, replicas last."""
        leaves = {f"state{k}": leaf for k, leaf in enumerate(jax.tree.leaves(hosts.gather(mark.state)))}
        every = leaves | {"ticks": mark.ticks} | {f"total {name}": total for name, total in mark.totals.items()}
        return {name: leaf[..., : self.replicas] for name, leaf in every.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go to the mark of which these are the `arrays`, of an engine with the same model, key and replicas."""
        def shapes(leaves: list[np.ndarray]) -> list[Any]:
            return [(leaf.shape[:-1], leaf.dtype) for leaf in leaves]

        saved = [arrays[f"state{k}"] for k in range(len(jax.tree.leaves(self.state)))]
        model, state = self.model, hosts.gather(self.state)
        most = max(math.prod(leaf.shape[:-1]) for leaf in saved)
        while shapes(jax.tree.leaves(state)) != shapes(saved):  # it had met longer queues
            if max(math.prod(leaf.shape[:-1]) for leaf in jax.tree.leaves(state)) > most:
                raise ValueError("the state in the checkpoint must be one of this model; its shapes are "
                                 f"{[leaf.shape for leaf in saved]}; start again without it")
            model, state = model.grow(state)
        whole = jax.tree.unflatten(jax.tree.structure(state), saved)
        while np.any(model.program().overflow(whole)):  # and its levels may show in no shape
            model, state = model.grow(state)
        self.model, self.tables = model, model.tables(self.clock)

        def lanes(fresh: Any, values: np.ndarray) -> np.ndarray:
            return np.concatenate([values, np.asarray(fresh)[..., self.replicas:].astype(values.dtype)], axis=-1)

        with self._precision():
            self.state = jax.tree.map(lambda fresh, values: self._put(lanes(fresh, values)), state, whole)
        empty = np.zeros(self.lanes, np.int64)
        self.ticks = lanes(empty, arrays["ticks"])
        self.totals = {name.removeprefix("total "): lanes(empty, total) for name, total in arrays.items()
                       if name.startswith("total ")}

    def _try(self, takes: np.ndarray, clock: float | None = None) -> Any:
        """State, counts and counters after `takes` more ticks; done again with more levels where they run out."""
        rows, replicas = takes.shape
        keep = np.arange(self.segments) < rows
        padded = np.zeros((self.segments, self.lanes), np.int32)
        padded[:rows, :replicas] = takes
        if self._several:
            hosts.check_same("ticks", padded)
        low, high = self.ticks.astype(np.uint64) & np.uint64(0xFFFFFFFF), self.ticks >> 32
        position = (self._put(low.astype(np.uint32)), self._put(high.astype(np.uint32)))
        while True:
            tables = self.tables if clock is None else self.model.tables(clock)
            state, saved, counters, overflow = self._call(tables, keep, self.state, *position, self._put(padded))
            if not np.any(hosts.gather(overflow)[:replicas]):
                with self._precision():
                    return state, *hosts.gather((saved, counters))
            model, grown = self.model.grow(hosts.gather(self.state) if self._several else self.state)
            tables = model.tables(self.clock)
            with self._precision():  # all at once: an interrupt finds a model and its own state
                self.model, self.tables, self.state = model, tables, jax.tree.map(self._put, grown)

    @property
    def call(self) -> int:
        """Ticks to give in one call: about half a second, for progress and interrupts, unless the model says."""
        return min(self.model.call or max(int(_CALL / self.lanes / self.model.work), self.chunk), self.longest)

    @property
    def counts_rows(self) -> int:
        """Rows of the counts, `states` of the model as it has grown."""
        return jax.eval_shape(self.model.program().counts, self.state).shape[0]

    def _call(self, tables: Any, keep: np.ndarray, *args: Any) -> Any:
        with self._precision():
            operands = (tables, keep, self._keys, *args)
            shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(operands))
            static = (self.model.program(), self._mesh, self.block, self.chunk, self._kernel)
            name = (*static, shapes, jax.config.jax_enable_x64)  # type: ignore[attr-defined]
            if name not in _compiled:
                started = time.perf_counter()
                _compiled[name] = _compile(*static, operands)
                self.compile_seconds += time.perf_counter() - started
            return _compiled[name](*operands)

    def _precision(self) -> Any:
        """x64 only where the model computes in float64; integer models pin every dtype and do not care."""
        return jax.enable_x64(True) if self.model.float64 else contextlib.nullcontext()

    def _put(self, array: Any) -> jax.Array:
        spec = PartitionSpec(*(None,) * (np.ndim(array) - 1), "replica")
        return hosts.put(array, NamedSharding(self._mesh, spec))

    def agree(self, decision: bool) -> bool:
        """What the first process decides, where processes share the replicas: floats of unlike machines may differ."""
        return hosts.everyone(bool(decision))[0] if self._several else decision


#: Compiled runs by program, mesh, block, chunk and shapes: a sweep over n, lambda or the times compiles once per shape.
_compiled: dict[Any, Any] = {}


def _compile(program: Model, mesh: Any, block: int, chunk: int, kernel: str | None, operands: Any) -> Any:
    def lanes(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: PartitionSpec(*(None,) * (np.ndim(leaf) - 1), "replica"), tree)

    tables, _, *others = operands
    specs = (jax.tree.map(lambda leaf: PartitionSpec(), tables), PartitionSpec(), *map(lanes, others))
    run = jax.shard_map(functools.partial(_local, program, block, chunk, kernel), mesh=mesh, in_specs=specs, check_vma=False,
                        out_specs=(specs[3], PartitionSpec(None, None, "replica"), PartitionSpec(None, "replica"),
                                   PartitionSpec("replica")))
    # wide vectors are up to 1.8 times faster where the machine has them
    options = {"xla_cpu_prefer_vector_width": 512} if mesh.devices.flat[0].platform == "cpu" else None
    return jax.jit(run, compiler_options=options).lower(*operands).compile()


def _local(program: Model, block: int, chunk: int, kernel: str | None, tables: Any, keep: Any, keys: Any, state: Any, low: Any,
           high: Any, takes: Any) -> Any:
    """All blocks of one device, one after the other."""

    def split(leaf: Any) -> Any:
        blocks = leaf.reshape(*leaf.shape[:-1], leaf.shape[-1] // block, block)
        return jnp.moveaxis(blocks, -2, 0)

    def join(leaf: Any) -> Any:
        return jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], leaf.shape[0] * block)

    blocks = jax.tree.map(split, (keys, state, low, high, takes))
    return jax.tree.map(join, lax.map(lambda args: _block(program, chunk, kernel, tables, keep, *args), blocks))


def _block(program: Model, chunk: int, kernel: str | None, tables: Any, keep: Any, keys: Any, state: Any, low: Any,
           high: Any, takes: Any) -> Any:
    """One block of replicas through all segments; a replica whose ticks are done gets null marks while others finish."""
    null = program.null(tables)

    def ticks(state: Any, start: Any, take: Any, offset: Any) -> Any:
        at = start[0] + offset
        words = tick_words(program, keys[0][None], keys[1][None], at, start[1] + (at < start[0]).astype(np.uint32))
        mark = program.draw(tables, words)
        mark = jax.tree.map(lambda drawn, nothing: jnp.where(offset < take, drawn, nothing), mark, null)
        return lax.scan(lambda s, m: (program.apply(tables, s, m), None), state, mark)[0]

    def scanned(state: Any, low: Any, high: Any, take: Any) -> Any:
        chunks = (jnp.max(take) + np.uint32(chunk - 1)) // np.uint32(chunk)
        within = lax.broadcasted_iota(np.uint32, (chunk, 1), 0)
        return lax.fori_loop(np.uint32(0), chunks,
                             lambda c, s: ticks(s, (low[None], high[None]), take[None], c * np.uint32(chunk) + within), state)

    advance = functools.partial(run_kernel, program, kernel, tables, keys) if kernel else scanned
    if isinstance(program, Bulk):
        advance = functools.partial(program.advance, tables, keys)

    def segment(carry: Any, ahead: Any) -> Any:
        (state, low, high), (kept, take) = carry, ahead
        take = take.astype(np.uint32)
        state = advance(state, low, high, take)
        after = low + take
        saved = lax.cond(kept, program.counts, lambda s: jnp.zeros_like(program.counts(s)), state)
        out = program.overflow(state)
        counters, state = program.counters(state)
        return (state, after, high + (after < low).astype(np.uint32)), (saved, counters, out)

    (state, _, _), (saved, counters, overflow) = lax.scan(segment, (state, low, high), (keep, takes))
    return state, saved, counters, jnp.any(overflow, axis=0)
