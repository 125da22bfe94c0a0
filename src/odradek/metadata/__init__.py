"""The metadata tree: its paths, what its nodes hold, how a store of it is used, and the image that is read from it.

Data passes upward: a store (`odradek.stores`) keeps bytes under paths, `nodes` makes values of them, `reading` and
`follower` make a `ClusterImage` of those. Writing is the controller's, who computes `store.Operation`s.
"""
