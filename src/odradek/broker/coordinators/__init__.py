"""The runtime of coordinators: one state machine for each partition of an internal topic that this broker leads.

`runtime` finds the shard for a key and follows elections. A `shard` runs one machine: it appends and applies records,
holds replies until these are committed, and keeps the timer. `replay` reads a partition's records into a machine.
The machines are in `odradek.groups` and `odradek.transactions`, which know nothing of logs, sockets and tasks.
"""
