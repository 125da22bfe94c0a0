"""A broker's membership of its cluster.

`registration` keeps the broker in the metadata tree, and `metadata` makes its image from the tree and the controller's
commands. The modules beside them write to the tree, each what its name says.
"""
