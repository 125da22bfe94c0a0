"""A reading task: fetches an offset range of one partition and returns it as Arrow record batches.

    broker → PartitionReader (asyncio) → raw record batches → columns.iterate_columns (numba) → Arrow → Spark's socket

Only the selected columns are decoded. The schema of the first batch must equal the query's exactly.
"""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import EARLIEST, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.model import ErrorCode, KafkaError
from odradek.model.values import dataclass
from odradek.runtime import system_runtime
from odradek.spark.options import ReadOptions
from odradek.spark.planning import DataLossError, OffsetRange
from odradek.spark.settings import ScanSettings, client_settings
from odradek.spark.worker_clients import keep_imports_out_of_collections, worker_clients

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("odradek.spark")

MOST_ROWS: Final = 50_000
"""Rows per Arrow batch: below 10,000 the batch's own cost shows, above 50,000 the JVM's memory does (measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """An offset range, the read's options, and the selected columns."""

    range: OffsetRange
    options: ReadOptions
    columns: tuple[str, ...]
    brokers: tuple[str, ...] = ()
    """HOST:PORT of the brokers that the driver knows: the bootstrap servers may be gone since."""


def scan(task: ScanTask) -> Iterator["pa.RecordBatch"]:
    """Yield the records of the range. Raise `DataLossError` if some are lost and `failOnDataLoss` is on."""
    options = task.options
    settings = client_settings(ScanSettings, options.bootstrap_servers, options.client, in_task=True)
    clients = worker_clients()
    with clients.lend(settings, lambda: _connect(settings, task)) as cluster:
        batches = _batches(cluster, task)
        try:
            while (batch := clients.loop.run_until_complete(anext(batches, None))) is not None:
                yield batch
        finally:
            # Spark stops a query with a limit before the end.
            clients.loop.run_until_complete(batches.aclose())
    keep_imports_out_of_collections()


async def _connect(settings: ScanSettings, task: ScanTask) -> Cluster:
    servers = tuple(dict.fromkeys((*task.brokers, *settings.bootstrap_servers)))
    cluster = Cluster(replace(settings, bootstrap_servers=servers), system_runtime())
    cluster.set_topics([task.range.partition.topic])
    try:
        await cluster.start()
    except BaseException:
        await cluster.close()
        raise
    return cluster


async def _batches(cluster: Cluster, task: ScanTask) -> AsyncGenerator["pa.RecordBatch", None]:
    # Imported here because numba and pyarrow are slow to import and the driver does not need them.
    from odradek.columns import RecordColumns, iterate_columns

    names = tuple("timestamp_type" if name == "timestampType" else name for name in task.columns)
    columns = RecordColumns(names=names, timestamp_unit="us")
    partition = task.range.partition
    async with aclosing(_buffers(cluster, task)) as buffers:
        async for start, buffer in buffers:
            for batch in iterate_columns(
                buffer,
                columns,
                topic=partition.topic,
                partition=partition.partition,
                from_offset=start,
                up_to_offset=task.range.end,
                check_crcs=False,
            ):
                renamed = batch.rename_columns(list(task.columns))
                rows = -(-batch.num_rows // -(-batch.num_rows // MOST_ROWS))
                for first in range(0, batch.num_rows, rows):
                    yield renamed.slice(first, rows)


async def _buffers(cluster: Cluster, task: ScanTask) -> AsyncGenerator[tuple[int, memoryview], None]:
    """Yield raw record batches and the first offset to use, since a batch may begin with earlier records.

    After a loss that is allowed, reading continues where the log does.
    """
    range_ = task.range
    settings = client_settings(ScanSettings, task.options.bootstrap_servers, task.options.client, in_task=True)
    position = range_.start
    while position < range_.end:
        reader = PartitionReader(
            cluster,
            range_.partition,
            position,
            range_.end,
            isolation_level=settings.isolation_level,
            max_bytes=settings.max_partition_fetch_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            timeout_ms=task.options.poll_timeout_ms or settings.default_api_timeout_ms,
            check_crcs=settings.check_crcs,
        )
        try:
            # Closes the reader's current fetch now rather than at garbage collection.
            async with aclosing(aiter(reader)) as buffers:
                async for buffer in buffers:
                    yield position, buffer
            return
        except KafkaError as error:
            if error.code != ErrorCode.offset_out_of_range:
                raise
            position = await _after_loss(cluster, task, reader.position, error)


async def _after_loss(cluster: Cluster, task: ScanTask, position: int, error: KafkaError) -> int:
    """Return where the log continues, or the range's end if it does not."""
    if task.options.fail_on_data_loss:
        raise DataLossError(f"{error}; failOnDataLoss = false reads what is left") from error
    _log.warning("%s", error)
    answer = await list_offsets(
        cluster, {task.range.partition: EARLIEST}, timeout_ms=cluster.settings.default_api_timeout_ms
    )
    log_start_offset = answer[task.range.partition].offset
    return log_start_offset if log_start_offset > position else task.range.end
