"""The coordinator runtime: a `CoordinatorContext` for each partition of an internal topic that this broker leads.

A context runs one state machine of `broker.groups.machine` or `broker.transactions.machine`.
"""
