"""Recovery of one segment after a crash: truncate it before the first invalid batch and rebuild its indexes.

A batch is valid if its CRC is right, its magic is 2, its length fits, its offsets continue the segment, and its leader
epoch does not fall. A message of format 0 or 1 is an error instead, and the segment stays unchanged.
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.continuity import discontinuity
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments.batch_scan import old_message
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.segment import Segment, SegmentEnd
from odradek.broker.log.segments.time_index import NO_TIMESTAMP
from odradek.model.probes import probe
from odradek.protocol.batches.checksum import crc32c
from odradek.protocol.batches.control_records import decode_marker
from odradek.protocol.batches.record_batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)

_CHUNK_BYTES: Final = 1 << 20
_SHORTEST: Final = HEADER_SIZE - LENGTH_OVERHEAD
Watcher = Callable[[int], None]
"""Called with the number of bytes read since its last call; may end recovery by raising."""


def recover_segment(
    segment: Segment, epochs: LeaderEpochs, producers: ProducerState, *, now_ms: int, watch: Watcher
) -> int:
    """Check all batches, rebuild the indexes, truncate after the last valid batch; return the removed bytes.

    Updates `epochs` and `producers`. Raises `OSError`, and `DamagedFileError` for a message of format 0 or 1.
    """
    size = segment.written_size
    segment.reset()
    check = _Check(segment, size, epochs, producers)
    check.run(watch)
    magic = old_message(segment.log, check.position, size)
    if magic is not None:
        raise DamagedFileError(
            segment.log.path,
            check.position,
            f"has messages of format {magic}, from before Kafka 0.11, which are not supported: the log is unchanged",
        )
    segment.set_recovered(check.end(), now_ms)
    if segment.size < size:
        probe("log recovery: a segment ends with an invalid batch")
        segment.log.truncate(segment.size)
        segment.log.sync()
    segment.finish()
    segment.rewrite_indexes()
    return size - segment.size


class _Check:
    """One pass over a segment. `position` is the end of the valid batches."""

    __slots__ = (
        "_epoch",
        "_epochs",
        "_first_timestamp",
        "_max_offset",
        "_max_timestamp",
        "_next_offset",
        "_producers",
        "_segment",
        "_since_entry",
        "_size",
        "position",
    )

    def __init__(self, segment: Segment, size: int, epochs: LeaderEpochs, producers: ProducerState) -> None:
        self.position = 0
        self._segment = segment
        self._size = size
        self._epochs = epochs
        self._producers = producers
        self._next_offset = segment.base_offset
        self._epoch = -1
        self._first_timestamp: int | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._max_offset = segment.base_offset
        self._since_entry = 0

    def end(self) -> SegmentEnd:
        return SegmentEnd(
            size=self.position,
            next_offset=self._next_offset,
            first_timestamp=self._first_timestamp,
            max_timestamp=self._max_timestamp,
            max_timestamp_offset=self._max_offset,
            since_entry=self._since_entry,
        )

    def run(self, watch: Watcher) -> None:
        """Check batches up to the first invalid one, or the end of the file."""
        size, log = self._size, self._segment.log
        buffer = memoryview(bytearray(min(_CHUNK_BYTES, size)))
        while self.position + HEADER_SIZE <= size:
            length = log.read_into(self.position, buffer[: min(len(buffer), size - self.position)])
            watch(length)
            if length < HEADER_SIZE:
                return
            before = self.position
            if not self._check_chunk(buffer[:length]):
                return
            if self.position == before and not self._check_large(buffer, length, watch):
                return

    def _check_chunk(self, chunk: memoryview) -> bool:
        """Check the whole batches in `chunk`, read at `position`; return whether all are valid."""
        at, end = 0, len(chunk)
        start, size, highest = self.position, self._size, self._segment.base_offset + MAX_RELATIVE_OFFSET
        interval = self._segment.config.index_interval_bytes
        expected, epoch, since = self._next_offset, self._epoch, self._since_entry
        latest, latest_offset = self._max_timestamp, self._max_offset
        unpack, replay = HEADER.unpack_from, self._producers.replay
        is_valid = True
        while at + HEADER_SIZE <= end:
            fields = unpack(chunk, at)
            first, length, leader_epoch, magic, crc, attributes, delta, _, timestamp, producer_id, _, _, _ = fields
            last = first + delta
            stop = at + length + LENGTH_OVERHEAD
            header = tuple.__new__(BatchHeader, fields)
            if (
                magic != MAGIC
                or length < _SHORTEST
                or start + stop > size
                or discontinuity(header, None, next_offset=expected, last_offset=highest, leader_epoch=epoch)
            ):
                is_valid = False
                break
            if stop > end:
                break
            if crc32c(chunk[at + CRC_START : stop]) != crc:
                is_valid = False
                break
            if timestamp > latest:
                latest, latest_offset = timestamp, last
            if leader_epoch != epoch:
                self._epochs.assign(leader_epoch, first)
                epoch = leader_epoch
            if since > interval:
                self._segment.add_index_entries(last, start + at, latest, latest_offset)
                since = 0
            elif not start + at:
                self._first_timestamp = timestamp
            if producer_id >= 0:
                marker = decode_marker(chunk[at:stop]) if attributes & CONTROL else None
                aborted = replay(header, marker)
                if aborted is not None:
                    self._segment.add_aborted(aborted)
            since += stop - at
            expected = last + 1
            at = stop
        self.position, self._next_offset, self._epoch = start + at, expected, epoch
        self._max_timestamp, self._max_offset, self._since_entry = latest, latest_offset, since
        return is_valid

    def _check_large(self, buffer: memoryview, length: int, watch: Watcher) -> bool:
        """Return whether the batch at `position`, whose first `length` bytes fill `buffer`, is valid."""
        probe("log recovery: a batch is larger than a chunk")
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer))
        crc = crc32c(buffer[CRC_START:length])
        done = length
        while done < header.size:
            length = self._segment.log.read_into(self.position + done, buffer[: min(len(buffer), header.size - done)])
            if not length:
                return False
            watch(length)
            crc = crc32c(buffer[:length], crc)
            done += length
        if crc != header.crc:
            return False
        self._take_large(header)
        return True

    def _take_large(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_offset = header.max_timestamp, header.last_offset
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._epoch = header.partition_leader_epoch
        if self._since_entry > self._segment.config.index_interval_bytes:
            self._segment.add_index_entries(header.last_offset, self.position, self._max_timestamp, self._max_offset)
            self._since_entry = 0
        elif not self.position:
            self._first_timestamp = header.max_timestamp
        self._producers.replay(header, None)  # no marker has that size
        self._since_entry += header.size
        self._next_offset = header.next_offset
        self.position += header.size
