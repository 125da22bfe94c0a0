"""Reads a group's records in `__consumer_offsets`, for facts that no admin response contains.

DescribeGroups returns no generation. ConsumerGroupDescribe returns neither the partitions that a member still has to
revoke, nor the time of that revocation, nor the member's rebalance timeout.
"""

from contextlib import suppress
from typing import Any, Final

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import EARLIEST, LATEST, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.model import TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue

_FIRST_RECORDS: Final = 10_000
"""The number of last offsets that the first read covers; the partition has the commits of many groups."""
_COMMITS: Final = (b"\0\0", b"\0\1")
"""The first two bytes of the keys of committed offsets."""


class GroupRecordReader:
    """Reads a group's partition of `__consumer_offsets`: first its last records, then those since the previous read."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._position: int | None = None

    async def read(self) -> list[tuple[int, Any, Any]]:
        """Return the group's new records as `(timestamp_ms, key, value)`; the value of a tombstone is None.

        Committed offsets and records that this release cannot decode are left out. Raises `KafkaError`, for instance
        without permission to read the topic.
        """
        topic = await self._cluster.topic(OFFSETS_TOPIC)
        partition = TopicPartition(OFFSETS_TOPIC, coordinator_partition(self._group_id, len(topic.partitions)))
        first, end = [
            (await list_offsets(self._cluster, {partition: which}))[partition].offset for which in (EARLIEST, LATEST)
        ]
        start = max(first, end - _FIRST_RECORDS if self._position is None else self._position)
        found = []
        async for batches in PartitionReader(self._cluster, partition, start, end):
            for position, _ in iterate_batches(batches):
                for record in decode_records(batches, position):
                    if record.key is None or record.key[:2] in _COMMITS:
                        continue
                    with suppress(MalformedMessageError):
                        key, value = GROUP_RECORDS.decode(record.key, record.value)
                        if self._group_id in (getattr(key, "group", None), getattr(key, "group_id", None)):
                            found.append((record.timestamp, key, value))
        self._position = end
        return found


class GenerationReader:
    """Reads a classic group's generation."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.generation: int | None = None
        """The last generation read; None if the group has no record in the offsets read, or was deleted."""
        self._records = GroupRecordReader(cluster, group_id)

    async def read(self) -> int | None:
        """Read new records, and return `generation`. Raises the errors of `GroupRecordReader.read`."""
        for _, key, value in await self._records.read():
            if isinstance(key, GroupMetadataKey):
                assert value is None or isinstance(value, GroupMetadataValue)
                self.generation = None if value is None else value.generation
        return self.generation
