"""Compares a table's rows with the records of its topic."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from odradek.cli.common import client_settings
from odradek.clients import SimpleConsumer
from odradek.clients.settings import FetchSettings
from odradek.model import PreconditionError, TopicPartition
from odradek.tables.contents import PipelineProgress, describe_table, row_offsets
from odradek.tables.location import TableLocation
from odradek.tables.machine.comparison import Comparison, LastRecords, compare_offsets
from odradek.tables.machine.marks import Progress

_FETCHED_BYTES = 8 << 20


async def check_topic(
    location: TableLocation, topic: str, pipeline: str | None
) -> list[tuple[int, int, int, int, Comparison]]:
    """Return for each partition its number, first and end offset, the rows before the log's start, and a comparison.

    The rows of a table with a key are compared with the last record of each key, but for tombstones. Those whose record
    compaction has removed for one that the pipeline has not read yet count as rows before the log's start.
    """
    settings = client_settings(FetchSettings) | {"isolation_level": "read_committed"}
    async with SimpleConsumer(**settings) as consumer:
        partitions = [TopicPartition(topic, number) for number in await consumer.partitions_for_topic(topic)]
        # The table before the topic's offsets: a pipeline may run, and what it adds later is not compared.
        table = describe_table(location)
        known = _progress_of(table.pipelines, topic, pipeline)
        rows = row_offsets(location, topic)
        log_starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        starts, nexts = ({}, {}) if known is None else (_offsets(known.start, topic), _offsets(known.progress, topic))
        gone = sorted(nexts.keys() - {each.partition for each in partitions})
        if gone:
            raise PreconditionError(
                f"topic {topic} has no partition {gone[0]}, which the table {location} has: it was created again"
            )
        found = []
        for each in partitions:
            own = rows.get(each.partition, np.empty(0, np.int64))
            start = max(starts.get(each.partition, 0), log_starts[each])
            end = nexts.get(each.partition, int(own.max()) + 1 if len(own) else start)
            if end > ends[each]:
                raise PreconditionError(
                    f"{each} ends at offset {ends[each]}, before {end} where the table {location} ends: the topic was "
                    "created again, or has lost its tail"
                )
            # A pipeline that still runs may have committed since its progress was read.
            own = own[own < end] if known is not None else own
            if table.key:
                last = await _last_records(consumer, each, start, end)
                records = last.offsets()
                is_expired = (own < start) | ((end < ends[each]) & ~np.isin(own, last.present()))
            else:
                records, is_expired = await _record_offsets(consumer, each, start, end), own < start
            found.append(
                (each.partition, start, end, int(is_expired.sum()), compare_offsets(records, own[~is_expired]))
            )
        return found


def _progress_of(pipelines: tuple[PipelineProgress, ...], topic: str, name: str | None) -> PipelineProgress | None:
    """Return the progress of the pipeline that reads the topic; None if no pipeline says so."""
    if name is not None:
        found = [each for each in pipelines if each.pipeline == name]
        if not found:
            known = ", ".join(each.pipeline for each in pipelines) or "none"
            raise PreconditionError(f"the table has no pipeline {name}: there are {known}")
        return found[0]
    found = [each for each in pipelines if _offsets(each.progress, topic)]
    if len(found) > 1:
        raise PreconditionError(
            f"several pipelines write {topic} to the table, so it has its records more than once: "
            f"{', '.join(each.pipeline for each in found)}"
        )
    if not found and any(not each.progress for each in pipelines):
        return None
    if not found and pipelines:
        raise PreconditionError(f"no pipeline of the table reads topic {topic}")
    return found[0] if found else None


def _offsets(progress: Progress, topic: str) -> dict[int, int]:
    """Return the lowest offset of each partition of all sources that read the topic."""
    found: dict[int, int] = {}
    for source in progress:
        known = (source or {}).get(topic)
        for number, offset in ({} if known is None else known.offsets).items():
            found[number] = min(offset, found.get(number, offset))
    return found


async def _records(
    consumer: SimpleConsumer, partition: TopicPartition, start: int, end: int, *columns: str
) -> AsyncIterator[Any]:
    """Yield columns of a partition's records from `start` to before `end` as Arrow tables, with `offset` among them."""
    while start < end:
        fetched = await consumer.fetch_arrow(partition, start, columns=columns, max_bytes=_FETCHED_BYTES)
        yield fetched.records.slice(0, int(np.searchsorted(fetched.records.column("offset").to_numpy(), end)))
        start = fetched.next_offset


async def _record_offsets(consumer: SimpleConsumer, partition: TopicPartition, start: int, end: int) -> Any:
    """Return the offsets of a partition's records from `start` to before `end`."""
    parts = [part.column("offset").to_numpy() async for part in _records(consumer, partition, start, end, "offset")]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


async def _last_records(consumer: SimpleConsumer, partition: TopicPartition, start: int, end: int) -> LastRecords:
    found = LastRecords()
    async for part in _records(consumer, partition, start, end, "offset", "key", "value"):
        found.add(part)
    return found
