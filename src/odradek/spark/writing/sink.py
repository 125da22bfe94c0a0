"""A writing task: sends Arrow record batches to Kafka with a producer's `send_arrow`.

    Spark's socket → Arrow → a partition for every row → Producer.send_arrow (C) → Produce

No record becomes a Python object. Each task is an idempotent producer: a batch that is resent because its response was
lost is written once. A *task* or micro-batch that Spark repeats writes its rows again: at least once, as with the JVM
connector. With a transactional id, a task leaves its rows in a prepared transaction, which the driver ends
(`odradek.spark.writing.committer`).
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from odradek.clients import Admin, Producer
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.clients.blocking.loop_thread import loop_thread
from odradek.clients.producer import ProducerSettings
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.config.definition import INT_MAX, definitions
from odradek.model import ConfigurationError, ErrorCode, KafkaError, OdradekError
from odradek.runtime import system_runtime
from odradek.spark.options import WriteOptions
from odradek.spark.settings import SinkSettings, client_settings, shared_keywords

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.clients.producer.arrow import SentRows


_NO_TWO_PHASE_COMMIT: Final = {ErrorCode.unsupported_version, ErrorCode.transactional_id_authorization_failed}
"""The answers of brokers without it, or to users without the right to it."""
RECENT_MS: Final = 3_600_000
"""Records that are not older than this are not compared: a retention below one hour is rare, and a request costs."""
_log = logging.getLogger("odradek.spark")
_retention_ms: dict[tuple[str, str], int] = {}
"""By bootstrap servers and topic, requested once in a process; -1 also after the warning."""


class WriteResult(NamedTuple):
    """The acknowledged records of a task, the bytes that it sent, and its transaction, if it has one."""

    records: int
    bytes: int
    prepared: PreparedTransaction | None = None


def write(
    batches: Iterator["pa.RecordBatch"], options: WriteOptions, transactional_id: str | None = None
) -> WriteResult:
    """Write every row, in order within its partition, and return when all are acknowledged.

    With a `transactional_id`, prepare a transaction, unless there are no rows. Raise `OdradekError` for the first batch
    that is refused, or not acknowledged within `delivery.timeout.ms`.
    """
    run = loop_thread().run
    writer = _Writer(options, transactional_id)
    try:
        for batch in batches:
            if batch.num_rows:
                run(partial(writer.write, batch))
        return run(writer.finish)  # type: ignore[no-any-return]
    finally:
        run(writer.close)


class _Writer:
    """Sends Arrow batches; several are in flight, up to the producer's buffer memory, while Spark prepares the next."""

    def __init__(self, options: WriteOptions, transactional_id: str | None) -> None:
        self._settings = client_settings(SinkSettings, options.bootstrap_servers, options.client, in_task=True)
        self._runtime = system_runtime()
        self._transactional_id = transactional_id
        self._producer = self._new_producer(two_phase=True)
        self._options = options
        self._sent: deque[SentRows] = deque()
        self._records = 0
        self._is_started = False

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Send a batch. Raise `ConfigurationError` for a row without a valid partition, or an earlier batch's error."""
        if not self._is_started:
            await self._start()
            self._is_started = True
        for topic, rows in _by_topic(batch, self._options.topic):
            numbers = await self._producer.partitions_for(topic)
            columns = _sent_columns(
                batch, rows, self._place(batch, rows, topic, numbers), with_timestamp=self._options.include_timestamp
            )
            if self._options.include_timestamp and (oldest_ms := _oldest_ms(columns)) is not None:
                admin = shared_keywords(self._options.bootstrap_servers, self._options.client)
                await check_retention(admin, topic, oldest_ms, self._runtime.clock.now_ms())
            self._sent += await self._producer.send_arrow(columns, topic, max_batch_bytes=self._settings.batch_size)
        while self._sent and self._sent[0].offsets.done():
            self._records += len(self._sent.popleft().offsets.result())

    async def finish(self) -> WriteResult:
        """Wait until all rows are acknowledged; return the totals."""
        for each in self._sent:
            self._records += len(await each.offsets)
        self._sent.clear()
        prepared = None
        if self._transactional_id is not None and self._is_started:
            prepared = await self._producer.prepare(may_time_out=True)
        return WriteResult(self._records, int(self._producer.metrics()["byte_total"]), prepared)

    async def close(self) -> None:
        """Close the connections; requests in flight are abandoned."""
        await self._producer.close(timeout_ms=0)

    def _new_producer(self, *, two_phase: bool) -> Producer:
        keywords = _producer_keywords(self._settings)
        if self._transactional_id is not None:
            keywords["transactional_id"] = self._transactional_id
            if two_phase:
                del keywords["transaction_timeout_ms"]
                keywords["transaction_two_phase_commit_enable"] = True
        return Producer(runtime=self._runtime, **keywords)

    async def _start(self) -> None:
        """Start the producer; with a transactional id, begin a transaction, without a timeout if brokers allow it."""
        try:
            await self._producer.start()
        except KafkaError as error:
            if self._transactional_id is None or error.code not in _NO_TWO_PHASE_COMMIT:
                raise
            await self._producer.close(timeout_ms=0)
            self._producer = self._new_producer(two_phase=False)
            await self._producer.start()
        if self._transactional_id is not None:
            await self._producer.begin_transaction()

    def _place(self, batch: "pa.RecordBatch", rows: Any, topic: str, numbers: Sequence[int]) -> Any:
        """Return the partition of each of `rows`: column `partition`, else by key, else a random one for the batch."""
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


def _producer_keywords(settings: SinkSettings) -> dict[str, Any]:
    """Return a producer's settings: those of the sink, and no limit on record size other than the broker's."""
    shared = definitions(ProducerSettings).keys() & definitions(SinkSettings).keys() - {"batch.size"}
    keywords = {definitions(SinkSettings)[name].attribute for name in shared}
    return {name: getattr(settings, name) for name in keywords} | {
        "enable_idempotence": settings.enable_idempotence and settings.acks != "1",
        "linger_ms": 0,
        "max_block_ms": settings.delivery_timeout_ms,
        "max_request_size": INT_MAX,
        "request_timeout_ms": min(settings.request_timeout_ms, settings.delivery_timeout_ms),
    }


def _sent_columns(batch: "pa.RecordBatch", rows: Any, placed: Any, *, with_timestamp: bool) -> "pa.RecordBatch":
    """Return `rows` of a batch with the columns that `send_arrow` takes, `partition` last."""
    import pyarrow as pa

    if len(rows) < batch.num_rows:
        batch = batch.take(pa.array(rows))
    wanted = ("key", "value", "headers", *(("timestamp",) if with_timestamp else ()))
    names = [name for name in wanted if name in batch.schema.names]
    columns = [batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays([*columns, pa.array(placed)], [*names, "partition"])


def _oldest_ms(batch: "pa.RecordBatch") -> int | None:
    """Return the lowest timestamp of a batch; None if no row has one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    oldest = pc.min(batch.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()))
    return oldest.as_py()  # type: ignore[no-any-return]


def _column(batch: "pa.RecordBatch", name: str) -> Any:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _by_topic(batch: "pa.RecordBatch", topic: str | None) -> Iterator[tuple[str, Any]]:
    """Yield each topic with its row numbers, ascending. Raise `ConfigurationError` for a row without topic."""
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


async def check_retention(settings: Mapping[str, Any], topic: str, oldest_ms: int, now_ms: int) -> None:
    """Log a warning, once per topic and process, if records of that timestamp are beyond the topic's retention.

    `settings` are the keyword arguments of an `Admin`.
    """
    if now_ms - oldest_ms <= RECENT_MS:
        return
    key = settings["bootstrap_servers"], topic
    if key not in _retention_ms:
        _retention_ms[key] = await _requested(settings, topic)
    if 0 <= _retention_ms[key] < now_ms - oldest_ms:
        _log.warning(
            "Topic %s gets records with timestamps older than its retention.ms=%d, which its brokers soon delete: set "
            "its retention.ms to -1, or write without includeTimestamp",
            topic,
            _retention_ms[key],
        )
        _retention_ms[key] = -1


async def _requested(settings: Mapping[str, Any], topic: str) -> int:
    resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
    try:
        async with Admin(**settings) as admin:
            entries = (await admin.describe_configs([resource]))[resource]
    except OdradekError as error:
        _log.debug("The retention of topic %s is unknown: %s", topic, error)
        return -1
    return deleting_after_ms({entry.name: entry.value for entry in entries})


def deleting_after_ms(configs: Mapping[str, str | None]) -> int:
    """Return the age in ms at which a topic's records are deleted; -1 if none are by the timestamp of their writer."""
    if "delete" not in str(configs.get("cleanup.policy")) or configs.get("message.timestamp.type") == "LogAppendTime":
        return -1
    return int(configs.get("retention.ms") or -1)
