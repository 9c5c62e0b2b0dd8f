"""One system for every simulator: the supermarket model, d = 2 with replacement, from empty.

Each module is named after what it runs and has

    SETUP      one line for the table: how it was set up
    VERSION    the distribution whose version is reported
    WORKERS    "cores": one process a core, each with its share of the replicas; "one": one process that uses all cores
    TOGETHER   its replicas advance in step, so that in steady state each needs a warm-up of its own
    prepare(n, arrival_rate, levels, t, replicas) -> run
    run(seed) -> tail counts at time t, (replicas, levels): servers with at least 1, 2, ... customers

Population models cut the tail above `levels`; the others hold any length. Written from each package's public documentation.
"""
