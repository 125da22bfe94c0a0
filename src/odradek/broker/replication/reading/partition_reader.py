"""Reads records of a partition that this broker leads or follows, for a consumer or a follower.

A consumer gets records up to the high watermark or the last stable offset, a follower all that are written. A
follower's fetch offset shows which records it has, which commits them. A reader that sends the epoch of its last record
gets the diverging epoch instead of records if its log diverges from the leader's (KIP-595).
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from odradek.broker.log.errors import DamagedSegmentError
from odradek.broker.log.log import Log
from odradek.broker.replication.follower import Follower
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.reading.delayed_fetch import FetchIsolation
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.model.probes import perturb
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.messages.fetch import FetchedPartition

CONSUMER: Final = -1
_LOG_END: Final = FetchIsolation.LOG_END
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


class FetchParams(NamedTuple):
    """The reader of a fetch: a replica, or a `CONSUMER`.

    `counts_as_follower`: whether its fetches can advance the high watermark. `broker_epoch`: the replica's, or -1.
    """

    replica_id: int = CONSUMER
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    counts_as_follower: bool = False
    broker_epoch: int = -1

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


class FetchPartition(Protocol):
    """A reader's request for one partition; -1 stands for an epoch that the request does not have."""

    @property
    def fetch_offset(self) -> int:
        """The offset of the first record to read."""

    @property
    def max_bytes(self) -> int:
        """The reader's limit for this partition."""

    @property
    def current_leader_epoch(self) -> int:
        """The leader epoch by the reader's metadata (KIP-320)."""

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record that the reader has."""

    @property
    def follower_start_offset(self) -> int:
        """The first offset of a follower's log."""


class PartitionReader:
    """Reads partitions for one fetch. `lend(size)` returns a buffer for `Log.read`."""

    def __init__(self, params: FetchParams, lend: Callable[[int], memoryview] | None = None) -> None:
        self._params = params
        self._lend = lend

    def read(
        self, partition: Partition | Follower, position: FetchPartition, most_bytes: int, *, at_least_one: bool
    ) -> tuple[FetchedPartition, bool]:
        """Return `(the result, whether there are records for the reader, even if the limit excludes them)`.

        Reads at most `most_bytes`, but with `at_least_one` one whole batch, however large (KIP-74). Records a
        follower's position. Raises `KafkaError` for a wrong epoch, replica or offset, or a damaged segment.
        """
        params = self._params
        partition.check_leader_epoch(position.current_leader_epoch)
        if params.replica_id >= 0:
            assert isinstance(partition, Partition)
            partition.check_follower(params.replica_id, position.current_leader_epoch)
        log, offset = partition.log, position.fetch_offset
        diverging = None
        if position.last_fetched_epoch >= 0:
            diverging = partition.divergence(offset, position.last_fetched_epoch)
        if diverging is not None and offset >= log.log_start_offset:
            place = diverging.epoch, diverging.end_offset
            return _answer(partition, b"")._replace(diverging_epoch=place), False
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if params.counts_as_follower:
            assert isinstance(partition, Partition)
            partition.fetched_by(
                params.replica_id,
                offset,
                log_start_offset=position.follower_start_offset,
                broker_epoch=params.broker_epoch,
            )
        end = partition.high_watermark
        isolation = params.isolation
        if isolation is _LOG_END:
            end = log.written_offset
        elif isolation is _TXN_COMMITTED:
            end = partition.last_stable_offset
        records: Buffer = b""
        if offset < end and (most_bytes > 0 or at_least_one):
            limit = 1 if at_least_one and perturb("fetch: a response has one batch") else position.max_bytes
            try:
                records = log.read(
                    offset,
                    max(min(limit, most_bytes), 0),
                    up_to_offset=end,
                    at_least_one=at_least_one,
                    lend=self._lend,
                )
            except DamagedSegmentError as error:
                raise partition.read_error(error) from error
        aborted = _aborted(log, offset, records) if isolation is _TXN_COMMITTED else None
        return _answer(partition, records, aborted), offset < end


def preferred(partition: Partition, replica: int) -> FetchedPartition:
    """Return the result that redirects a consumer to `replica`: offsets without records (KIP-392)."""
    return _answer(partition, b"")._replace(preferred_read_replica=replica)


def _answer(
    partition: Partition | Follower, records: Buffer, aborted: Sequence[tuple[int, int]] | None = None
) -> FetchedPartition:
    return FetchedPartition(
        partition.topic_partition.partition,
        0,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
        aborted,
        -1,
        records,
    )


def _aborted(log: Log, offset: int, records: Buffer) -> Sequence[tuple[int, int]]:
    """Return `(producer id, first offset)` of the aborted transactions in `records`, which were read from `offset`.

    The client drops a producer's records from the first offset to the producer's next marker.
    """
    if not records or not log.has_aborted_transactions(offset):
        return ()
    end = offset
    for _, header in iterate_batches(records):
        end = header.next_offset
    return [(each.producer_id, each.first_offset) for each in log.aborted_transactions(offset, end)]
