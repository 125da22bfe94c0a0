"""The idempotent producers of a log.

`producer_state` has their sequence numbers and transactions, and `producer_snapshot` the files with this state.
`refused_batches` has the batches that were refused with a retriable error, so that later ones get the same error.
"""
