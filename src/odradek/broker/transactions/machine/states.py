"""The states of a transaction, with Kafka's numbers and names, and the transitions between them.

```
            first partition            EndTxn                     all markers are written
   EMPTY ───────────────────▶ ONGOING ───────▶ PREPARE_COMMIT ──────────────────────────▶ COMPLETE_COMMIT
                                 │    ───────▶ PREPARE_ABORT  ──────────────────────────▶ COMPLETE_ABORT
         time-out, InitProducerId│                  ▲
                                 └▶ PREPARE_EPOCH_FENCE        COMPLETE_*: the first partition of the next transaction
```
`PREPARE_EPOCH_FENCE` and `DEAD` are never recorded: the first becomes `PREPARE_ABORT` in the same record, and the
second is a tombstone.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id, as in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The state's name in responses, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction has ended and its markers are not written yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction, so that the transactional id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_S = TransactionState
_FROM_IDLE: Final = frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD})
TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: _FROM_IDLE,
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: _FROM_IDLE,
    _S.COMPLETE_ABORT: _FROM_IDLE,
    _S.DEAD: frozenset(),
}
"""The states that may follow each state."""
RECORDED: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}
"""The states that a record may have."""
