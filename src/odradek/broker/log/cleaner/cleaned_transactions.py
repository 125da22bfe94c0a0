"""Decides which transactional batches and markers compaction can remove.

Records of an aborted transaction are removed at once. Its marker and index entry can be removed when a later compaction
finds none of its batches.
"""

from collections.abc import Iterable

from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.batches.record_batch import BatchHeader


class CleanedTransactions:
    """Receives the batches of a log in order; `aborted` are all its aborted transactions."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers with a batch of the open transaction, perhaps one removed now."""
        self.to_index: list[AbortedTransaction] = []
        """Aborted transactions whose markers stay, for the transaction index; the caller clears the list."""

    def _open(self, up_to_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= up_to_offset:
            transaction = self._coming.pop()
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the records of a data batch belong to an aborted transaction."""
        self._open(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def can_be_removed(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Return whether a control batch can be removed; without a `marker` only if it has no record."""
        self._open(header.last_offset)
        if marker is None:
            return not header.record_count
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.type is ControlType.ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is None or not has_batches:
                return True
            self.to_index.append(transaction)
            return False
        return not has_batches
