"""Kafka's wire protocol: headers, messages, record batches, and what the broker keeps in internal topics.

Schemas are kio's (generated from Kafka's own message definitions). Decoding is kio's native reader; encoding is
compiled here from the same schemas (`encoder`), because a message of ours is a plain dict that fits every version.
Produce, Fetch and record batches have hand-written codecs, since they are nearly all of the traffic.
"""
