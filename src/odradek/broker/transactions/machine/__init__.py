"""The transaction coordinator as a pure state machine (KIP-98, KIP-360, KIP-890, KIP-939).

`TransactionMachine` is the state machine of one `__transaction_state` partition; `broker.coordinators` runs it.
"""
