"""A `.txnindex` held against its segment: every transaction that a marker aborts is in it, and nothing else.

Which transaction a marker ends, the batches before it tell, from the log's beginning or the last snapshot on. Where
compaction was, or a batch is damaged, that cannot be said any more: an entry then has to belong to some marker.
"""

from odradek.log.errors import DamagedFileError
from odradek.log.inspection.segment_check import Chain, FileCheck
from odradek.log.producers.producer_snapshot import decode_snapshot
from odradek.log.producers.producer_state import ProducerState
from odradek.log.segments.transaction_index import AbortedTransaction, decode_transactions
from odradek.protocol.control_records import ControlType, decode_marker
from odradek.protocol.record_batch import BatchHeader


class TransactionCheck(FileCheck):
    """One segment's; `batch` is shown all of its batches, and moves `chain.producers` on."""

    def __init__(self, path: str, data: bytes, base_offset: int, chain: Chain, *, is_cleaned: bool) -> None:
        """`is_cleaned`: compaction may have been here."""
        super().__init__(path)
        self._size = len(data)
        self._chain = chain
        self._is_cleaned = is_cleaned
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}
        """`(byte, transaction)` by the marker's offset; those that a marker was found for go."""
        self._lacking: AbortedTransaction | None = None
        self._is_lost = False
        before = -1
        try:
            for byte, entry in decode_transactions(data, path):
                last = entry.last_offset
                if entry.first_offset > last:
                    self.fail(byte, f"has a transaction from offset {entry.first_offset} to {last}")
                elif last < base_offset:
                    self.fail(byte, f"has a transaction that ends at offset {last}, outside the segment")
                elif last <= before:
                    self.fail(byte, f"has a transaction that ends at offset {last}, after one that ends at {before}")
                else:
                    self._entries[last] = byte, entry
                before = max(before, last)
        except DamagedFileError as error:
            self.found(error)

    def batch(self, header: BatchHeader, data: memoryview, *, is_trusted: bool) -> None:
        """The next batch of the segment; after one that is not to be trusted, nobody knows what is open."""
        if not is_trusted:
            self._chain.producers = None
            self._is_lost = True
            return
        marker = decode_marker(data) if header.is_control else None
        producers = self._chain.producers
        aborted = None if producers is None else producers.replay(header, marker)
        if marker is None or marker.type is not ControlType.ABORT:
            return
        byte, entry = self._entries.pop(header.base_offset, (0, None))
        if producers is None or self._is_cleaned:
            if entry is not None and entry.producer_id != header.producer_id:
                self.fail(byte, f"has a transaction that is not of the producer of its marker: {entry}")
        elif entry is None:
            self._lacking = self._lacking or aborted
        elif entry != aborted:
            self.fail(byte, f"has {entry} where the log has {aborted or 'no transaction that is open'}")

    def end(self, *, is_complete: bool, may_be_ahead: bool) -> None:
        """No more batches come. `is_complete`: nothing should be missing; an entry may be ahead of a live log."""
        if is_complete and self._lacking is not None:
            self.fail(self._size, f"lacks {self._lacking}")
        for byte, entry in self._entries.values():
            if not may_be_ahead and not self._is_lost:
                self.fail(byte, f"has a transaction that ends at offset {entry.last_offset}, where no marker aborts it")
        if self._is_cleaned:
            self._chain.producers = None


def begin_segment(chain: Chain, base_offset: int, snapshot: bytes | None) -> None:
    """Learn which producers there are where a segment begins, if that is not known from the batches before it."""
    if chain.producers is not None:
        return
    if snapshot is not None:
        try:
            chain.producers = decode_snapshot(snapshot, "")
        except DamagedFileError:
            return  # the check of snapshots will say so
    elif not base_offset:
        chain.producers = ProducerState()
