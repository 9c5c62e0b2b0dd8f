"""The classes of PULL servers: pool, customers present, and the router that holds the server's message.

Servers of one class are exchangeable, so their numbers are the whole state. All n servers stand on a line, class after
class, pool after pool; the state is where each class ends, v[k] = number of servers in classes 0..k. A server that moves
from one class to another shifts the ends between them by one, a contiguous range of rows whatever the move.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

MAX_CLASSES = 2**13 - 1   # an index, one beyond the last included, fits in 13 bits
NONE = -1                 # no message outstanding

# what `Classes.facts` says of a class in one int32: its index, the class after an arrival, and from bit FLAGS on a bit for
# every counter that an arrival there (the first three) or a service there (SENDS) adds to
ARRIVED, FIELD, FLAGS = np.int32(13), np.int32(2**13 - 1), np.int32(26)
COUNTERS = ("waited", "lost", "overflow", "messages", "arrivals")
WAITED, LOST, OVERFLOW, SENDS, ARRIVAL = (np.int32(1 << bit) for bit in range(5))
FULL, BUSY = LOST | OVERFLOW, WAITED | LOST | OVERFLOW


@dataclass(frozen=True, eq=False)
class Classes:
    """Arrays over the classes, (classes,), and the moves between them.

    pool, length, router: who they are; the order is pool, then no message (longest first), then router by router.
    up: the class after an arrival that does not come from its message (with "withdraw" it deletes it); use: after one that
    does. down: the class after a service, with the message at router 0 where one is sent. A class that loses the
    arrival, or has nobody to serve, stays.
    """

    pool: np.ndarray
    length: np.ndarray
    router: np.ndarray
    up: np.ndarray
    use: np.ndarray
    down: np.ndarray
    sends: np.ndarray
    full: np.ndarray
    depths: tuple[int, ...]
    routers: int
    stale: bool

    @property
    def size(self) -> int:
        """Number of classes."""
        return self.pool.size

    def first(self, pool: int) -> int:
        """Row where the servers of a pool with a message begin, less one: the end of its servers without."""
        return int(np.flatnonzero(self.pool == pool)[0]) + self.depths[pool] - 1

    def stride(self, pool: int) -> int:
        """Classes per router; a server that sends a message to router r goes up (r + 1) stride rows."""
        return self.depths[pool] + 1 if self.stale else 1

    @property
    def home(self) -> np.ndarray:
        """(pools,): idle, message at router 0."""
        return np.flatnonzero((self.length == 0) & (self.router == 0))

    @property
    def kept(self) -> np.ndarray:
        """The classes that are counted: all but the homes, whose numbers follow from the pools' sizes."""
        return np.delete(np.arange(self.size), self.home)

    @functools.cached_property
    def moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(from, to, kind) of every event of the chain that changes the state; kind 0 message used, 1 any server, 2 service,
        3 service after which a message goes to one of the R routers (R events)."""
        every = np.arange(self.size)
        used, joined = every[self.router != NONE], every[self.up != every]
        served, sent = every[(self.length > 0) & ~self.sends], np.repeat(every[self.sends], self.routers)
        strides = np.array([self.stride(pool) for pool in range(len(self.depths))])
        goals = self.down[sent] + np.tile(np.arange(self.routers), int(self.sends.sum())) * strides[self.pool[sent]]
        parts = [(used, self.use[used]), (joined, self.up[joined]), (served, self.down[served]), (sent, goals)]
        return (np.concatenate([start for start, _ in parts]), np.concatenate([goal for _, goal in parts]),
                np.repeat(np.arange(4), [start.size for start, _ in parts]))

    @functools.cached_property
    def jumps(self) -> np.ndarray:
        """(events, states) what each move adds to the counts."""
        start, goal, _ = self.moves
        change = np.zeros((start.size, self.size), np.int32)
        change[np.arange(start.size), start] -= 1
        change[np.arange(start.size), goal] += 1
        return change[:, self.kept]

    @functools.cached_property
    def matrix(self) -> np.ndarray:
        """(classes, states) integers: servers of every class from the counts, but for the homes' share of the pools' sizes."""
        return self.all(np.eye(self.kept.size, dtype=int), np.zeros(len(self.depths), int)).astype(int)

    def all(self, counts: np.ndarray, servers: np.ndarray) -> np.ndarray:
        """Servers of every class, (classes, ...), from integer counts (states, ...) in pools of `servers`."""
        everyone = np.zeros((self.size, *np.shape(counts)[1:]), np.int64)
        everyone[self.kept] = counts
        for pool, home in enumerate(self.home):
            everyone[home] = servers[pool] - everyone[self.pool == pool].sum(axis=0)
        return everyone

    def facts(self, unbounded: tuple[bool, ...]) -> tuple[int, np.ndarray]:
        """Facts of class 0, and their change from each class to the next, (classes,) int32.

        A server found at class k by counting the ends before it has facts[0] + the sum of the first k changes: the same
        masked sum that finds the class looks up what must be known of it. One entry beyond the last is that of nobody:
        nothing to serve.
        """
        every = np.arange(self.size)
        lost = np.where(np.array(unbounded)[self.pool], OVERFLOW, LOST)
        flags = np.where(self.length == 0, 0, np.where(self.full, lost, WAITED)) | np.where(self.sends, SENDS, 0)
        facts = every | (self.use if self.stale else self.up) << ARRIVED | flags << FLAGS
        return int(facts[0]), np.diff(np.append(facts, self.size)).astype(np.int32)


def check(depths: tuple[int, ...], routers: int, stale: bool) -> None:
    """ValueError where there would be too many classes."""
    count = sum(depth + routers * (depth + 1 if stale else 1) for depth in depths)
    if count > MAX_CLASSES:
        raise ValueError(f"pools, routers and buffers must make at most {MAX_CLASSES} classes of servers; got {count}; "
                         "use fewer routers, smaller buffers or messages='withdraw'")


@functools.cache
def classes(depths: tuple[int, ...], routers: int, stale: bool) -> Classes:
    """The classes of pools that hold up to `depths` customers a server.

    With withdrawal only idle servers have messages. With stale messages busy ones may: where its message is and how long
    it is are dependent, since routers use their messages at different times, so nothing smaller is closed.
    """
    rows = []
    for pool, depth in enumerate(depths):
        rows += [(pool, length, NONE) for length in range(depth, 0, -1)]
        rows += [(pool, length, router) for router in range(routers) for length in range(depth if stale else 0, -1, -1)]
    index = {row: k for k, row in enumerate(rows)}
    up, use, down = [], [], []
    for pool, length, router in rows:
        longer, shorter = min(length + 1, depths[pool]), max(length - 1, 0)
        up.append(index[pool, longer, router if stale else NONE])
        use.append(index[pool, longer, NONE])
        down.append(index[pool, shorter, 0 if router == NONE and shorter == 0 else router])
    pool, length, router = np.array(rows).T
    return Classes(pool, length, router, np.array(up), np.array(use), np.array(down), (length == 1) & (router == NONE),
                   length == np.array(depths)[pool], depths, routers, stale)
