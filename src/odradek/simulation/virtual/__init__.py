"""Deterministic simulation: a virtual-time event loop, an in-memory network and disks; one seed decides every order.

`simulation` combines the parts; each implements one interface of `odradek.runtime`, or the metadata store. `disk`
injects faults and power cuts, `disk_contents` has the files and what a power cut leaves of them.
"""
