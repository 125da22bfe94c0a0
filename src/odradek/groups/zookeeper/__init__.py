"""Groups of generation 1: each consumer reads the metadata tree, assigns, and claims its partitions (SPEC 4).

`registration` is a consumer's node, `view` its view of the group and the resulting assignment, `membership` its state
machine, which `odradek.clients.zookeeper_consumer` runs.
"""
