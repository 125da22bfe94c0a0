"""Kafka's wire protocol: headers, messages, record batches, and the records of internal topics.

Schemas are kio's (generated from Kafka's own message definitions); `encoder` and `decoder` compile codecs from them. A
message to send is a plain dict that fits every version; a received one is kio's dataclass. Every length in a received
message is checked before memory is allocated for it. Produce, Fetch and record batches, which are nearly all of the
traffic, have hand-written codecs.

`group_records` and `transaction_records` declare the records of `__consumer_offsets` and `__transaction_state` in the
same shape; `record_types` has their codecs.
"""
