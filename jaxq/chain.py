"""The interface of every system: a uniformised jump chain written as a stochastic recursion.

One tick is `state' = apply(state, draw(words))`: `draw` turns random words into a mark that does not depend on the state,
`apply` is a deterministic integer update. Time is the number of ticks, Poisson with rate `clock`, drawn apart (`ticks.py`).

A new system is one subclass in one file. Its numbers (arrival rates, n) are named as `leaves`, everything else
(d, levels, flags) is static::

    @dataclass(frozen=True)
    class Mine(RatesModel, leaves=("n", "arrival_rate")):  # `jaxq.rates_model`
        ...
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from . import bits

State = Any   # a pytree of int32/int16 arrays, replicas on the last axis
Mark = Any    # a pytree of integer arrays
Tables = Any  # a pytree of uint32/int32 arrays


@dataclasses.dataclass(frozen=True)
class Steady:
    """What a model knows of its steady state, for `jaxq.stationary`.

    arrivals: customers per unit time at all servers together; None: not a queue.
    rates: service rates, per unit time, (pools,), of the pools of `pool_tails`; None where the servers of a pool differ, or
      for no queue.
    fractions: (pools,), of the servers in each pool.
    lossless: every customer is served.
    relaxation: time constant of the slowest mode, in time units, or what theory says of it; None where it says nothing.
    starts: initial states for `init`: one near the steady state where the relaxation is known, else one below and one above
      it, so that their meeting shows when the start is forgotten.

    Nothing is checked here. Models whose queues grow raise ValueError instead of giving one.

    Example::

        >>> found = jaxq.Supermarket(100, 2, 0.9).steady()
        >>> found.arrivals, found.lossless
        (90.0, True)
    """

    arrivals: float | None = None
    rates: tuple[float, ...] | None = None
    fractions: tuple[float, ...] = (1.0,)
    lossless: bool = False
    relaxation: float | None = None
    starts: tuple[Any, ...] = (None,)


class Model(abc.ABC):
    """A uniformised chain: n servers, integer state, one mark per tick.

    `draw` and `apply` run inside jit on `program()`, a copy whose leaves are None: the tables are the only numbers they
    see, because a float leaf inside jit is float32 and a threshold made from it would be wrong.

    Rates and the clock are per unit time, whatever the unit of the rates given. Bad parameters raise ValueError.

    Example::

        >>> model = jaxq.Supermarket(n=10, d=2, arrival_rate=0.5, buffer=3)
        >>> _, state = model.init([4, 1], np.zeros((2, 1), np.uint32))  # one replica
        >>> mark = np.array([9], np.int32)  # an arrival at the server of rank 9 among 0, ..., 9, which is idle
        >>> np.asarray(model.counts(model.apply(model.tables(15.0), state, mark)))[:, 0].tolist()
        [5, 1, 0]
    """

    leaves: ClassVar[tuple[str, ...]] = ()
    #: True if `draw` and `apply` compute in float64; the engine then runs them with x64 on.
    float64: ClassVar[bool] = False
    #: What a tick costs, in ticks of a small chain: calls of the engine are made about half a second long by it.
    work: ClassVar[float] = 1.0
    n: Any

    def __init_subclass__(cls, *, leaves: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.leaves = leaves or cls.leaves
        jax.tree_util.register_pytree_node(cls, lambda model: _flatten(model),
                                           lambda static, numbers: _unflatten(cls, static, numbers))

    @property
    def call(self) -> int | None:
        """Ticks the engine should be given at a time, where results depend on it; None: as many as take half a second."""
        return None

    def program(self) -> Self:
        """The static part: a hashable copy with leaves None, equal for all models that share one compilation."""
        children, static = _flatten(self)
        return _unflatten(type(self), static, tuple(leaf.program() if isinstance(leaf, Model) else None for leaf in children))

    def kernel(self) -> Self | None:
        """The program with which a GPU kernel (`jaxq.kernel`) gives the same integers: its `draw` and `apply` use no gather, slice
        or concatenation, its lanes are 32 bits wide, and rows of zeros below its state stay zeros. None: it has none."""
        return None

    @property
    def block(self) -> int:
        """Replicas that the engine advances together by default, so that their state stays in the cache; never changes a result."""
        return 512

    @property
    @abc.abstractmethod
    def words(self) -> int:
        """32-bit random words per tick (static)."""

    @abc.abstractmethod
    def clock(self) -> float:
        """Ticks per unit time, at least the total rate of events in any state (host, float64)."""

    @abc.abstractmethod
    def tables(self, clock: float) -> Tables:
        """Integer parameters for any clock >= self.clock(), the surplus being null ticks (host, Python integers).

        Raises ValueError for a smaller clock.
        """

    @abc.abstractmethod
    def init(self, initial: Any, keys: tuple[np.ndarray, np.ndarray]) -> tuple[Self, State]:
        """Host: the model (with more levels if `initial` needs them) and its state for the replicas with these key words.

        `initial` is None (empty) or what the model documents; `keys` are two uint32 vectors (replicas,), for random parts
        only. Raises ValueError for any other `initial`.
        """

    @abc.abstractmethod
    def draw(self, tables: Tables, words: tuple[jax.Array, ...]) -> Mark:
        """The mark of one tick from `self.words` uint32 arrays of one shape. No state in sight."""

    @abc.abstractmethod
    def null(self, tables: Tables) -> Mark:
        """The mark that leaves every state as it is (scalars, of the mark's dtypes)."""

    @abc.abstractmethod
    def apply(self, tables: Tables, state: State, mark: Mark) -> State:
        """One tick in every replica; mark arrays have shape (replicas,)."""

    @abc.abstractmethod
    def counts(self, state: State) -> jax.Array:
        """(states, replicas) integers: all that observations and restarts of the law need."""

    @abc.abstractmethod
    def tail(self, counts: Any) -> Any:
        """Linear map of counts or densities (states, ...) to (levels, ...): servers with at least i customers, i = 1, 2, ..."""

    def pool_tails(self, counts: Any) -> Any:
        """Linear map of counts or densities (states, ...) to (pools, levels, ...): `tail` for each kind of server apart."""
        return self.tail(counts)[None]

    def steady(self) -> Steady:
        """What is known of the steady state. Raises ValueError where there is none."""
        return Steady()

    @abc.abstractmethod
    def counters(self, state: State) -> tuple[dict[str, jax.Array], State]:
        """Cumulative int32 counters (replicas,) by name since they were last zeroed, and the state with them zeroed."""

    @abc.abstractmethod
    def overflow(self, state: State) -> jax.Array:
        """(replicas,) bool: the state ran out of levels; sticky until the state is discarded."""

    @abc.abstractmethod
    def grow(self, state: State) -> tuple[Self, State]:
        """The model and the same state with twice the levels."""


class PopulationModel(Model):
    """A density-dependent population process: event class e adds `jumps[e]` to the counts at rate n rates(x)[e], x = counts/n.

    x is (states,), of one replica; rates are per unit time. Source: Kurtz 1970, doi:10.2307/3212147.

    Example::

        >>> model = jaxq.Supermarket(n=10, d=2, arrival_rate=0.9, buffer=2)
        >>> half_busy = np.array([0.5, 0.0], np.float32)
        >>> [round(float(change), 3) for change in model.drift(half_busy)]  # 0.9 (1 - 0.5**2) - 0.5, 0.9 0.5**2
        [0.175, 0.225]
    """

    @property
    @abc.abstractmethod
    def jumps(self) -> np.ndarray:
        """(events, states) integers: what each event class adds to the counts."""

    @property
    def class_matrix(self) -> np.ndarray:
        """(classes, states) integers A: there are A counts + n `class_offset` servers of each class; the states are those where
        none is below 0. A class holds servers (or whatever is counted) that are alike."""
        return np.eye(self.jumps.shape[1], dtype=int)

    @property
    def class_offset(self) -> np.ndarray:
        """(classes,) fractions of n that the classes have at counts of 0 (host)."""
        return np.zeros(self.class_matrix.shape[0])

    @abc.abstractmethod
    def rates(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        """(events,) rates per server at density x (states,); differentiable in x, in the leaves and in inverse_n at 0.

        At inverse_n = 1/n they are the exact chain's, at 0 the mean field's.
        """

    @abc.abstractmethod
    def state_of(self, counts: np.ndarray) -> State:
        """A state with these counts (states, replicas), the inverse of `counts`."""

    @abc.abstractmethod
    def at_levels(self, levels: int) -> Self:
        """The same model truncated at `levels` levels; the model itself where nothing is truncated."""

    @abc.abstractmethod
    def guess(self) -> np.ndarray:
        """Densities (states,) near the mean field's fixed point, or just a state from which the flow finds it (host)."""

    def empty(self) -> np.ndarray:
        """Densities (states,) of the mean field with no customers, where it starts unless told otherwise (host): 0."""
        return np.zeros(self.jumps.shape[1])

    def margin(self, x: jax.Array) -> Any:
        """How far density x is from where the drift stops being smooth and the mean field loses its meaning; inf: nowhere."""
        return np.inf

    def drift(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        """dx/dt of the mean field, (states,): rates @ jumps."""
        return self.rates(x, inverse_n) @ jnp.asarray(self.jumps, x.dtype)

    def diffusion(self, x: jax.Array, inverse_n: Any = 0.0) -> jax.Array:
        """(states, states) covariance per unit time of sqrt(n) times the density: jumps' diag(rates) jumps."""
        jumps = jnp.asarray(self.jumps, x.dtype)
        return jumps.T @ (self.rates(x, inverse_n)[:, None] * jumps)


def ceil_clock(exact: Fraction) -> float:
    """The least float >= an exact clock, so that thresholds for it never sum above one."""
    clock = float(exact)
    return clock if Fraction(clock) >= exact else float(np.nextafter(clock, np.inf))


def to_lanes(words: int, block: Callable[[int], tuple[Any, Any]]) -> tuple[Any, ...]:
    """`words` uint32 arrays, two from each threefry block `block(0), block(1), ...`."""
    lanes: list[Any] = []
    for index in range((words + 1) // 2):
        lanes += block(index)
    return tuple(lanes[:words])


def tick_words(model: Model, k0: Any, k1: Any, low: Any, high: Any) -> tuple[Any, ...]:
    """The words of one tick for replicas with key words (k0, k1)."""
    return to_lanes(model.words, lambda block: bits.tick_block(k0, k1, low, high, block))


def _flatten(model: Any) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    numbers = tuple(fields.pop(name) for name in type(model).leaves)
    return numbers, tuple(sorted(fields.items()))


def _unflatten(cls: Any, static: tuple[tuple[str, Any], ...], numbers: Any) -> Any:
    model = object.__new__(cls)  # no __init__: validation would meet tracers
    for name, value in (*static, *zip(cls.leaves, numbers, strict=True)):
        object.__setattr__(model, name, value)
    return model
