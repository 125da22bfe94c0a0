"""The runtime of coordinators: one state machine for each partition of an internal topic that this broker leads.

`runtime` finds the context for a key and follows elections. A `CoordinatorContext` runs one machine: it appends and
applies records, and keeps the timer. `coordinator_loader` reads a partition's records into a machine,
`deferred_replies` holds replies until records are committed, and `append_errors` turns errors of appends into those of
responses. The machines are in `odradek.groups` and `odradek.transactions`, which know nothing of logs, sockets and
tasks.
"""
