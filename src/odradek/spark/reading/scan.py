"""A reading task: fetches offset ranges and returns them as Arrow record batches.

    broker → ranges by RangeReader, one fetch at a time from each leader (asyncio) → raw record batches
           → columns.iterate_partitions (C) → Arrow → Spark's socket

Only the selected columns are decoded. The schema of the first batch must equal the query's exactly. A read that decodes
values may have dead letters, all of which are written before the task ends.
"""

import dataclasses
import logging
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients.blocking.loop_thread import loop_thread
from odradek.clients.cluster import Cluster
from odradek.clients.offsets import EARLIEST, list_offsets
from odradek.clients.reader import RangeReader
from odradek.model import ErrorCode, KafkaError
from odradek.runtime import system_runtime
from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import ReadOptions
from odradek.spark.reading.planning import DataLossError, OffsetRange
from odradek.spark.reading.worker_clients import keep_imports_out_of_collections, lend_client
from odradek.spark.settings import ScanSettings, client_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.spark.writing.dead_letters import WaitingLetters

    _RowsAndLetters = tuple[pa.RecordBatch, pa.RecordBatch | None]

_log = logging.getLogger("odradek.spark")

MOST_ROWS: Final = 50_000
"""Rows per Arrow batch: below 10,000 the batch's own cost shows, above 50,000 the JVM's memory does (measured)."""


class ScanTask(Struct, frozen=True, kw_only=True):
    """Offset ranges of different partitions, the read's options, and the selected columns."""

    ranges: tuple[OffsetRange, ...]
    options: ReadOptions
    columns: tuple[str, ...]
    brokers: tuple[str, ...] = ()
    """HOST:PORT of the brokers in the driver's metadata: the bootstrap servers may be gone by now."""
    topic_ids: Mapping[str, uuid.UUID] = {}
    """The ids of topics in the driver's metadata. Another id ends the task: a new attempt of the query plans anew."""


def scan(task: ScanTask) -> Iterator["pa.RecordBatch"]:
    """Yield the records of the ranges, in order within each range.

    Raise `DataLossError` if records are lost and `failOnDataLoss` is on.
    """
    options = task.options
    settings = _settings(options)
    run = loop_thread().run
    with brief_errors(), lend_client(settings, lambda: _connect(settings, task)) as cluster:
        waiting = _waiting_letters(options)
        batches = _batches(cluster, task)
        try:
            while (found := run(lambda: anext(batches, None))) is not None:
                batch, letters = found
                if letters is not None and waiting is not None:
                    waiting.add(letters)
                yield batch
            if waiting is not None:
                waiting.write()
        finally:
            # Spark may stop reading before the end, for a query with LIMIT.
            run(batches.aclose)
    keep_imports_out_of_collections()


def _waiting_letters(options: ReadOptions) -> "WaitingLetters | None":
    if options.values is None or options.values.dead_letters is None:
        return None
    from odradek.spark.writing.dead_letters import WaitingLetters, make_destination

    return WaitingLetters(make_destination(options.values.dead_letters, options.bootstrap_servers, options.client))


async def _connect(settings: ScanSettings, task: ScanTask) -> Cluster:
    servers = tuple(dict.fromkeys((*task.brokers, *settings.bootstrap_servers)))
    cluster = Cluster(dataclasses.replace(settings, bootstrap_servers=servers), system_runtime())
    cluster.set_topics(sorted({each.partition.topic for each in task.ranges}))
    try:
        await cluster.start()
    except BaseException:
        await cluster.close()
        raise
    return cluster


async def _batches(cluster: Cluster, task: ScanTask) -> "AsyncGenerator[_RowsAndLetters, None]":
    async with aclosing(_fetched(cluster, task)) as fetched:
        async for buffers in fetched:
            for found in _decoded(buffers, task):
                yield found


def _decoded(buffers: Sequence[tuple[OffsetRange, memoryview]], task: ScanTask) -> "Iterator[_RowsAndLetters]":
    # Imported here because numpy and pyarrow are slow to import and the driver does not need them.
    from odradek.columns import PartitionBatches, RecordColumns, iterate_partitions

    # Spark's names have any case.
    names = tuple("timestamp_type" if name.lower() == "timestamptype" else name.lower() for name in task.columns)
    sources = [
        PartitionBatches(buffer, range_.partition.topic, range_.partition.partition, range_.start, range_.end)
        for range_, buffer in buffers
    ]
    of_records, values = names, task.options.values
    if values is not None:
        from odradek.spark.value_columns import NAMES, OF_LETTERS, dead_letters, with_decoded_values

        needed = (
            ["value"] if values.dead_letters is None else [*OF_LETTERS, *["headers"] * task.options.include_headers]
        )
        of_records = tuple(dict.fromkeys(name for name in (*names, *needed) if name not in NAMES))
    for batch in iterate_partitions(sources, RecordColumns(names=of_records, timestamp_unit="us"), check_crcs=False):
        if "headers" in of_records:
            index = of_records.index("headers")
            batch = batch.set_column(index, batch.schema.field(index), _null_if_empty(batch.column(index)))
        rows = -(-batch.num_rows // -(-batch.num_rows // MOST_ROWS))
        for first in range(0, batch.num_rows, rows):
            piece, letters = batch.slice(first, rows), None
            if values is not None:
                piece = with_decoded_values(piece, values)
                letters = dead_letters(piece, values.dead_letters) if values.dead_letters is not None else None
                piece = piece.select(list(names))
            yield piece.rename_columns(list(task.columns)), letters


def _null_if_empty(lists: "pa.ListArray") -> "pa.ListArray":
    """Return null instead of an empty list, as the JVM connector does for a record without headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_empty = pc.invert(lists.value_lengths().cast(pa.bool_()))  # a comparison with 0 would import pandas
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=is_empty)


async def _fetched(cluster: Cluster, task: ScanTask) -> AsyncGenerator[list[tuple[OffsetRange, memoryview]], None]:
    """Yield raw record batches with the range of offsets to use: batches may begin before the range or end after it.

    Raise `DataLossError` for lost records if `failOnDataLoss` is on; else continue at the log start offset.
    """
    options, settings = task.options, _settings(task.options)
    known = cluster.metadata.topics
    if any(name in known and known[name].topic_id != topic_id for name, topic_id in task.topic_ids.items()):
        # The client's metadata may be older than the topic.
        await cluster.refresh(timeout_ms=settings.default_api_timeout_ms)
    groups: list[Sequence[OffsetRange]] = [task.ranges]
    while groups:
        group = {each.partition: each for each in groups.pop(0)}
        reader = RangeReader(
            cluster,
            {partition: (each.start, each.end) for partition, each in group.items()},
            isolation_level=settings.isolation_level,
            max_bytes=settings.max_partition_fetch_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            timeout_ms=options.poll_timeout_ms or settings.default_api_timeout_ms,
            check_crcs=settings.check_crcs,
        )
        reader.topic_ids |= task.topic_ids
        try:
            # Closes the reader's current fetch now rather than at garbage collection.
            async with aclosing(aiter(reader)) as rounds:
                async for runs in rounds:
                    yield [(replace(group[each.partition], start=each.start), each.buffer) for each in runs]
        except KafkaError as error:
            if error.code != ErrorCode.offset_out_of_range:
                raise
            left = [replace(group[partition], start=start) for partition, (start, _) in reader.left.items()]
            if len(left) > 1:
                # One range has lost records: read each range alone, so that only this one fails or skips them.
                groups[:0] = [(each,) for each in left]
            else:
                groups.insert(0, (await _after_loss(cluster, options, left[0], error),))


def _settings(options: ReadOptions) -> ScanSettings:
    return client_settings(ScanSettings, options.bootstrap_servers, options.client, in_task=True)


async def _after_loss(cluster: Cluster, options: ReadOptions, range_: OffsetRange, error: KafkaError) -> OffsetRange:
    """Return the part of the range to read after `error`: from the log start offset on, none if that is not later.

    Raise `DataLossError` if `failOnDataLoss` is on.
    """
    if options.fail_on_data_loss:
        raise DataLossError(f"{error}; set failOnDataLoss=false to read the rest") from error
    _log.warning("Lost records of %s: %s", range_.partition, error)
    answer = await list_offsets(cluster, {range_.partition: EARLIEST})
    log_start_offset = answer[range_.partition].offset
    return replace(range_, start=log_start_offset if log_start_offset > range_.start else range_.end)
