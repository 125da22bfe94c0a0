"""Which batches compaction may take because of how their transactions ended, as it goes through a log from its start.

The records of an aborted transaction go at once. A marker may go when nothing that belongs to it was come by any more:
not an aborted batch that stays empty for its producer's sake, and not a committed record. Until then an aborted one
stays in the index of aborted transactions, too.
"""

from collections.abc import Iterable

from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.protocol.control_records import ControlType, EndTransactionMarker
from odradek.protocol.record_batch import BatchHeader


class CleanedTransactions:
    """See the module. `aborted` are all aborted transactions of what is gone through; every batch is shown in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers of which a batch of the open transaction, aborted or not, was come by."""
        self.to_index: list[AbortedTransaction] = []
        """Those whose markers were come by, and of which something is left; to be emptied by who takes them."""

    def _open(self, up_to_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= up_to_offset:
            transaction = self._coming.pop()
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch that has no marker belong to an aborted transaction."""
        self._open(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def may_go(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Whether nothing is left of what the control batch ends. `marker` is None for what is none, or is empty."""
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
