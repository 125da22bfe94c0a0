"""Group membership of a consumer, by the classic or the consumer protocol (`group.protocol`).

`interface` is what `ConsumerCoordinator` uses: a pure state machine, and the requests that its actions become.
`classic_membership_manager` and `classic_requests` implement the classic protocol, `consumer_membership_manager` and
`consumer_requests` the consumer protocol (KIP-848), in which the coordinator assigns.
"""
