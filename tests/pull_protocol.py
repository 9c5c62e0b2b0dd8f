"""PULL in plain Python, server by server, and the models on which it is compared with the package."""

from collections import Counter

from jaxq.models.pools import Pool
from jaxq.models.pull import Pull

MODELS = {
    "one pool, one router": Pull(6, [Pool(1.0, 1.0, 4)], 1, 0.8),
    "no buffer": Pull(7, [Pool(1.0, 0.7)], 2, 0.6, levels=3),
    "two pools": Pull(10, [Pool(0.4, 1.5, 1), Pool(0.6, 0.5, 3)], 2, 0.8),
    "three pools": Pull(9, [Pool(1 / 3, 1.5, 2), Pool(2 / 9, 0.5), Pool(4 / 9, 0.9, 1)], 3, 0.7, levels=4),
    "stale, one router": Pull(6, [Pool(0.5, 1.2, 2), Pool(0.5, 0.7, 3)], 1, 0.8, "stale"),
    "stale, one pool": Pull(7, [Pool(1.0, 1.3, 2)], 2, 1.1, "stale"),
    "stale, three routers": Pull(8, [Pool(0.25, 1.5, 1), Pool(0.75, 0.5)], 3, 0.6, "stale", levels=3),
    "many servers": Pull(3_000_000, [Pool(1 / 3, 1.5, 2), Pool(2 / 3, 0.5)], 2, 0.7, levels=3),
    "many servers, stale": Pull(3_000_000, [Pool(1 / 3, 1.5, 2), Pool(2 / 3, 0.5, 1)], 2, 0.7, "stale"),
}


# the protocol, server by server: a server is (pool, customers, router that holds its message or None)

def protocol(model, servers):
    """(rate, servers after, what happened) of everything that can happen next."""
    servers = [tuple(server) for server in servers]

    def put(k, length, router):
        return [*servers[:k], (servers[k][0], length, router), *servers[k + 1:]]

    for router in range(model.routers):
        holders = [k for k, server in enumerate(servers) if server[2] == router]
        candidates = holders or range(len(servers))
        rate = model.n * model.arrival_rate / model.routers / len(candidates)
        for k in candidates:
            pool, length, message = servers[k]
            if holders or (length == 0 and model.messages == "withdraw"):
                message = None
            full = model.buffers[pool] is not None and length == model.buffers[pool]
            yield rate, put(k, length + (not full), message), "lost" if full else "waited" if length else "found idle"
    for k, (pool, length, message) in enumerate(servers):
        if length == 1 and message is None:
            for router in range(model.routers):
                yield model.pools[pool].rate / model.routers, put(k, 0, router), "message"
        elif length:
            yield model.pools[pool].rate, put(k, length - 1, message), "service"


def counted(model, servers):
    """Counts (states,) of a list of servers."""
    found = Counter((pool, length, -1 if router is None else router) for pool, length, router in servers)
    classes = model.classes
    rows = list(zip(classes.pool.tolist(), classes.length.tolist(), classes.router.tolist(), strict=True))
    assert set(found) <= set(rows)
    return [found[rows[k]] for k in classes.kept]


def some_servers(model, rng, kind="any"):
    """A possible state of every server: any, nobody present, all full, or all but one customer."""
    servers = []
    for pool, (size, depth) in enumerate(zip(model.servers, model.depths, strict=True)):
        depth -= model.buffers[pool] is None  # room for one more
        for k in range(size):
            length = {"any": rng.integers(0, depth + 1) * rng.integers(0, 2), "empty": 0, "full": depth,
                      "below": depth - (k == 0)}[kind]
            router = rng.integers(model.routers) if length == 0 or (model.stale and rng.integers(2)) else None
            servers.append((pool, int(length), None if router is None else int(router)))
    return servers
