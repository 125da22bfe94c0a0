"""A writing task: turns Arrow record batches into Kafka's and sends them to the partitions' leaders.

    Spark's socket → Arrow → a partition for every row → columns.encode_columns (numba) → Produce

No record becomes a Python object. Each task is an idempotent producer: a batch that is resent because its response was
lost is written once. A *task* that Spark repeats, or a micro-batch after a restart, writes its rows again: like the
JVM connector's sink, this one is at-least-once.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import uvloop

from odradek.clients.cluster import Cluster
from odradek.clients.producer.transaction_manager import ProducerIdAndEpoch
from odradek.clients.retry import INVALID_METADATA_ERRORS, retrying
from odradek.model import ConfigurationError, ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.compression import Codec
from odradek.protocol.produce import (
    TOPIC_IDS_FROM,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.runtime import system_runtime
from odradek.spark.options import WriteOptions
from odradek.spark.settings import SinkSettings, client_settings

if TYPE_CHECKING:
    import pyarrow as pa

_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_NO_IDENTITY: Final = ProducerIdAndEpoch(-1, -1)
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class WriteResult(NamedTuple):
    """The acknowledged records and bytes of a task."""

    records: int
    bytes: int


class _Batch(NamedTuple):
    """A record batch to send."""

    partition: TopicPartition
    records: bytearray


def write(batches: Iterator["pa.RecordBatch"], options: WriteOptions) -> WriteResult:
    """Write every row, in order within its partition, and return when all are acknowledged.

    Raise `OdradekError` for the first error that does not pass within `delivery.timeout.ms`.
    """
    loop = uvloop.new_event_loop()
    writer = _Writer(options)
    try:
        for batch in batches:
            if batch.num_rows:
                loop.run_until_complete(writer.write(batch))
        return loop.run_until_complete(writer.finish())
    finally:
        loop.run_until_complete(writer.close())
        loop.close()


class _Writer:
    """Sends the previous Arrow batch while the next one is encoded."""

    def __init__(self, options: WriteOptions) -> None:
        self._settings = client_settings(SinkSettings, options.bootstrap_servers, options.client)
        self._runtime = system_runtime()
        self._cluster = Cluster(
            self._settings, self._runtime, allow_auto_topic_creation=self._settings.allow_auto_create_topics
        )
        self._topic = options.topic
        self._acks = _ACKS[self._settings.acks]
        self._codec = Codec[self._settings.compression_type.upper()]
        self._identity: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._sending: asyncio.Task[None] | None = None
        self._records = self._bytes = 0

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Encode a batch, and send it once the previous one is acknowledged."""
        if self._identity is None:
            await self._start()
        rounds: list[list[_Batch]] = []
        for topic, rows in _by_topic(batch, self._topic):
            numbers = (await self._cluster.topic(topic, timeout_ms=self._settings.delivery_timeout_ms)).numbers
            for number, some in _grouped(self._place(batch, rows, topic, numbers)):
                self._encode(batch, rows[some], TopicPartition(topic, number), rounds)
        self._records += batch.num_rows
        await self._drain()
        self._sending = asyncio.ensure_future(self._send(rounds))
        # Lets the task send before Spark is asked for more.
        await asyncio.sleep(0)

    async def finish(self) -> WriteResult:
        """Return when all is acknowledged."""
        await self._drain()
        return WriteResult(self._records, self._bytes)

    async def close(self) -> None:
        """Close the connections; requests in flight are abandoned."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._cluster.close()

    async def _start(self) -> None:
        await self._cluster.start(timeout_ms=self._settings.delivery_timeout_ms)
        self._identity = _NO_IDENTITY
        if self._settings.enable_idempotence and self._acks == -1:
            self._identity = await retrying(
                self._cluster, self._identify, timeout_ms=self._settings.delivery_timeout_ms
            )

    async def _identify(self) -> ProducerIdAndEpoch:
        connection = await self._cluster.least_loaded_connection()
        message = {"transactional_id": None, "transaction_timeout": self._settings.request_timeout_ms}
        response = await connection.request(ApiKey.INIT_PRODUCER_ID, message)
        if response.error_code != ErrorCode.none:
            raise KafkaError(response.error_code)
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def _place(self, batch: "pa.RecordBatch", rows: Any, topic: str, numbers: Sequence[int]) -> Any:
        """Return each row's partition: the one it names, else that of its key, else one random one per Arrow batch."""
        from odradek.columns import key_partitions

        count = len(numbers)
        placed = np.full(batch.num_rows, -1, np.int32)
        if (key := _column(batch, "key")) is not None:
            placed = key_partitions(key, count)
        placed[placed < 0] = self._runtime.entropy.randrange(count)
        if (named := _column(batch, "partition")) is not None:
            given = named.fill_null(-1).to_numpy(zero_copy_only=False)
            placed = np.where(named.is_valid().to_numpy(zero_copy_only=False), given, placed)
        placed = placed[rows]
        wrong = placed[(placed < 0) | (placed >= count)]
        if len(wrong):
            raise ConfigurationError(f"a row names partition {wrong[0]} of {topic!r}, which has {count}")
        return placed

    def _encode(
        self, batch: "pa.RecordBatch", rows: Any, partition: TopicPartition, rounds: list[list[_Batch]]
    ) -> None:
        """Add the rows' record batches to `rounds`, lists with at most one batch per partition each."""
        from odradek.columns import encode_columns

        identity = self._identity or _NO_IDENTITY
        sequence = -1 if identity is _NO_IDENTITY else self._sequences.get(partition, 0)
        encoded = encode_columns(
            batch,
            default_timestamp_ms=self._runtime.clock.now_ms(),
            rows=rows,
            codec=self._codec,
            max_bytes=self._settings.batch_size,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
        )
        for number, each in enumerate(encoded):
            if number == len(rounds):
                rounds.append([])
            rounds[number].append(_Batch(partition, each.batch))
            self._bytes += len(each.batch)
        self._sequences[partition] = (sequence + len(rows)) & _SEQUENCE_MASK

    async def _drain(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            await sending

    async def _send(self, rounds: list[list[_Batch]]) -> None:
        """Send each round after the previous one, so that a partition's batches stay in order."""
        for batches in rounds:
            waiting = {batch.partition: batch for batch in batches}
            attempt = partial(self._send_some, waiting)
            await retrying(self._cluster, attempt, timeout_ms=self._settings.delivery_timeout_ms)

    async def _send_some(self, waiting: dict[TopicPartition, _Batch]) -> None:
        """Send `waiting`, and remove from it the batches that were accepted."""
        by_leader: dict[int, list[_Batch]] = {}
        for partition, batch in waiting.items():
            leader = self._cluster.metadata.leader(partition)
            if leader is None:
                raise KafkaError(ErrorCode.leader_not_available, f"partition {partition} has no leader now")
            by_leader.setdefault(leader, []).append(batch)
        answers = await asyncio.gather(
            *(self._request(leader, batches, waiting) for leader, batches in by_leader.items()), return_exceptions=True
        )
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures:
            # A fatal error is raised rather than one that may pass.
            raise min(failures, key=lambda failure: getattr(failure, "retriable", False))

    async def _request(self, leader: int, batches: list[_Batch], waiting: dict[TopicPartition, _Batch]) -> None:
        connection = await self._cluster.connection(leader)
        version = connection.version(ApiKey.PRODUCE, at_most=TOPIC_IDS_FROM - 1)
        topics: dict[str, list[tuple[int, bytearray]]] = {}
        for batch in batches:
            topics.setdefault(batch.partition.topic, []).append((batch.partition.partition, batch.records))
        body = encode_produce_request(
            version,
            [ProduceTopic(topic, None, some) for topic, some in topics.items()],
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
        )
        reply = await connection.exchange(ApiKey.PRODUCE, version, body)
        response = decode_produce_response(reply.version, reply.frame, reply.offset)
        failures: list[OdradekError] = []
        for answered in response.topics:
            for answer in answered.partitions:
                partition = TopicPartition(answered.name or "", answer.partition)
                code = ErrorCode(answer.error_code)
                # A duplicate is a batch whose first response was lost.
                if code in {ErrorCode.none, ErrorCode.duplicate_sequence_number}:
                    waiting.pop(partition, None)
                else:
                    reason = f" ({answer.error_message})" if answer.error_message else ""
                    failures.append(KafkaError(code, f"partition {partition}: {code.name.upper()}{reason}"))
                    if code in INVALID_METADATA_ERRORS:
                        self._cluster.request_refresh()
        if failures:
            raise min(failures, key=lambda failure: failure.retriable)


def _column(batch: "pa.RecordBatch", name: str) -> Any:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _grouped(partitions: Any) -> Iterator[tuple[int, Any]]:
    """Yield each partition with its positions in `partitions`, ascending."""
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)


def _by_topic(batch: "pa.RecordBatch", topic: str | None) -> Iterator[tuple[str, Any]]:
    """Yield each topic with its row numbers, ascending."""
    if topic is not None:
        yield topic, np.arange(batch.num_rows, dtype=np.int64)
        return
    names = _column(batch, "topic")
    if names.null_count:
        raise ConfigurationError("a row has no topic, and there is no option topic")
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, np.flatnonzero(codes == code)
