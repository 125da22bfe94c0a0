"""The records of `__consumer_offsets` and `__transaction_state`, with Kafka 4.3's names, types and versions.

They are declared as dataclasses, from which `record_types` makes the codecs.
"""
