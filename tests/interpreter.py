"""The supermarket chain of one replica in plain Python integers, server by server: slow, obvious and independent of JAX."""

from fractions import Fraction

MASK = 2**32 - 1


def threefry(key, counter):
    keys = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & MASK, (counter[1] + keys[1]) & MASK
    for group in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & MASK
            y = ((y << r) | (y >> (32 - r))) & MASK ^ x
        x = (x + keys[(group + 1) % 3]) & MASK
        y = (y + keys[(group + 2) % 3] + group + 1) & MASK
    return x, y


def words_of(seed, replica, tick, blocks):
    key = threefry((seed >> 32, seed & MASK), (0, replica))
    pairs = [threefry(key, (tick & MASK, (tick >> 32) << 8 | block)) for block in range(blocks)]
    return [word for pair in pairs for word in pair]


def draw(model, words):
    """(kind, largest rank or served rank) of one tick, kind +1 arrival, -1 service."""
    n, d = model.n, model.d
    bounds = [n if model.replacement else n - k for k in range(d)]
    fraction = words[0] << 32 | words[1]
    if model.size == "packed":
        ranks = []
        for bound in bounds:
            product = fraction * bound
            ranks.append(product >> 64)
            fraction = product & (2**64 - 1)
    elif model.size == "narrow":
        ranks = [word * bound >> 32 for word, bound in zip(words[2:], bounds, strict=False)]
    else:
        products = [(words[2 * k] << 32 | words[2 * k + 1]) * bound for k, bound in enumerate(bounds)]
        ranks = [product >> 64 for product in products]
        left = [product & (2**64 - 1) for product in products]
        fraction = left[0] if d == 1 else left[0] >> 32 << 32 | left[1] >> 32
    if fraction >= Fraction(model.arrival_rate) / (1 + Fraction(model.arrival_rate)) * 2**64:
        return -1, ranks[0]
    if not model.replacement:  # Floyd: the pick below j + 1, or j itself when the pick is taken
        chosen = []
        for k in reversed(range(d)):
            chosen.append(n - 1 - k if ranks[k] in chosen else ranks[k])
        ranks = chosen
    return 1, max(ranks)


def run(model, seed, replica, ticks, start=0, lengths=None):
    """Tail counts after `ticks` ticks of a sorted list of queue lengths, longest first."""
    lengths = sorted(lengths or [0] * model.n, reverse=True)
    for tick in range(start, start + ticks):
        kind, rank = draw(model, words_of(seed, replica, tick, (model.words + 1) // 2))
        if kind > 0 and (model.buffer is None or lengths[rank] < model.buffer):
            lengths[rank] += 1
        elif kind < 0 and lengths[rank] > 0:
            lengths[rank] -= 1
        lengths.sort(reverse=True)
    return [sum(length >= i for length in lengths) for i in range(1, max(lengths) + 1)]
