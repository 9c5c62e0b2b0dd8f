"""Ciw: a dispatcher that takes no time, and a node of one server for each queue."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .networks import lengths_to_tail

SETUP = ("network of n single-server nodes behind a dispatcher of service time 0; its router is a subclass of "
         "`ciw.routing.LoadBalancing` that draws two nodes for each customer; `simulate_until_max_time`; one process a core")
VERSION = "ciw"
WORKERS = "cores"
TOGETHER = False


def prepare(n: int, arrival_rate: float, levels: int, t: float, replicas: int) -> Callable[[int], np.ndarray]:
    import random

    import ciw

    class ShorterOfTwo(ciw.routing.LoadBalancing):
        """Sends a customer to the shorter of two random nodes."""

        def __init__(self) -> None:
            super().__init__(destinations=[])

        def next_node(self, individual: object) -> object:
            self.destinations = [random.randint(2, n + 1), random.randint(2, n + 1)]
            return super().next_node(individual)

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=arrival_rate * n)] + [None] * n,
        service_distributions=[ciw.dists.Deterministic(value=0.0)] + [ciw.dists.Exponential(rate=1.0)] * n,
        number_of_servers=[float("inf")] + [1] * n,
        routing=ciw.routing.NetworkRouting(routers=[ShorterOfTwo()] + [ciw.routing.Leave()] * n))

    def one(seed: int) -> list[int]:
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(t)
        return lengths_to_tail([node.number_of_individuals for node in simulation.transitive_nodes[1:]], levels)

    return lambda seed: np.array([one(seed * replicas + r) for r in range(replicas)])
