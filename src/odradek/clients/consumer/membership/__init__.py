"""The two ways to be a member of a group, behind one interface (`group.protocol`).

`interface` is what `ConsumerCoordinator` uses: a pure state machine, and the requests that its actions become.
`classic_membership_manager` and `classic_requests` are the classic protocol; `consumer_membership_manager` and
`consumer_requests` are the consumer protocol (KIP-848), in which the coordinator assigns.
"""
