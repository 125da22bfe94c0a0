"""Kafka's wire protocol: headers, messages, record batches, and what the broker keeps in internal topics.

Schemas are kio's (generated from Kafka's own message definitions). `encoder` and `decoder` are compiled from them: a
message to send is a plain dict that fits every version, a received one is kio's dataclass, and no length is believed.
Produce, Fetch and record batches have hand-written codecs, since they are nearly all of the traffic.
"""
