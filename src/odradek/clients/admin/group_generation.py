"""The generation of a classic group, read from the group's records, because DescribeGroups does not return it."""

from typing import Final

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import EARLIEST, LATEST, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.coordination import partition_for
from odradek.model import TopicPartition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.group_records import GROUP_RECORDS, GroupMetadataKey, GroupMetadataValue
from odradek.protocol.record_batch import iterate_batches
from odradek.protocol.records import decode_records

_FIRST_RECORDS: Final = 10_000
"""Limit of the offsets before the end that the first read covers: the partition has the commits of many groups."""


class GenerationReader:
    """A reader of the group's partition of `__consumer_offsets`: first of its end, then of the records since."""

    def __init__(self, cluster: Cluster, group_id: str, *, timeout_ms: int) -> None:
        self.generation: int | None = None
        """The last generation read; None if no record of the group was read, or if the last one deletes the group."""
        self._cluster = cluster
        self._group_id = group_id
        self._timeout_ms = timeout_ms
        self._position: int | None = None

    async def read(self) -> int | None:
        """Return the group's generation. Raises `KafkaError`, for instance if the client may not read the topic."""
        topic = await self._cluster.topic(OFFSETS_TOPIC, timeout_ms=self._timeout_ms)
        partition = TopicPartition(OFFSETS_TOPIC, partition_for(self._group_id, len(topic.partitions)))
        first, end = [
            (await list_offsets(self._cluster, {partition: which}, timeout_ms=self._timeout_ms))[partition].offset
            for which in (EARLIEST, LATEST)
        ]
        start = max(first, end - _FIRST_RECORDS if self._position is None else self._position)
        wanted, _ = GROUP_RECORDS.encode(GroupMetadataKey(group=self._group_id), None)
        async for batches in PartitionReader(self._cluster, partition, start, end, timeout_ms=self._timeout_ms):
            for position, _ in iterate_batches(batches):
                for record in decode_records(batches, position):
                    if record.key == wanted:
                        _, value = GROUP_RECORDS.decode(record.key, record.value)
                        assert value is None or isinstance(value, GroupMetadataValue)
                        self.generation = None if value is None else value.generation
        self._position = end
        return self.generation
