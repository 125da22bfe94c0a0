"""The producer: an accumulator of batches per partition, and a sender to the leaders.

`producer` has `Producer`: a record passes `interceptors` and serializers, then `placement` chooses its partition.
`record_accumulator` has each partition's queue of batches (`producer_batch`); `compression_ratio` estimates when a
compressed batch is full. `ready_batches` decides that a batch is sent when it is full, after `linger.ms`, on a flush,
or while memory is short; `sender` sends, retries, splits and completes batches. `transaction_manager` has the producer
id and the sequences, `broker_readiness` the brokers that accept no batches, `arrow` the rows of `send_arrow`, `metrics`
the counters, `settings` the configuration.
"""

from odradek.clients.producer.interceptors import ProducerInterceptor, ProducerRecord
from odradek.clients.producer.producer import Producer, Serializer
from odradek.clients.producer.producer_batch import RecordMetadata
from odradek.clients.producer.settings import ProducerSettings

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "ProducerSettings", "RecordMetadata", "Serializer"]
