"""`RangeReader` reads offset ranges of partitions as undecoded record batches, for Spark tasks and tools.

async with open_cluster(bootstrap_servers="localhost:9092") as cluster:
    async for batches in PartitionReader(cluster, TopicPartition("flights", 0), 1000, 2000):
        columns.decode_batches(batches, ...)
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.fetch import FetchLimits, FetchPosition, readable_runs
from odradek.clients.leader_fetch import LeaderAnswer, fetch_from_leaders
from odradek.model import TopicPartition, UnavailableError

DEFAULT_FETCH_BYTES: Final = 4 << 20
"""4 MiB amortises the cost of a fetch, and two buffers fit in the memory of a Spark task."""


class Run(NamedTuple):
    """Adjacent record batches of a partition, of which the records from offset `start` on are new."""

    partition: TopicPartition
    start: int
    buffer: memoryview


class RangeReader:
    """An iterator over buffers of whole record batches with all records of `ranges`, `(start, end)` by partition.

    `end` is exclusive. Each leader gets one fetch at a time, and the next is in flight while buffers, which are views
    of the responses, are processed. The first batch may begin before the range and the last may end after it; the
    caller drops those records. Control batches and, with `read_committed`, aborted transactions are skipped, so a range
    may yield no buffer.

    Raises `OffsetOutOfRangeError` if a log lacks a fetched offset, `TopicRecreatedError` if a topic is deleted and
    created again, and `UnavailableError` or the last retriable error if no records arrive for `timeout_ms`.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        isolation_level: str = "read_uncommitted",
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        timeout_ms: int | None = None,
        check_crcs: bool = True,
    ) -> None:
        self.left = {partition: (start, end) for partition, (start, end) in ranges.items() if start < end}
        """The ranges after all fetched buffers, even those not yielded yet."""
        self.topic_ids: dict[str, uuid.UUID | None] = {}
        """The id that each topic must have; by default, its id at the first fetch."""
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._limits = FetchLimits(
            max_wait_ms=max_wait_ms, max_bytes=max(max_bytes, 1), isolation_level=isolation_level
        )
        self._timeout_ms = cluster.timeout_ms if timeout_ms is None else timeout_ms
        self._check_crcs = check_crcs

    async def __aiter__(self) -> AsyncGenerator[list[Run], None]:
        """Yield the buffers of one round of fetches at a time; a second iteration continues with `left`."""
        next_fetch = asyncio.ensure_future(self._fetch()) if self.left else None
        try:
            while next_fetch is not None:
                answers = await next_fetch
                next_fetch = None
                runs = self._split_readable(answers)
                if self.left:
                    next_fetch = asyncio.ensure_future(self._fetch())
                if runs:
                    yield runs
        finally:
            if next_fetch is not None:
                next_fetch.cancel()
                await asyncio.gather(next_fetch, return_exceptions=True)

    def _split_readable(self, answers: Mapping[TopicPartition, LeaderAnswer]) -> list[Run]:
        """Advance `left` past the fetched batches, and return the readable ones as contiguous buffers."""
        found: list[Run] = []
        for partition, (fetched, topic_id) in answers.items():
            self.topic_ids[partition.topic] = topic_id
            start, end = self.left.pop(partition)
            runs, position = readable_runs(
                memoryview(fetched.records or b""),
                fetched.aborted_transactions,
                start,
                end,
                check_crcs=self._check_crcs,
            )
            found += [Run(partition, start, run) for run in runs]
            if position < end:
                self.left[partition] = position, end
        return found

    async def _fetch(self) -> Mapping[TopicPartition, LeaderAnswer]:
        """Fetch what is left from each leader, until at least one batch arrives."""
        clock = self._cluster.runtime.clock
        deadline = clock.monotonic() + self._timeout_ms / 1000
        positions = {partition: FetchPosition(start, self._max_bytes) for partition, (start, _) in self.left.items()}
        while True:
            answers = await fetch_from_leaders(
                self._cluster, positions, self._limits, topic_ids=self.topic_ids, timeout_ms=self._timeout_ms
            )
            if any(fetched.records for fetched, _ in answers.values()):
                return answers
            if clock.monotonic() >= deadline:
                partition, (fetched, _) = next(iter(answers.items()))
                raise UnavailableError(
                    f"partition {partition}: nothing came at offset {positions[partition].offset} within "
                    f"{self._timeout_ms} ms; the log ends at {fetched.high_watermark}"
                )


class PartitionReader:
    """A `RangeReader` of one partition, whose iterator yields buffers."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        isolation_level: str = "read_uncommitted",
        max_bytes: int = DEFAULT_FETCH_BYTES,
        max_wait_ms: int = 500,
        timeout_ms: int | None = None,
        check_crcs: bool = True,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.partition = partition
        self._end = end if start < end else start
        self._reader = RangeReader(
            cluster,
            {partition: (start, end)},
            isolation_level=isolation_level,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            timeout_ms=timeout_ms,
            check_crcs=check_crcs,
        )
        self._reader.topic_ids[partition.topic] = topic_id

    @property
    def position(self) -> int:
        """The offset of the next fetch, after all fetched buffers, even those not yielded yet."""
        return self._reader.left.get(self.partition, (self._end, self._end))[0]

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id that the topic must have."""
        return self._reader.topic_ids[self.partition.topic]

    async def __aiter__(self) -> AsyncGenerator[memoryview, None]:
        """Yield the buffers; a second iteration continues from `position`."""
        async with aclosing(aiter(self._reader)) as rounds:
            async for runs in rounds:
                for run in runs:
                    yield run.buffer
