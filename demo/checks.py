"""Compares the results of the pipelines with those computed from the source files."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from demo.source import FLIGHTS, WEATHER, Hour, Input
from odradek.clients import Admin
from odradek.clients.cluster import Cluster, open_cluster
from odradek.clients.offsets import LATEST, list_offsets, partitions_of
from odradek.clients.reader import PartitionReader
from odradek.columns import RecordColumns, decode_batches
from odradek.model import TopicPartition

_COLUMNS = RecordColumns(names=("key", "value", "timestamp", "headers"))


class Check(NamedTuple):
    """One comparison of an expected and a found value."""

    what: str
    expected: object
    found: object

    @property
    def is_right(self) -> bool:
        """Whether the two are equal."""
        return self.expected == self.found


class Delay(NamedTuple):
    """A row of the real-time result: an hour and an airline."""

    hour: datetime
    carrier: str
    flights: int
    departed: int
    delay_minutes: int
    mean_wind: float | None


class GroupProgress(NamedTuple):
    """A consumer group's sum of committed offsets, and its lag (None if unknown)."""

    committed: int
    lag: int | None


def check_delays(directory: Path, given: Input) -> tuple[list[Check], list[Delay]]:
    """Check the real-time result, row by row; return the checks and the five rows with the most delay."""
    rows = [Delay(**row) for row in ds.dataset(directory, format="parquet").to_table().to_pylist()]
    found = {(row.hour, row.carrier): row for row in rows}
    wrong = sum(not _alike(expected, found.get(key)) for key, expected in given.hours.items())
    flights = sum(hour.flights for hour in given.hours.values())
    worst = sorted(rows, key=lambda row: row.delay_minutes, reverse=True)[:5]
    return [
        Check("delays: hours and airlines", len(given.hours), len(rows)),
        Check("delays: flights in them", flights, sum(row.flights for row in rows)),
        Check("delays: rows that differ", 0, wrong),
    ], worst


def check_archive(directory: Path, given: Input) -> list[Check]:
    """Check the offline result: the number of rows, in all and by month and airline."""
    table = ds.dataset(directory, format="parquet", partitioning="hive").to_table(columns=["month", "carrier"])
    counted = table.group_by(["month", "carrier"]).aggregate([([], "count_all")]).to_pylist()
    found = {(row["month"], row["carrier"]): row["count_all"] for row in counted}
    return [
        Check("archive: flights", given.flights, table.num_rows),
        Check("archive: months and airlines that differ", 0, _different(given.by_month_and_carrier, found)),
    ]


async def check_mirror(source: str, target: str, given: Input) -> list[Check]:
    """Compare both clusters record by record: keys, values, headers, timestamps, and the order in every partition."""
    async with open_cluster(source) as one, open_cluster(target) as other:
        checks = []
        for topic, count in ((FLIGHTS, given.flights), (WEATHER, given.weather)):
            numbers = (await partitions_of(one, [topic]))[topic]
            originals = [await _read(one, TopicPartition(topic, number)) for number in numbers]
            copies = [
                await _read(other, TopicPartition(topic, number))
                for number in (await partitions_of(other, [topic]))[topic]
            ]
            keyless = sum(table["key"].null_count for table in originals)
            checks += [
                Check(f"{topic}: records", count + 1, sum(len(table) for table in originals)),
                Check(f"{topic}: without a key", given.keyless if topic == FLIGHTS else 0, keyless),
                Check(f"mirror of {topic}: partitions", len(originals), len(copies)),
                Check(
                    f"mirror of {topic}: partitions that differ",
                    0,
                    sum(not original.equals(copy) for original, copy in zip(originals, copies, strict=False)),
                ),
            ]
        return checks


async def group_progress(bootstrap_servers: str, groups: list[str]) -> dict[str, GroupProgress]:
    """Return the progress of each group, as `odradek groups describe` shows it."""
    async with Admin(bootstrap_servers) as admin:
        described = {group: await admin.describe_group(group) for group in groups}
    return {
        group: GroupProgress(sum(each.committed_offset or 0 for each in description.partitions), description.lag)
        for group, description in described.items()
    }


async def _read(cluster: Cluster, partition: TopicPartition) -> pa.Table:
    ends = await list_offsets(cluster, {partition: LATEST})
    reader = PartitionReader(cluster, partition, 0, ends[partition].offset, isolation_level="read_committed")
    pieces = [decode_batches(buffer, _COLUMNS) async for buffer in reader]
    return pa.Table.from_batches(pieces, _COLUMNS.schema)


def _alike(expected: Hour, found: Delay | None) -> bool:
    """Return whether the counts are equal, and the mean wind except for rounding."""
    if found is None:
        return False
    counts = (expected.flights, expected.departed, expected.delay_minutes)
    if counts != (found.flights, found.departed, found.delay_minutes):
        return False
    if expected.mean_wind is None or found.mean_wind is None:
        return expected.mean_wind is found.mean_wind
    return math.isclose(expected.mean_wind, found.mean_wind, rel_tol=1e-9)


def _different(expected: Mapping[tuple[int, str], int], found: Mapping[tuple[int, str], int]) -> int:
    return sum(expected.get(key) != found.get(key) for key in {*expected, *found})


def failures(checks: list[Check]) -> Iterator[str]:
    """Yield a line for every failed check."""
    for check in checks:
        if not check.is_right:
            yield f"{check.what}: {check.found:,} instead of {check.expected:,}"
