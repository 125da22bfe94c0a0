"""Deterministic simulation: a virtual-time event loop, an in-memory network and disks; one seed decides every order.

`simulation` combines the parts; each implements one interface of `odradek.runtime`, or the metadata store.
"""
