"""Groups of ZooKeeper consumers: each reads the metadata tree, assigns and claims partitions (SPEC 4)."""
