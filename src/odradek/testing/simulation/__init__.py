"""A program on virtual time: its event loop, its network and its disks are in memory, and one seed decides every order.

`simulation` puts the parts together; each replaces one interface of `odradek.runtime`, or the metadata store.
"""
