"""Kafka's wire protocol, as bytes: no sockets, no state.

| room | what it encodes and decodes |
|---|---|
| `messages` | requests and responses of every API, and their headers |
| `batches` | record batches: the header, the records, their compression and checksums |
| `internal_records` | keys and values of `__consumer_offsets` and `__transaction_state` |

`consumer_protocol` has the bytes that members of a classic group send each other; `api` the API keys; `primitives`,
`varint` and `field_types` what all rooms share. Every length in received bytes is checked before memory is allocated
for it.
"""
