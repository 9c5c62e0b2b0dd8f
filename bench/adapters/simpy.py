"""SimPy: a `Resource` for each server, a process for each customer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .networks import lengths_to_tail

SETUP = "one `simpy.Resource` a server, one process a customer, one arrival process; one process a core"
VERSION = "simpy"
WORKERS = "cores"
TOGETHER = False


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import random

    import simpy

    def one(seed: int) -> list[int]:
        generator = random.Random(seed)
        environment = simpy.Environment()
        servers = [simpy.Resource(environment) for _ in range(n)]

        def length(server: simpy.Resource) -> int:
            return server.count + len(server.queue)

        def customer(server: simpy.Resource) -> Iterator[simpy.Event]:
            with server.request() as turn:
                yield turn
                yield environment.timeout(generator.expovariate(1.0))

        def arrivals() -> Iterator[simpy.Event]:
            while True:
                yield environment.timeout(generator.expovariate(arrival_rate * n))
                first, second = servers[generator.randrange(n)], servers[generator.randrange(n)]
                environment.process(customer(second if length(second) < length(first) else first))

        environment.process(arrivals())
        environment.run(until=t)
        return lengths_to_tail([length(server) for server in servers], levels)

    return lambda seed: np.array([one(seed * replicas + r) for r in range(replicas)])
