"""The interfaces of partitioners. A user's class matches `Partitioner` without inheriting from it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable


class KeyRule(StrEnum):
    """The optional attribute `key_rule` of a partitioner, with which `send_arrow` need not ask it for each row."""

    MURMUR2 = "murmur2"
    """Records with a key go to `partition_for_key`, and those without one may go together."""
    IGNORED = "ignored"
    """All records may go together."""


class ClusterView(Protocol):
    """The producer's metadata of a topic."""

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        """Return the numbers of all partitions, ascending; never empty when a record is placed."""

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        """Return the numbers of the partitions that have a leader, ascending; may be empty."""


class Partitioner(Protocol):
    """Chooses the partition of a record without one; other records are not passed to it.

    `key` and `value` are the serialized bytes, or None.
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        """Return one of `cluster.partitions_for_topic(topic)`."""


@runtime_checkable
class BatchAware(Protocol):
    """An optional interface of partitioners that are notified of new batches (KIP-480)."""

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        """Handle a record that would open a new batch on `previous`; `partition` is then called again."""


@runtime_checkable
class LoadAware(Protocol):
    """An optional interface of partitioners that use bytes and queue sizes (KIP-794)."""

    def on_appended(
        self, topic: str, partition: int, appended_bytes: int, cluster: ClusterView, *, batch_ready: bool
    ) -> None:
        """Handle a record that was appended to `partition`'s queue; `batch_ready`: a full batch waits there.

        Called only for records that `partition` placed without using a key.
        """

    def update_load(self, topic: str, queue_sizes: dict[int, int], *, partition_count: int) -> None:
        """Record the waiting batches of each partition that has a leader and whose broker is ready."""
