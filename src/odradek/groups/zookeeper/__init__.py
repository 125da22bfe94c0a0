"""Groups of generation 1: every consumer reads the tree, computes the assignment and claims its partitions (SPEC 4).

`registration` is what a consumer writes of itself, `view` what it read of the others and which partitions are therefore
its own, `membership` the state machine of one consumer. `odradek.clients.zookeeper_consumer` runs it.
"""
