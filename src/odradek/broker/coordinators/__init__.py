"""The coordinator runtime: runs a state machine for each partition of an internal topic that this broker leads.

`runtime` finds the `CoordinatorContext` for a key, and creates and unloads contexts as partitions change their leader.
`coordinator_topic` creates the internal topic and finds the broker that coordinates a key. A context runs one state
machine, appends and applies its records, and keeps its timer. `coordinator_loader` reads a partition's records into it,
`deferred_replies` holds replies until records are committed, and `append_errors` maps append errors to response errors.
The state machines are in `broker.groups.machine` and `broker.transactions.machine`.
"""
