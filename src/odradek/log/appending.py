"""The half of a log that takes batches: from clients, from coordinators, and, as a follower's, from another leader.

A leader gives a batch its offset and its epoch; what a follower gets has both, and keeps them. What is taken waits to
be written (see `log`).
"""

import logging
from abc import abstractmethod
from typing import Final, NoReturn

from odradek.log.errors import LogStorageError, is_out_of_descriptors, is_passing, told
from odradek.log.log_config import LOG_APPEND_TIME
from odradek.log.producers.producer_snapshot import encode_snapshot
from odradek.log.producers.producer_state import AppendedBatch
from odradek.log.segments.segment import Segment
from odradek.log.validation import AppendInfo, fetched_batches
from odradek.log.view import LogView
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.control_records import EndTransactionMarker, decode_marker, encode_marker
from odradek.protocol.record_batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    assign_offset,
    read_header,
    set_log_append_time,
    verify_crc,
)
from odradek.runtime import Buffer

_logger = logging.getLogger("odradek.log")
_NO_TIMESTAMP: Final = -1


class AppendableLog(LogView):
    """See the module. Everything may raise `LogStorageError`."""

    def append(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        transactional: bool = False,
    ) -> AppendInfo:
        """Take one batch, as its leader: check it, give it the next offset, and keep it to be written.

        `batches` is changed in place (copied if it is read-only) and must stay as it is until it is written, unless
        another was made of it (`compression.type`). The answer to a client, also for a duplicate, waits until
        `written_offset` is beyond `last_offset`. A client's batch may only be of a transaction if the caller has made
        sure of that (`transactional`). Raises `KafkaError`; nothing has changed then (see `validation` and
        `producer_state` for the rules).
        """
        try:
            self._check_may_append(now_ms)
        except LogStorageError as error:
            if error.is_passing and from_client:
                self.refused.note_batch(batches, error, now_ms)
            raise
        view = batches if type(batches) is memoryview else memoryview(batches)
        if view.readonly:
            view = memoryview(bytearray(view))
        config = self.config
        try:
            header, view = self._rules.admit(view, now_ms, from_client=from_client, transactional=transactional)
        except KafkaError:
            # A batch that was taken may break a rule when it is sent again: rules change, and timestamps get too old.
            duplicate = self.find_duplicate(view) if from_client else None
            if duplicate is None:
                raise
            return duplicate
        if header.producer_id >= 0:
            known = self._check_producer(header, now_ms, has_sequence=from_client)
            if known is not None:
                return self._duplicate(known)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        timestamp, append_time = header.max_timestamp, _NO_TIMESTAMP
        if config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, header, now_ms)
            timestamp = append_time = now_ms
        if leader_epoch < self.epochs.latest:
            raise self._too_old(leader_epoch)
        assign_offset(view, 0, first, leader_epoch)
        try:
            self._place(view, first, last, timestamp, leader_epoch, now_ms)
            if header.producer_id >= 0:
                self.producers.update(header, first, timestamp, now_ms=now_ms)
        except Exception as error:
            lost = self._lose_append(error, first)
            self.refused.note_batch(view, lost, now_ms)
            raise lost from error
        return AppendInfo(first, last, append_time, self.log_start_offset, False)

    def _check_producer(self, header: BatchHeader, now_ms: int, *, has_sequence: bool) -> AppendedBatch | None:
        """Return what `ProducerState.check` does; a batch behind one that was refused gets that one's error."""
        try:
            known = self.producers.check(header, has_sequence=has_sequence)
        except KafkaError as error:
            if error.code is ErrorCode.out_of_order_sequence_number:
                self.refused.check(header, self.producers.entries.get(header.producer_id), now_ms)
            raise
        if known is None and header.producer_id not in self.producers.entries:
            self.refused.check(header, None, now_ms)
        return known

    def find_duplicate(self, batch: Buffer) -> AppendInfo | None:
        """Return where an idempotent producer's `batch` went the first time; None if it is new, or damaged.

        What is pending counts. For a batch that may not be appended: `append` looks for duplicates by itself.
        """
        if self._failure is not None or self._is_cut_due or len(batch) < HEADER_SIZE:
            return None
        header = read_header(batch)
        if header.magic != MAGIC or header.producer_id < 0 or header.size != len(batch):
            return None
        known = self.producers.find(header)
        return self._duplicate(known) if known is not None and verify_crc(batch, 0, header) else None

    def _duplicate(self, known: AppendedBatch) -> AppendInfo:
        time_ms = known.timestamp if self.config.message_timestamp_type == LOG_APPEND_TIME else _NO_TIMESTAMP
        return AppendInfo(known.first_offset, known.last_offset, time_ms, self.log_start_offset, True)

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
        """End a producer's transaction here, as the coordinator decided (KIP-98); none need be open.

        Of a marker that is here already (`duplicate`), nobody knows where: the answer waits for all that is appended.
        Raises `KafkaError`; nothing has changed then (see `producer_state` for the rules).
        """
        self._check_may_append(now_ms)
        producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        offset = self.log_end_offset
        if not self.producers.check_marker(marker, transaction_version=transaction_version, **producer):
            return AppendInfo(offset - 1, offset - 1, _NO_TIMESTAMP, self.log_start_offset, True)
        view = memoryview(encode_marker(marker, now_ms=now_ms, **producer))
        append_time = _NO_TIMESTAMP
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, read_header(view), now_ms)
            append_time = now_ms
        if leader_epoch < self.epochs.latest:
            raise self._too_old(leader_epoch)
        assign_offset(view, 0, offset, leader_epoch)
        try:
            self._place(view, offset, offset, now_ms, leader_epoch, now_ms)
            aborted = self.producers.end_transaction(marker, offset=offset, timestamp=now_ms, **producer)
            if aborted is not None and not self.config.discard_writes:
                self._segments.active.add_aborted(aborted)
        except Exception as error:
            raise self._lose_append(error, offset) from error
        return AppendInfo(offset, offset, append_time, self.log_start_offset, False)

    def append_fetched(self, records: Buffer, *, now_ms: int) -> int:
        """Take the batches that the partition's leader has from `log_end_offset` on, as they are; how many bytes.

        A last one that is cut is left out, and so are the batches from the first on that is damaged or does not go on
        from here: who fetches asks for that one again, as the first, and its leader checks the first. `records` must
        stay as it is until it is written. Raises `KafkaError` CORRUPT_MESSAGE if it is the first; nothing has changed
        then.
        """
        self._check_may_append(now_ms)
        view = memoryview(records)
        batches = fetched_batches(view, log_end_offset=self.log_end_offset, leader_epoch=self.epochs.latest)
        first = self.log_end_offset
        try:
            for position, header in batches:
                self._place_fetched(view[position : position + header.size], header, now_ms)
        except Exception as error:
            raise self._lose_append(error, first) from error
        return batches[-1][0] + batches[-1][1].size if batches else 0

    def _place_fetched(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        first, last = header.base_offset, header.last_offset
        self._place(batch, first, last, header.max_timestamp, header.partition_leader_epoch, now_ms)
        if header.producer_id >= 0:
            marker = decode_marker(batch) if header.is_control else None
            aborted = self.producers.replay(header, marker, now_ms=now_ms)
            if aborted is not None and not self.config.discard_writes:
                self._segments.active.add_aborted(aborted)

    def begin_epoch(self, leader_epoch: int) -> None:
        """A leader of this epoch will append: it begins here, also if nothing ever comes of it (KIP-101)."""
        self.epochs.begin(leader_epoch, self.log_end_offset)

    def _too_old(self, leader_epoch: int) -> LogStorageError:
        """What a leader is told that is older than what is here: recovery would cut the log before its batches."""
        return LogStorageError(
            f"{self.directory} has records of leader epoch {self.epochs.latest}, and the leader's is {leader_epoch}: "
            "another cluster wrote to it; `odradek metadata adopt` takes its epochs over"
        )

    def _place(self, view: memoryview, first: int, last: int, timestamp: int, leader_epoch: int, now_ms: int) -> None:
        """Give a batch that is to be appended its place among what waits to be written."""
        size = len(view)
        if not self.config.discard_writes:
            segment = self._segments.active
            if segment.must_roll(size, last, timestamp, now_ms):
                segment = self._roll(now_ms)
            segment.add(first, last, size, timestamp, now_ms)
        pending = self._pending
        pending.buffers.append(view)
        pending.size += size
        self.log_end_offset = last + 1
        self._last_append_ms = now_ms
        if leader_epoch > self.epochs.recorded:
            self.epochs.assign(leader_epoch, first)

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log's end; its file is created when something is written to it.

        It begins where the last one ends, and never later: recovery counts on it.
        """
        old = self._segments.active
        old.finish()
        segment = Segment(self._pool, self.directory, self.log_end_offset, self.config, now_ms=now_ms)
        self._segments.add(segment)
        self._pending.roll(old, segment, encode_snapshot(self.producers))
        return segment

    def _check_may_append(self, now_ms: int) -> None:
        """Raise `LogStorageError` if the log has stopped, or if what is lost can't be cut yet."""
        if self._failure is not None:
            raise LogStorageError(self._failure)
        if self._lost is not None:
            raise self._lost
        if self._is_cut_due:
            self._cut_what_is_lost(now_ms)

    @property
    def _is_whole(self) -> bool:
        """Whether the log goes on, and its books have nothing that is lost."""
        return self._failure is None and not self._is_cut_due

    def _lose_unwritten(self, error: Exception, *, may_go_on: bool = True) -> LogStorageError:
        """Give up what is appended and not written, and return what to tell those who wait for it.

        The log goes on, once the books are cut back to what is written, if nothing but room, memory, a thread or a
        descriptor was missing and `may_go_on`. Raises `LogStorageError` if it stops.
        """
        end = self._end_of_writes
        message = (
            f"{self.log_end_offset - end} offsets from {end} on could not be written to {self.directory}: {told(error)}"
        )
        self._drop_pending()
        if is_out_of_descriptors(error):
            self._pool.give_back()
        if not (may_go_on and is_passing(error)):
            self._stop(message, error)
        self._is_cut_due = True
        return LogStorageError(message, is_passing=True)

    def _lose_append(self, error: Exception, first: int) -> LogStorageError:
        """Give up an append that failed halfway, at the offset `first`, and all before it that is not written.

        Return what to tell, also if the log stops.
        """
        has_others = first > self._end_of_writes
        try:
            lost = self._lose_unwritten(error)
        except LogStorageError as stopped:
            lost = stopped
        if has_others:
            self._lost = lost
        return lost

    def _cut_what_is_lost(self, now_ms: int) -> None:
        """Cut the books back to what is written. Raises `LogStorageError`; the next append may try again."""
        if self._write is not None:
            raise LogStorageError(f"{self.directory} takes nothing until a write has ended", is_passing=True)
        what = f"what was to be written to {self.directory} from offset {self.written_offset} on"
        try:
            batches = self.producers.batches_since(self.written_offset)
            self._truncate(self.written_offset)
            refusal = LogStorageError(f"{what} is lost", is_passing=True)
            for producer_id, epoch, sequence in batches:
                self.refused.note(producer_id, epoch, sequence, refusal, now_ms)
        except Exception as error:
            message = f"{what} is lost, and could not be cut: {told(error)}"
            if not is_passing(error):
                self._stop(message, error)
            raise LogStorageError(message, is_passing=True) from error

    @property
    def _end_of_writes(self) -> int:
        """Where the log ends when the write that is under way, if there is one, has ended."""
        return self.written_offset if self._write is None else self._write.end_offset

    def _drop_pending(self) -> None:
        self._pending.clear()
        self.log_end_offset = self._end_of_writes

    @abstractmethod
    def _truncate(self, offset: int) -> None:
        """Cut everything from `offset` on. After an error it may be called again."""

    def _stop(self, message: str, error: Exception) -> NoReturn:
        is_first, self._failure = self._failure is None, message
        _logger.error("%s; the log takes no more until it is recovered", message)
        if is_first and self.when_failed is not None:
            self.when_failed(error)
        raise LogStorageError(message)

    def halt(self, message: str) -> None:
        """Stop, as the disk under it has failed. What is not written is lost, and whoever waits for it is not told."""
        if self._failure is None:
            self._failure = message
            self._drop_pending()
