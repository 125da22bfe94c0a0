"""Constants of LeaderAndIsr, UpdateMetadata and StopReplica, and the protocol `LocalReplicas` (decision 12).

The message schemas are in `odradek.protocol.messages.controller_messages`.
"""

from typing import Final, Protocol

from odradek.model import ErrorCode, TopicPartition

INCREMENTAL: Final = 1
FULL: Final = 2
"""The field `type` of LeaderAndIsr and UpdateMetadata: INCREMENTAL has some partitions, FULL has all."""
LEADER_DURING_DELETE: Final = -2
"""The leader in UpdateMetadata for partitions of a deleted topic."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in StopReplica for partitions of a deleted topic."""


class LocalReplicas(Protocol):
    """The methods of `ReplicaManager` that the controller and its commands use."""

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop a replica, if there is one, and delete its log if `delete`."""

    def replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return KAFKA_STORAGE_ERROR if the replica's log cannot be used, INELIGIBLE_REPLICA on a full disk."""

    async def wait_until_applied(self) -> None:
        """Return when the replicas lead and follow as in the present image."""
