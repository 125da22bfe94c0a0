"""Reading replicas for consumers and followers.

`partition_reader` reads one replica for one fetch, `delayed_fetch` is what a waiting fetch has to offer, and
`replica_selector` chooses the replica that a consumer should read (KIP-392).
"""
