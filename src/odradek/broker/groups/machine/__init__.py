"""The group coordinator as a pure state machine: groups of both protocols and committed offsets (SPEC 6, 7).

`GroupCoordinatorMachine` is the state machine of one `__consumer_offsets` partition; `broker.coordinators` runs it.
"""
