"""A constant of the controller's UpdateMetadata, and the protocol `LocalReplicas` (decision 12).

The message schemas are in `odradek.protocol.messages.controller_messages`.
"""

from typing import Final, Protocol

from odradek.model import ErrorCode, TopicPartition

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a stop for partitions of a deleted topic."""


class LocalReplicas(Protocol):
    """The methods of `ReplicaManager` that the controller and its commands use."""

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop a replica, if there is one, and delete its log if `delete`."""

    async def sync_deleted(self) -> None:
        """Return when the deletions of logs are on the disk."""

    def replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return KAFKA_STORAGE_ERROR if the replica's log cannot be used, INELIGIBLE_REPLICA on a full disk."""

    async def wait_until_applied(self) -> None:
        """Return when the replicas lead and follow as in the present image."""
