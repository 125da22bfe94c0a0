"""DeleteRecords: deletes the records before an offset (KIP-107), by requests to the leaders."""

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.clients.admin.results import RefusedPartitionsError, errors_of
from odradek.clients.arguments import PartitionT, numbers_by_partition
from odradek.clients.cluster import Cluster
from odradek.clients.offsets import by_topic
from odradek.clients.retry import ask_each
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark in DeleteRecords."""

_REASONS: Final = {
    ErrorCode.offset_out_of_range: "{0} has no offset {1}: delete before an offset between its first and its last one",
    ErrorCode.policy_violation: "{0} is compacted only: records are deleted where cleanup.policy has delete",
}


async def delete_records(cluster: Cluster, before: Mapping[PartitionT, int]) -> dict[TopicPartition, int]:
    """Delete each partition's records before an offset; -1 means the high watermark (KIP-107).

    Returns the new first offsets. Raises `RefusedPartitionsError` (OFFSET_OUT_OF_RANGE and others).
    """
    offsets = numbers_by_partition("an offset", before)
    # With half of the timeout, a broker that waits for replicas answers before this client's request times out.
    limit_ms = min(cluster.timeout_ms, cluster.settings.request_timeout_ms) // 2

    async def ask(partitions: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        found: dict[TopicPartition, int | KafkaError] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            try:
                leader = await cluster.leader(partition)
            except KafkaError as error:
                found[partition] = error
            else:
                by_leader.setdefault(leader, []).append(partition)
        answers = await asyncio.gather(*(request(*each) for each in by_leader.items()), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    async def request(leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        connection = await cluster.connections.to_broker(leader)
        topics = [
            {
                "name": name,
                "partitions": [{"partition_index": each.partition, "offset": offsets[each]} for each in some],
            }
            for name, some in by_topic(partitions)
        ]
        response = await connection.request(ApiKey.DELETE_RECORDS, {"topics": topics, "timeout": limit_ms})
        found: dict[TopicPartition, int | KafkaError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                is_deleted = each.error_code == ErrorCode.none
                found[key] = each.low_watermark if is_deleted else _error(key, each.error_code, offsets[key])
        return found

    results = await ask_each(cluster, offsets, ask)
    if errors := errors_of(results):
        raise RefusedPartitionsError(errors)
    return {key: each for key, each in results.items() if not isinstance(each, KafkaError)}


def _error(partition: TopicPartition, code: ErrorCode, offset: int) -> KafkaError:
    return KafkaError(code, _REASONS.get(code, "{0}: " + explained(code)).format(partition, offset))
