"""The coordinator runtime: runs a state machine for each partition of an internal topic that this broker leads.

`runtime` finds the `CoordinatorContext` for a key, and creates and unloads contexts as partitions change their leader.
A context runs one machine: it appends and applies records, and keeps the timer. `coordinator_loader` reads a
partition's records into a machine, `deferred_replies` holds replies until records are committed, and `append_errors`
maps append errors to response errors. The machines are in `odradek.groups` and `odradek.transactions`.
"""
