"""Constants and the protocol shared by both ends of the controller's commands (DESIGN 3).

The messages are in `odradek.protocol.messages.controller_messages`, which a broker without a cluster need not import.
"""

from typing import Final, Protocol

from odradek.model import TopicPartition

INCREMENTAL: Final = 1
FULL: Final = 2
"""`type` of LeaderAndIsr and UpdateMetadata: some partitions, or all of them."""
LEADER_DURING_DELETE: Final = -2
"""The leader in UpdateMetadata for partitions of a deleted topic."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in StopReplica for partitions of a deleted topic."""


class LocalReplicas(Protocol):
    """A broker's own replicas, as the controller's commands use them; implemented by `ReplicaManager`."""

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop leading or following a replica, and with `delete` delete its log; does nothing if there is none."""

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Return whether the replica's log cannot be used."""

    async def wait_until_applied(self) -> None:
        """Return when the replicas have followed the present image."""
