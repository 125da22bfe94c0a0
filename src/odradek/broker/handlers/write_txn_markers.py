"""WriteTxnMarkers: append a transaction's commit or abort marker to its partitions (KIP-98).

Coordinators send the request. Administrators send it to end a transaction that no coordinator knows (KIP-664).
Version 2: the marker's transaction version (KIP-1228), which decides which producer epochs are valid
(`log.producers.producer_state`).
"""

import asyncio
from functools import partial
from typing import Any, Protocol

from odradek.broker.parts import HasGroups, HasPartitions, HasRuntime
from odradek.broker.replication.partition import ACKS_ALL
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.messages.message_codec import optional


class _Broker(HasGroups, HasPartitions, HasRuntime, Protocol): ...


async def handle(broker: _Broker, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one error per producer and partition, when all markers are committed or have failed.

    As in Kafka, markers of one producer for one partition share one error.
    """
    del context
    writes = _Writes(broker)
    for marker in message.markers:
        for topic in marker.topics:
            for number in topic.partition_indexes:
                writes.begin(marker, TopicPartition(topic.name, number))
    results = await writes.finished()
    return _answer(results)


def refuse(message: Any, error: KafkaError) -> dict[str, Any]:
    """Return `error` for every partition of every marker."""
    results: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker in message.markers:
        keys = (TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes)
        results.setdefault(marker.producer_id, {}).update(dict.fromkeys(keys, error.code))
    return _answer(results)


def _answer(results: dict[int, dict[TopicPartition, ErrorCode]]) -> dict[str, Any]:
    return {
        "markers": [
            {"producer_id": producer_id, "topics": _by_topic(errors)} for producer_id, errors in results.items()
        ]
    }


class _Writes:
    """The markers of one request that are being written."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._now_ms = broker.runtime.clock.now_ms()
        self._results: dict[int, dict[TopicPartition, ErrorCode]] = {}
        self._waiting = 0
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self, marker: Any, topic_partition: TopicPartition) -> None:
        errors = self._results.setdefault(marker.producer_id, {})
        errors[topic_partition] = ErrorCode.none
        try:
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request)
            partition = self._broker.partitions.leader(*topic_partition)
            is_commit = bool(marker.transaction_result)
            info = partition.append_marker(
                EndTransactionMarker(ControlType.COMMIT if is_commit else ControlType.ABORT, marker.coordinator_epoch),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_version=optional(marker, "transaction_version", 0),
                now_ms=self._now_ms,
            )
        except KafkaError as error:
            errors[topic_partition] = error.code
        else:
            end_offset = info.last_offset + 1
            self._broker.groups.marker_appended(topic_partition, marker.producer_id, end_offset, is_commit=is_commit)
            self._waiting += 1
            partition.when_acknowledged(
                info, acks=ACKS_ALL, waiter=partial(self._acknowledged, errors, topic_partition)
            )

    async def finished(self) -> dict[int, dict[TopicPartition, ErrorCode]]:
        """Return each producer's errors, once all markers are committed or have failed."""
        if self._waiting:
            await self._finished
        return self._results

    def _acknowledged(
        self, errors: dict[TopicPartition, ErrorCode], topic_partition: TopicPartition, error: KafkaError | None
    ) -> None:
        if error is not None:
            errors[topic_partition] = error.code
        self._waiting -= 1
        if not self._waiting and not self._finished.done():
            self._finished.set_result(None)


def _by_topic(errors: dict[TopicPartition, ErrorCode]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": number, "error_code": error})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
