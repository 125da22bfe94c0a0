"""Groups of ZooKeeper consumers (generation 1): each reads the metadata tree, assigns and claims partitions (SPEC 4).

`registration` is a consumer's node, `view` its view of the group and the resulting assignment, `membership` its state
machine, which `odradek.clients.zookeeper_consumer` runs.
"""
