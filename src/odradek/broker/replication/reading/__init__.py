"""Reading replicas for consumers and followers.

`partition_reader` reads one replica for one fetch, `delayed_fetch` is the interface of a waiting fetch, and
`replica_selector` chooses the replica that a consumer should read (KIP-392).
"""
