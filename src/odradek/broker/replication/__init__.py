"""The partitions that this broker leads or follows: logs, fetchers, ISR changes. The rules of replication: `machine`.

`replica_manager` creates and removes partitions by the cluster's image: each is a `partition` that this broker leads or
a `follower`. Dead brokers leave the ISR without a proposal of the leader (`broker.controller.machine.elections`).
"""
