"""The interfaces of partitioners. A class with the method of `Partitioner` need not inherit from it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable


class KeyRule(StrEnum):
    """A partitioner's optional attribute `key_rule`: how it uses keys. With it, `send_arrow` makes no call per row."""

    MURMUR2 = "murmur2"
    """Records with a key go to `partition_for_key`; a batch of records without a key may go to one partition."""
    IGNORED = "ignored"
    """Any batch of records may go to one partition."""


class ClusterView(Protocol):
    """The producer's cluster metadata, as partitioners get it."""

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        """Return the numbers of all partitions, ascending; never empty when a record is placed."""

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        """Return the numbers of the partitions that have a leader, ascending; may be empty."""


class Partitioner(Protocol):
    """Chooses the partition of a record for which the application gives none. `key` and `value` are serialized."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        """Return one of `cluster.partitions_for_topic(topic)`."""


@runtime_checkable
class BatchAware(Protocol):
    """An optional interface for partitioners that choose again for each batch (KIP-480)."""

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        """Handle a record that would open a new batch of partition `previous`; `partition` is called again next."""


@runtime_checkable
class LoadAware(Protocol):
    """An optional interface for partitioners that use appended bytes and queue sizes (KIP-794)."""

    def on_appended(
        self, topic: str, partition: int, appended_bytes: int, cluster: ClusterView, *, batch_ready: bool
    ) -> None:
        """Handle a record that was appended to `partition` without using its key.

        `batch_ready` says that the partition's first waiting batch is full.
        """

    def update_load(self, topic: str, queue_sizes: dict[int, int], *, partition_count: int) -> None:
        """Handle new queue sizes: the number of waiting batches of each partition whose leader is available.

        `partition_count` is the number of the topic's partitions with a leader.
        """
