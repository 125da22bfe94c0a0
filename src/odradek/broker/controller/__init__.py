"""The controller, on the elected broker: applies the decisions of its `machine` to the tree and the brokers.

`controller` exists from the election (`broker.cluster.metadata.controller_election`) until the broker resigns. It
writes the tree through its `controller_epoch` and runs `tasks`. Requests become jobs of the metadata loop
(`broker.cluster`): `topic_jobs`, `partition_jobs` (reassignments, ElectLeaders), `alter_partition_jobs`.
`controller_context` has the state of brokers that is not in the tree. `channels` send changes to the other brokers.
`auto_topic_creation_manager`, on any broker, requests the creation of topics.
"""
