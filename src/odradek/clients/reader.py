"""Reads an offset range of a partition as raw record batches, as Spark tasks need it.

    async with open_cluster(bootstrap_servers="localhost:9092") as cluster:
        async for batches in PartitionReader(cluster, TopicPartition("flights", 0), 1000, 2000):
            columns.decode_batches(batches, ...)

The next fetch is in flight while a buffer is processed.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from odradek.clients.cluster import Cluster
from odradek.clients.fetch import FetchLimits, FetchPosition, fetch, out_of_range, readable_batches
from odradek.clients.retry import DEFAULT_API_TIMEOUT_MS, retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.fetch import FetchedPartition

DEFAULT_FETCH_BYTES: Final = 4 << 20
"""Large enough to amortise the cost of a fetch, small enough for two buffers per task."""


class PartitionReader:
    """An iterator over buffers of whole record batches that hold every record of `start` ≤ offset < `end`.

    Nothing is copied. The first batch may begin before `start` and the last may end after `end`; the decoder drops
    those records. With `read_committed`, aborted transactions are skipped and `end` is at most the last stable offset.
    Control batches are skipped, so a range may yield no buffer.

    Raises `KafkaError` OFFSET_OUT_OF_RANGE if the log does not hold the whole range; the last error or
    `UnavailableError` if no records arrive for `timeout_ms`.
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
    ) -> None:
        self.partition = partition
        self.position = start
        """The first offset after the buffers so far."""
        self.end = end
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._limits = FetchLimits(
            max_wait_ms=max_wait_ms, max_bytes=max(max_bytes, 1), isolation_level=isolation_level
        )
        self._timeout_ms = timeout_ms
        self._check_crcs = check_crcs

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        """Iterate once; a second iteration continues from `position`."""
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
        """Move the position past the fetched batches and return the contiguous readable ones."""
        records = memoryview(fetched.records or b"")
        runs: list[memoryview] = []
        run_start = run_end = 0
        for position, header, readable in readable_batches(
            records, fetched.aborted_transactions, check_crcs=self._check_crcs
        ):
            if header.base_offset >= self.end:
                self.position = self.end
                break
            self.position = max(self.position, header.next_offset)
            if not readable:
                continue
            if position != run_end and run_end > run_start:
                runs.append(records[run_start:run_end])
            if position != run_end or run_end == run_start:
                run_start = position
            run_end = position + header.size
        if run_end > run_start:
            runs.append(records[run_start:run_end])
        return runs

    async def _fetch(self, offset: int) -> FetchedPartition:
        """Fetch from `offset` until at least one batch arrives."""
        clock = self._cluster.runtime.clock
        deadline = clock.monotonic() + self._timeout_ms / 1000
        while True:
            fetched = await retrying(self._cluster, lambda: self._fetch_once(offset), timeout_ms=self._timeout_ms)
            if fetched.records:
                return fetched
            if clock.monotonic() >= deadline:
                raise UnavailableError(
                    f"partition {self.partition}: nothing came at offset {offset} within {self._timeout_ms} ms; "
                    f"the log ends at {fetched.high_watermark}"
                )

    async def _fetch_once(self, offset: int) -> FetchedPartition:
        topic = await self._cluster.topic(self.partition.topic, timeout_ms=self._timeout_ms)
        leader = self._cluster.metadata.leader(self.partition)
        if self.partition.partition not in topic.partitions:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"partition {self.partition} does not exist")
        if leader is None:
            raise KafkaError(ErrorCode.leader_not_available, f"partition {self.partition} has no leader now")
        connection = await self._cluster.connection(leader)
        positions = {self.partition: FetchPosition(offset, self._max_bytes)}
        answer = await fetch(self._cluster, connection, positions, self._limits)
        fetched = answer.get(self.partition)
        if fetched is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"partition {self.partition} is not in the answer")
        if fetched.error_code:
            raise _error(self.partition, offset, fetched)
        return fetched


def _error(partition: TopicPartition, offset: int, fetched: FetchedPartition) -> KafkaError:
    code = ErrorCode(fetched.error_code)
    if code == ErrorCode.offset_out_of_range:
        return out_of_range(partition, offset, fetched)
    return KafkaError(code, f"partition {partition}: {code.name.upper()}")
