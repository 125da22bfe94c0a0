"""The verification of a segment's files: every batch, and every index entry against its batch.

Each check keeps the first error in its file and continues, because later batches may be valid.
"""

from collections.abc import Sequence

from msgspec import Struct

from odradek.broker.log.checkpoints.leader_epoch_cache import NO_EPOCH
from odradek.broker.log.continuity import WRONG_CHECKSUM, described, discontinuity
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.inspection.file_contents import Pair, read_pairs
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments import offset_index, time_index
from odradek.broker.log.segments.batch_scan import FoundBatch
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.time_index import NO_TIMESTAMP
from odradek.protocol.batches.record_batch import CODEC_MASK, BatchHeader, Codec, CorruptBatchError
from odradek.protocol.batches.records import decode_records


class Chain(Struct, kw_only=True):
    """The state after all batches checked so far, across segments; `producers` is None if unknown."""

    next_offset: int
    leader_epoch: int = NO_EPOCH
    producers: ProducerState | None = None


class FileCheck:
    """The check of one file and its result.

    `damage` is the first error, `others` the number of further ones, and `warning` something that may be an error.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.damage: DamagedFileError | None = None
        self.others = 0
        self.warning: tuple[int, str] | None = None

    def warn(self, byte: int, reason: str) -> None:
        """Record a deviation at `byte`, which is an error unless Kafka wrote the file."""
        if self.warning is None:
            self.warning = byte, reason

    def fail(self, byte: int, reason: str) -> None:
        """Record an error at `byte`; the first one in the file is kept."""
        self.found(DamagedFileError(self.path, byte, reason))

    def found(self, error: DamagedFileError) -> None:
        """Record a raised error; the first one in the file is kept."""
        if self.damage is None:
            self.damage = error
        else:
            self.others += 1
            if error.byte < self.damage.byte:
                self.damage = error


class LogCheck(FileCheck):
    """Checks the batches of a `.log` file."""

    def __init__(self, path: str, base_offset: int, chain: Chain, *, cleaned_offset: int, records: bool) -> None:
        super().__init__(path)
        self._cleaned_offset = cleaned_offset
        self._base_offset = base_offset
        self._chain = chain
        self._records = records

    def batch(self, found: FoundBatch) -> bool:
        position, header, data = found
        chain, last_offset = self._chain, self._base_offset + MAX_RELATIVE_OFFSET
        reason = discontinuity(
            header,
            data,
            next_offset=max(self._base_offset, chain.next_offset),
            last_offset=last_offset,
            leader_epoch=chain.leader_epoch,
        )
        if reason is None:
            reason = self._fault(header) or (self._fault_of_records(header, data) if self._records else None)
        if reason is not None:
            self.fail(position, described(header, reason))
        is_in_segment = self._base_offset <= header.base_offset <= header.last_offset <= last_offset
        if not is_in_segment or reason == WRONG_CHECKSUM:
            return False
        if header.base_offset > max(chain.next_offset, self._cleaned_offset):
            self.warn(
                position,
                f"has no batch with offsets {chain.next_offset} to {header.base_offset - 1}: "
                "compaction took them, here or where they were copied from, or they are lost",
            )
        chain.next_offset = max(chain.next_offset, header.next_offset)
        chain.leader_epoch = max(chain.leader_epoch, header.partition_leader_epoch)
        return reason is None

    @staticmethod
    def _fault(header: BatchHeader) -> str | None:
        if not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"a count of {header.record_count} records up to offset {header.last_offset}"
        if header.attributes & CODEC_MASK >= len(Codec):
            return f"the unknown codec {header.attributes & CODEC_MASK}"
        return None

    @staticmethod
    def _fault_of_records(header: BatchHeader, data: memoryview) -> str | None:
        try:
            offsets = [record.offset for record in decode_records(data)]
        except CorruptBatchError as error:
            return f"records that cannot be read: {error}"
        due = header.base_offset
        for offset in offsets:
            if not due <= offset <= header.last_offset:
                return f"a record at offset {offset}, and offsets up to {header.last_offset}"
            due = offset + 1
        return None


class OffsetIndexCheck(FileCheck):
    """Checks an `.index`: each entry has the position and the last offset of a batch.

    Kafka's followers and cleaner write one entry for several batches, with the first batch's position and the last
    offset of the last batch.
    """

    def __init__(self, path: str, data: bytes, base_offset: int) -> None:
        super().__init__(path)
        self._base_offset = base_offset
        self._entries: list[Pair] = []
        self._next = 0
        self._awaited: Pair | None = None
        before = Pair(-1, -1, -1)
        try:
            for entry in read_pairs(data, path, offset_index.ENTRY):
                if entry.first <= before.first or entry.second <= before.second:
                    self.fail(entry.byte, f"has an entry that does not rise: {self._indexed(entry)}")
                    break
                self._entries.append(entry)
                before = entry
        except DamagedFileError as error:
            self.found(error)

    def batch(self, position: int, header: BatchHeader, *, is_trusted: bool) -> None:
        last = header.last_offset - self._base_offset
        if self._awaited is not None and is_trusted and last >= self._awaited.first:
            if last > self._awaited.first:
                self._disagree(self._awaited)
            else:
                indexed = self._indexed(self._awaited)
                self.warn(self._awaited.byte, f"has an entry that stands for several batches: {indexed}")
            self._awaited = None
        while self._next < len(self._entries) and self._entries[self._next].second <= position:
            entry = self._entries[self._next]
            self._next += 1
            if entry.second < position:
                self.fail(entry.byte, f"has an entry that points into a batch: {self._indexed(entry)}")
            elif is_trusted and entry.first < last:
                self._disagree(entry)
            elif is_trusted and entry.first > last:
                if self._awaited is not None:
                    self._disagree(self._awaited)
                self._awaited = entry

    def end(self, size: int, *, may_be_ahead: bool) -> None:
        """Check the end of the segment at `size` bytes. With `may_be_ahead` (a live log) entries may be beyond."""
        if self._awaited is not None and not may_be_ahead:
            self._disagree(self._awaited)
        for entry in self._entries[self._next :]:
            if entry.second < size:
                self.fail(entry.byte, f"has an entry that points into a batch: {self._indexed(entry)}")
            elif not may_be_ahead:
                self.fail(
                    entry.byte, f"has an entry that points beyond the segment's {size} bytes: {self._indexed(entry)}"
                )

    def _disagree(self, entry: Pair) -> None:
        self.fail(entry.byte, f"has an entry whose offset is not that of its batch: {self._indexed(entry)}")

    def _indexed(self, entry: Pair) -> str:
        return f"offset {self._base_offset + entry.first}, position {entry.second}"


class TimeIndexCheck(FileCheck):
    """Checks a `.timeindex`: each entry has the largest timestamp so far and an offset of the batch that has it."""

    def __init__(self, path: str, data: bytes, base_offset: int) -> None:
        super().__init__(path)
        self._base_offset = base_offset
        self._entries: list[Pair] = []
        self._next = 0
        self._largest = NO_TIMESTAMP
        self._is_lost = False
        self._bytes = len(data)
        before = Pair(-1, -1, -1)
        try:
            for entry in read_pairs(data, path, time_index.ENTRY):
                if entry.first <= before.first or entry.second < before.second:
                    self.fail(entry.byte, f"has an entry that does not rise: {self._indexed(entry)}")
                    break
                self._entries.append(entry)
                before = entry
        except DamagedFileError as error:
            self.found(error)

    def batch(self, header: BatchHeader, *, is_trusted: bool) -> None:
        self._is_lost = self._is_lost or not is_trusted
        if self._is_lost:
            return
        self._largest = max(self._largest, header.max_timestamp)
        first, last = header.base_offset - self._base_offset, header.last_offset - self._base_offset
        while self._next < len(self._entries) and self._entries[self._next].second <= last:
            entry = self._entries[self._next]
            self._next += 1
            if entry.second < first:
                self.fail(entry.byte, f"has an entry whose offset is in no batch: {self._indexed(entry)}")
            elif not entry.first == header.max_timestamp == self._largest:
                self.fail(
                    entry.byte,
                    f"has an entry that is not the largest timestamp so far, {self._largest}, where it came up: "
                    f"{self._indexed(entry)}",
                )

    def end(self, *, may_be_ahead: bool, is_finished: bool) -> None:
        """Check the end of the segment. With `is_finished` the largest timestamp must be indexed.

        With `may_be_ahead` (a live log) entries may be beyond the end.
        """
        if self._is_lost:
            return
        for entry in self._entries[self._next :]:
            if not may_be_ahead:
                self.fail(entry.byte, f"has an entry that points beyond the segment: {self._indexed(entry)}")
        last = self._entries[-1].first if self._entries else NO_TIMESTAMP
        if is_finished and last < self._largest and self.damage is None:
            self.fail(self._bytes, f"ends without an entry for the segment's largest timestamp, {self._largest}")

    def _indexed(self, entry: Pair) -> str:
        return f"timestamp {entry.first}, offset {self._base_offset + entry.second}"


class EpochCheck(FileCheck):
    """Checks a `leader-epoch-checkpoint` against the epoch of every batch."""

    def __init__(
        self,
        path: str,
        size: int,
        entries: Sequence[tuple[int, int, int]],
        *,
        log_start_offset: int,
        is_complete: bool,
    ) -> None:
        """`entries` are `(byte position, epoch, start offset)`; with `is_complete` the latest epoch is required.

        Epochs of offsets below `log_start_offset` may be missing.
        """
        super().__init__(path)
        self._log_start_offset = log_start_offset
        self._size = size
        self._entries = entries
        self._is_complete = is_complete
        self._number = -1

    def batch(self, header: BatchHeader) -> None:
        entries, epoch, offset = self._entries, header.partition_leader_epoch, header.base_offset
        while self._number + 1 < len(entries) and entries[self._number + 1][2] <= offset:
            self._number += 1
        following = entries[self._number + 1] if 0 <= self._number < len(entries) - 1 else None
        if following is not None and following[2] <= header.last_offset:
            self.fail(following[0], f"says that leader epoch {following[1]} begins inside a batch, at {following[2]}")
        is_deleted = header.last_offset < self._log_start_offset
        if epoch < 0 or is_deleted or (self._number < 0 and entries) or self.damage is not None:
            return  # no epochs yet, or the log begins later
        byte, known, _ = entries[self._number] if entries else (0, NO_EPOCH, 0)
        if epoch == known:
            return
        if epoch > known and self._number == len(entries) - 1:
            if self._is_complete:
                self.fail(self._size, f"lacks leader epoch {epoch}, which wrote offset {offset}")
        else:
            self.fail(byte, f"says that offset {offset} is of leader epoch {known}, and its batch is of {epoch}")
