"""The metadata tree: its paths, the content of its nodes, the interface of its stores, and the cluster's image.

Data flows upward: a store (`odradek.stores`) keeps bytes under paths, `nodes` decodes them, `reading` and
`tree_watchers` build a `ClusterImage`. Only the controller writes, as lists of `store.Operation`.
"""
