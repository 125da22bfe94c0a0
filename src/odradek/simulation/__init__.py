"""Brokers and clients in virtual time, with faults and checks, all from one seed: `odradek sim` and most system tests.

`virtual` replaces clock, network and disk, `world` runs brokers and clients on it. `seed_run` is one seed: a cluster
(`setup`), its clients (`workloads`), its `faults`, and what the `checks` and the histories of results find. `promises`
has the limits of recovery, `shrinking` finds the fewest faults of a failure, `coverage` the branches that no seed has
reached. `wire_client` sends single requests.
"""
