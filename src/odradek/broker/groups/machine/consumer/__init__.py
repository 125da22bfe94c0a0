"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and members are reconciled one by one.

`heartbeat` handles a request: `membership` finds the member and checks its epoch, `group_update` computes the changes.
"""
