"""The metadata tree, as in ZooKeeper, and the `ClusterImage` read from it: paths, node contents, store interface.

A store (`odradek.stores`) keeps bytes by path, `nodes` decodes them by `node_fields`, and `reading` and `tree_watchers`
build the image. `new_topic` and `isr_request` are requests to the controller, `state_change` its answer, and
`cluster_load` counts replicas.
"""
