"""The transaction coordinator as a pure state machine (KIP-98, KIP-360, KIP-890, KIP-939).

`TransactionMachine` is the state machine of one `__transaction_state` partition; `odradek.broker.coordinators` runs it.
`states` has the states of a transaction and its transitions, `transaction` the metadata of one transactional id and how
each request changes it, `messages` the requests, replies and events, `records` the codec.
"""

from odradek.broker.transactions.machine.records import TransactionRecord, TransactionRecordCodec
from odradek.broker.transactions.machine.states import TRANSITIONS, TransactionState
from odradek.broker.transactions.machine.transaction import TransactionMetadata
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine, TransactionSettings

__all__ = [
    "TRANSITIONS",
    "TransactionMachine",
    "TransactionMetadata",
    "TransactionRecord",
    "TransactionRecordCodec",
    "TransactionSettings",
    "TransactionState",
]
