"""The producer: an accumulator of batches per partition, and a sender to the leaders.

`producer` has `Producer`, which chooses a record's partition and appends it. `record_accumulator` has the batches: one
is closed when a record that does not fit opens the next one, or when `sender` drains it, because it is full,
`linger.ms` is over, the producer flushes or memory is short. `sender` sends, retries and completes batches.
`transaction_manager` has the producer id and the sequences, `settings` the configuration.
"""

from odradek.clients.producer.producer import Producer
from odradek.clients.producer.record_accumulator import RecordMetadata
from odradek.clients.producer.settings import ProducerSettings

__all__ = ["Producer", "ProducerSettings", "RecordMetadata"]
