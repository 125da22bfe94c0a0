"""What a partitioner sees, and what it is: two protocols that a user's own class fits without inheriting anything."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class ClusterView(Protocol):
    """What a producer knows of a topic when it places a record."""

    def partitions_for_topic(self, topic: str) -> Sequence[int]:
        """Every partition's number, ascending; never empty for a topic that a record is placed in."""

    def available_partitions_for_topic(self, topic: str) -> Sequence[int]:
        """The numbers of those that have a leader now, ascending; may be empty."""


class Partitioner(Protocol):
    """Chooses the partition of a record that names none. A record that names one never comes here.

    `key` and `value` are the serialized bytes, or None.
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        """The partition's number, out of `cluster.partitions_for_topic(topic)`."""


@runtime_checkable
class BatchAware(Protocol):
    """A partitioner that likes to know of new batches (KIP-480): optional."""

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        """A record that `partition` put on `previous` would open a new batch there; `partition` is then asked again."""


@runtime_checkable
class LoadAware(Protocol):
    """A partitioner that follows bytes and queues (KIP-794): optional."""

    def on_appended(
        self, topic: str, partition: int, appended_bytes: int, cluster: ClusterView, *, batch_ready: bool
    ) -> None:
        """A record without a key is in `partition`'s queue; `batch_ready` if a full batch waits there.

        Only for records that `partition` placed without looking at a key.
        """

    def update_load(self, topic: str, queue_sizes: dict[int, int], *, partition_count: int) -> None:
        """How many batches wait for each partition that has a leader and whose broker takes them."""
