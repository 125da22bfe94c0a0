"""The controller, on the broker that is elected: `odradek.controller` decides, this room reads, writes and sends.

`controller` exists from the election (`broker.cluster.controller_election`) until the broker resigns. It writes the
tree in its `controller_epoch`, runs `tasks`, and has the metadata loop (`broker.cluster`) run the jobs of requests:
`topic_jobs`, `partition_jobs` (reassignments, ElectLeaders), `alter_partition_jobs`. `controller_context` is what it
knows of brokers besides the tree. `channels` send changes to the other brokers.
"""
