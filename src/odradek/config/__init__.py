"""Typed configuration of brokers, topics and groups, by Kafka's keys, and its parsing from Java's properties files.

Every key is a field of a frozen dataclass, named as the key with `_` for `.`: `config.log_segment_bytes` is the value
of `log.segment.bytes`. A changed configuration is a new value.

To add a key, declare a field in `broker`, `topic` or `group` by a function of `definition`, and delete the key from
the table of `unimplemented_keys`. If it can change while the broker runs, list it in `dynamic`, which combines file and
tree. If logs use it, add a field to `broker.log.log_config`.

This module exports nothing: a client imports the few keys that it has, and not those of brokers.
"""
