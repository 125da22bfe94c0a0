"""The verification of a `.txnindex`: it has every transaction that a marker aborts, and no other.

After compaction or damage, the transaction of a marker is unknown. Then an entry must only have a marker of its
producer.
"""

from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.inspection.segment_check import Chain, FileCheck
from odradek.broker.log.producers.producer_snapshot import decode_snapshot
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments.transaction_index import AbortedTransaction, decode_transactions
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import BatchHeader


class TransactionCheck(FileCheck):
    """Checks the `.txnindex` of one segment; `batch` updates `chain.producers`."""

    def __init__(self, path: str, data: bytes, base_offset: int, chain: Chain, *, is_cleaned: bool) -> None:
        """`is_cleaned`: the segment may have been compacted."""
        super().__init__(path)
        self._size = len(data)
        self._chain = chain
        self._is_cleaned = is_cleaned
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}
        """`(byte position, transaction)` by the marker's offset, until the marker is found."""
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
        """Check the next batch; after one without `is_trusted`, open transactions are unknown."""
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
        """Check the end of the segment. With `is_complete` no entry may be missing.

        With `may_be_ahead` (a live log) entries may precede their markers.
        """
        if is_complete and self._lacking is not None:
            self.fail(self._size, f"lacks {self._lacking}")
        for byte, entry in self._entries.values():
            if not may_be_ahead and not self._is_lost:
                self.fail(byte, f"has a transaction that ends at offset {entry.last_offset}, where no marker aborts it")
        if self._is_cleaned:
            self._chain.producers = None


def begin_segment(chain: Chain, base_offset: int, snapshot: bytes | None) -> None:
    """Set `chain.producers`, if unknown, from a valid snapshot; without a snapshot at offset 0, to an empty state."""
    if chain.producers is not None:
        return
    if snapshot is not None:
        try:
            chain.producers = decode_snapshot(snapshot, "")
        except DamagedFileError:
            return  # the check of snapshots reports it
    elif not base_offset:
        chain.producers = ProducerState()
