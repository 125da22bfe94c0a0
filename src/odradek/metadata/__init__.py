"""The metadata tree, as in ZooKeeper, and the `ClusterImage` read from it: paths, node contents, store interface."""
