"""A whole cluster with its clients in virtual time, with faults and checks, all from one seed.

`seed_run.run_seed` plays a `SeedPlan` and returns a `SeedResult`. `setup` draws the cluster of a seed, `faults` breaks
it, `workloads` are its clients, and `checks` compare brokers with the
tree and replicas with each other.
"""
