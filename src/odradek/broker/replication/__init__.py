"""The partitions of this broker, led or followed, and what their replicas have; `odradek.replication` decides for them.

`partitions` makes and ends them as the cluster's image says. Where this broker leads it is a `partition`: `writer`
brings to the disk what is appended (`outages` tells of a full one), and `in_sync_sets` asks the controller who counts
as in sync, by `isr_requests`. Where another leads it is a `follower`: `replica_fetcher` fetches for all of them, each
of its connections in a session of `fetcher_session`.
"""
