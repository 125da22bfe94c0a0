"""`PartitionReader` reads an offset range of a partition as undecoded record batches, for Spark tasks and tools.

async with open_cluster(bootstrap_servers="localhost:9092") as cluster:
    async for batches in PartitionReader(cluster, TopicPartition("flights", 0), 1000, 2000):
        columns.decode_batches(batches, ...)
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from typing import Final

from odradek.clients.cluster import Cluster
from odradek.clients.fetch import FetchLimits, FetchPosition, readable_runs
from odradek.clients.leader_fetch import fetch_from_leaders
from odradek.clients.retry import DEFAULT_API_TIMEOUT_MS
from odradek.model import TopicPartition, UnavailableError
from odradek.protocol.messages.fetch import FetchedPartition

DEFAULT_FETCH_BYTES: Final = 4 << 20
"""4 MiB amortises the cost of a fetch, and two buffers fit in the memory of a Spark task."""


class PartitionReader:
    """An iterator over buffers of whole record batches with all records of `start` ≤ offset < `end`.

    Buffers are views of the responses; the next fetch is in flight while buffers are processed. The first batch may
    begin before `start` and the last may end after `end`; the caller drops those records. Control batches and, with
    `read_committed`, aborted transactions are skipped, so a range may yield no buffer.

    Raises `OffsetOutOfRangeError` if the log lacks a fetched offset, `TopicRecreatedError` if the topic is deleted and
    created again, and `UnavailableError` or the last retriable error if no records arrive for `timeout_ms`.
    """

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
        timeout_ms: int = DEFAULT_API_TIMEOUT_MS,
        check_crcs: bool = True,
        topic_id: uuid.UUID | None = None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        """The id that the topic must have; by default, its id at the first fetch."""
        self.position = start
        """The offset of the next fetch, after all fetched buffers, even those not yielded yet."""
        self.end = end
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._limits = FetchLimits(
            max_wait_ms=max_wait_ms, max_bytes=max(max_bytes, 1), isolation_level=isolation_level
        )
        self._timeout_ms = timeout_ms
        self._check_crcs = check_crcs

    async def __aiter__(self) -> AsyncGenerator[memoryview, None]:
        """Yield the buffers; a second iteration continues from `position`."""
        if self.position >= self.end:
            return
        next_fetch: asyncio.Task[FetchedPartition] | None = asyncio.ensure_future(self._fetch(self.position))
        try:
            while next_fetch is not None:
                fetched = await next_fetch
                next_fetch = None
                buffers = self._split_readable(fetched)
                if self.position < self.end:
                    next_fetch = asyncio.ensure_future(self._fetch(self.position))
                for buffer in buffers:
                    yield buffer
        finally:
            if next_fetch is not None:
                next_fetch.cancel()
                await asyncio.gather(next_fetch, return_exceptions=True)

    def _split_readable(self, fetched: FetchedPartition) -> list[memoryview]:
        """Move the position past the fetched batches, and return the readable ones as contiguous buffers."""
        runs, self.position = readable_runs(
            memoryview(fetched.records or b""),
            fetched.aborted_transactions,
            self.position,
            self.end,
            check_crcs=self._check_crcs,
        )
        return runs

    async def _fetch(self, offset: int) -> FetchedPartition:
        """Fetch from `offset` until at least one batch arrives."""
        clock = self._cluster.runtime.clock
        deadline = clock.monotonic() + self._timeout_ms / 1000
        positions = {self.partition: FetchPosition(offset, self._max_bytes)}
        while True:
            answers = await fetch_from_leaders(
                self._cluster,
                positions,
                self._limits,
                topic_ids={self.partition.topic: self.topic_id},
                timeout_ms=self._timeout_ms,
            )
            fetched, self.topic_id = answers[self.partition]
            if fetched.records:
                return fetched
            if clock.monotonic() >= deadline:
                raise UnavailableError(
                    f"partition {self.partition}: nothing came at offset {offset} within {self._timeout_ms} ms; "
                    f"the log ends at {fetched.high_watermark}"
                )
