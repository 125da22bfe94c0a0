"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members are reconciled one by one.

`heartbeat` handles a request, `group_update` finds the member and computes the changes.
"""
