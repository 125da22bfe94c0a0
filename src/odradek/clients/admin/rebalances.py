"""Reads the rebalance journal, the topic `__rebalances`, which `broker.groups.rebalance_journal` writes."""

import json
from collections.abc import Iterable
from typing import Any

from odradek.clients.admin.topics import current_metadata
from odradek.clients.cluster import Cluster
from odradek.clients.offsets import EARLIEST, LATEST, list_offsets, partitions_of
from odradek.clients.reader import PartitionReader
from odradek.model import ErrorCode, TopicPartition
from odradek.model.names import JOURNAL_TOPIC
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records


async def rebalance_history(
    cluster: Cluster, group_id: str | None, *, limit: int = 20, since_ms: int | None = None
) -> list[dict[str, Any]]:
    """Return a group's (None: all groups') last `limit` rebalances, the oldest first, as JSON objects.

    They are those of Odradek's rebalance journal; the list is empty if the cluster has none. With `since_ms` (ms
    since 1970), older ones are not read.
    """
    found: list[dict[str, Any]] = []
    # `partitions_of` would wait for a topic that does not exist.
    metadata = await current_metadata(cluster, [JOURNAL_TOPIC])
    journal = metadata.topics.get(JOURNAL_TOPIC)
    if journal is None or journal.error_code is ErrorCode.unknown_topic_or_partition:
        return []
    numbers = (await partitions_of(cluster, [JOURNAL_TOPIC]))[JOURNAL_TOPIC]
    for partition in [TopicPartition(JOURNAL_TOPIC, number) for number in numbers]:
        at = EARLIEST if since_ms is None else max(since_ms, 0)
        start = (await list_offsets(cluster, {partition: at}))[partition].offset
        end = (await list_offsets(cluster, {partition: LATEST}))[partition].offset
        if start >= 0:
            found += await _read(cluster, partition, start, end, group_id)
    found.sort(key=lambda each: (each["started_ms"], each["generation"]))
    return found[-limit:]


async def _read(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, group_id: str | None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for batches in PartitionReader(cluster, partition, start, end):
        found += _records_of(None if group_id is None else group_id.encode(), batches)
    return found


def _records_of(key: bytes | None, batches: memoryview) -> Iterable[dict[str, Any]]:
    for position, header in iterate_batches(batches):
        for record in decode_records(batches[position : position + header.size]):
            if key in (None, record.key) and record.value is not None:
                yield json.loads(record.value)
