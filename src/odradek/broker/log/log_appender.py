"""Appending to a log: a leader assigns offsets and its leader epoch, a follower keeps those in the batches."""

from typing import Final

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.local_log import LocalLog
from odradek.broker.log.log_config import LOG_APPEND_TIME, LogConfig
from odradek.broker.log.log_writer import LogWriter
from odradek.broker.log.producers.producer_state import AppendedBatch
from odradek.broker.log.validation import AppendInfo, MessageRules, fetched_batches
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.control_records import EndTransactionMarker, decode_marker, encode_marker
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    assign_offset,
    read_header,
    set_log_append_time,
    verify_crc,
)

_NO_TIMESTAMP: Final = -1
RETRIED: Final = frozenset({ErrorCode.not_enough_replicas, ErrorCode.concurrent_transactions})
"""Errors of verifications after which a producer sends the batch again."""


class LogAppender:
    """Appends batches to one log. Methods raise `LogStorageError` if the log has stopped or an append fails."""

    __slots__ = ("_local", "_refused", "_rules", "_writer")

    def __init__(self, local: LocalLog, writer: LogWriter) -> None:
        self._local = local
        self._writer = writer
        self._refused = writer.refused
        self._rules = MessageRules(local.config)

    def update_config(self, config: LogConfig) -> None:
        """Check later batches by the rules of `config`."""
        self._rules = MessageRules(config)

    def append_as_leader(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        transactional: bool = False,
        needs_verification: bool = False,
        is_checked: bool = False,
    ) -> AppendInfo:
        """Append one batch as the leader: check it, assign the next offset, add it to the pending batches.

        `batches` has exactly one batch, is changed in place (copied, if read-only), and must not change until it is
        written. Respond to a client, also for a duplicate, when `written_offset` is beyond `last_offset`.
        `from_client` is False for the broker's own batches; `transactional` allows a client's batch of a transaction.
        Raises `UncheckedBatchError` if a long check is needed, unless `is_checked`.
        With `needs_verification`, the first batch of a transaction is refused unless it was verified. After a
        `KafkaError` other than `LogStorageError` the log is unchanged. Rules: `validation` and `producer_state`.
        """
        writer, local = self._writer, self._local
        try:
            writer.check_may_append(now_ms)
        except LogStorageError as error:
            if error.is_passing and from_client:
                self._refused.note_batch(batches, error, now_ms)
            raise
        view = batches if type(batches) is memoryview else memoryview(batches)
        if view.readonly:
            view = memoryview(bytearray(view))
        try:
            header, view = self._rules.admit(
                view, now_ms, from_client=from_client, transactional=transactional, is_checked=is_checked
            )
        except KafkaError:
            # A retried batch may now break a rule that it met before: rules change, and timestamps get too old.
            duplicate = self.find_duplicate(view) if from_client else None
            if duplicate is None:
                raise
            return duplicate
        if header.producer_id >= 0:
            known = self._check_producer(header, now_ms, has_sequence=from_client)
            if known is not None:
                return self._duplicate(known)
            if needs_verification and header.is_transactional:
                self._check_verified(header, view, now_ms)
        first = local.log_end_offset
        last = first + header.last_offset_delta
        timestamp, append_time = header.max_timestamp, _NO_TIMESTAMP
        if local.config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, header, now_ms)
            timestamp = append_time = now_ms
        if leader_epoch < local.epochs.latest:
            raise self._epoch_too_old(leader_epoch)
        assign_offset(view, 0, first, leader_epoch)
        try:
            local.add_pending(view, first, last, timestamp, leader_epoch, now_ms)
            if header.producer_id >= 0:
                local.producers.update(header, first, timestamp, now_ms=now_ms)
        except Exception as error:
            lost = writer.lose_append(error, first)
            self._refused.note_batch(view, lost, now_ms)
            raise lost from error
        return AppendInfo(first, last, append_time, local.log_start_offset, False)

    def _check_producer(self, header: BatchHeader, now_ms: int, *, has_sequence: bool) -> AppendedBatch | None:
        """Return the append that the batch repeats, or None. Raises `KafkaError` (see `producer_state`)."""
        producers = self._local.producers
        try:
            known = producers.check(header, has_sequence=has_sequence)
        except KafkaError as error:
            if error.code is ErrorCode.out_of_order_sequence_number:
                self._refused.check(header, producers.entries.get(header.producer_id), now_ms)
            raise
        if known is None and header.producer_id not in producers.entries:
            self._refused.check(header, None, now_ms)
        return known

    def _check_verified(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        """Raise `KafkaError` unless the batch's transaction is known here or verified.

        A retriable refusal is recorded, so that the producer's later batches are not appended before this one.
        """
        try:
            self._local.producers.check_verified(header.producer_id, header.producer_epoch, header.base_sequence)
        except KafkaError as error:
            if error.code in RETRIED:
                self._refused.note_batch(batch, error, now_ms)
            raise

    def find_duplicate(self, batch: Buffer) -> AppendInfo | None:
        """Return the first append of an idempotent producer's `batch`, perhaps pending; None if unknown or damaged.

        Only for batches not passed to `append_as_leader`, which finds duplicates itself.
        """
        if not self._writer.is_whole or len(batch) < HEADER_SIZE:
            return None
        header = read_header(batch)
        if header.magic != MAGIC or header.producer_id < 0 or header.size != len(batch):
            return None
        known = self._local.producers.find(header)
        return self._duplicate(known) if known is not None and verify_crc(batch, 0, header) else None

    def _duplicate(self, known: AppendedBatch) -> AppendInfo:
        local = self._local
        time_ms = known.timestamp if local.config.message_timestamp_type == LOG_APPEND_TIME else _NO_TIMESTAMP
        return AppendInfo(known.first_offset, known.last_offset, time_ms, local.log_start_offset, True)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction (KIP-98), even if none is open.

        A `duplicate` has the log's last offset, since its own is unknown: respond when everything appended is written.
        After a `KafkaError` other than `LogStorageError` nothing has changed. Rules: `producer_state`.
        """
        local = self._local
        self._writer.check_may_append(now_ms)
        producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        offset = local.log_end_offset
        if not local.producers.check_marker(marker, transaction_version=transaction_version, **producer):
            return AppendInfo(offset - 1, offset - 1, _NO_TIMESTAMP, local.log_start_offset, True)
        view = memoryview(encode_marker(marker, now_ms=now_ms, **producer))
        append_time = _NO_TIMESTAMP
        if local.config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, read_header(view), now_ms)
            append_time = now_ms
        if leader_epoch < local.epochs.latest:
            raise self._epoch_too_old(leader_epoch)
        assign_offset(view, 0, offset, leader_epoch)
        try:
            local.add_pending(view, offset, offset, now_ms, leader_epoch, now_ms)
            aborted = local.producers.end_transaction(marker, offset=offset, timestamp=now_ms, **producer)
            if aborted is not None and not local.config.discard_writes:
                local.segments.active.add_aborted(aborted)
        except Exception as error:
            raise self._writer.lose_append(error, offset) from error
        return AppendInfo(offset, offset, append_time, local.log_start_offset, False)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> int:
        """Append batches fetched from the leader at `log_end_offset`, unchanged; return the number of bytes.

        A truncated last batch is left for the next fetch, as is everything from a damaged batch on. `records` must not
        change until they are written. Raises `KafkaError` CORRUPT_MESSAGE if the first batch is damaged or does not
        continue the log.
        """
        local = self._local
        self._writer.check_may_append(now_ms)
        view = memoryview(records)
        first = local.log_end_offset
        batches = fetched_batches(view, log_end_offset=first, leader_epoch=local.epochs.latest)
        try:
            for position, header in batches:
                self._append_fetched_batch(view[position : position + header.size], header, now_ms)
        except Exception as error:
            raise self._writer.lose_append(error, first) from error
        return batches[-1][0] + batches[-1][1].size if batches else 0

    def _append_fetched_batch(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        local, epoch = self._local, header.partition_leader_epoch
        local.add_pending(batch, header.base_offset, header.last_offset, header.max_timestamp, epoch, now_ms)
        if header.producer_id >= 0:
            marker = decode_marker(batch) if header.is_control else None
            aborted = local.producers.replay(header, marker, now_ms=now_ms)
            if aborted is not None and not local.config.discard_writes:
                local.segments.active.add_aborted(aborted)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record that `leader_epoch` begins at the log end offset, even without a record (KIP-101)."""
        self._local.epochs.begin(leader_epoch, self._local.log_end_offset)

    def _epoch_too_old(self, leader_epoch: int) -> LogStorageError:
        """Return the error for an append with an older leader epoch than the log's last one.

        Such a batch must not be written: recovery would truncate the log there.
        """
        return LogStorageError(
            f"{self._local.directory} has records of leader epoch {self._local.epochs.latest}, and the leader's epoch "
            f"is {leader_epoch}: another cluster wrote to it; `odradek metadata adopt` takes its epochs over"
        )
