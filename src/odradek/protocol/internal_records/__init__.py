"""The records of `__consumer_offsets` and `__transaction_state`, with Kafka 4.2's names, types and versions.

Their classes declare them; `record_types` makes the codecs.
"""
