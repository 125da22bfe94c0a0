"""Encodes and decodes Kafka's wire protocol; without sockets or state.

| package | what it encodes and decodes |
|---|---|
| `messages` | requests and responses of every API, and their headers |
| `batches` | record batches: the header, the records, their compression and checksums |
| `internal_records` | keys and values of `__consumer_offsets` and `__transaction_state` |

`consumer_protocol` has subscriptions and assignments of classic groups, `api` the API keys; `primitives`, `varint` and
`field_types` are shared. Every length in received bytes is checked before memory is allocated for it.
"""
