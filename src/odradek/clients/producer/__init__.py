"""The producer: an accumulator of batches per partition, and a sender to the leaders.

`producer` has `Producer`: `interceptors` and serializers see a record first, `placement` chooses its partition.
`record_accumulator` has the queues of batches (`producer_batch`): one is closed when a record that does not fit opens
the next one, or when `sender` drains it, because it is full, `linger.ms` is over, the producer flushes or memory is
short. `compression_ratio` estimates when a compressed batch is full. `sender` sends, retries, splits and completes
batches. `transaction_manager` has the producer id and the sequences, `broker_readiness` the brokers that take no
batches, `metrics` the counters, `settings` the configuration.
"""

from odradek.clients.producer.interceptors import ProducerInterceptor, ProducerRecord
from odradek.clients.producer.producer import Producer, Serializer
from odradek.clients.producer.producer_batch import RecordMetadata
from odradek.clients.producer.settings import ProducerSettings

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "ProducerSettings", "RecordMetadata", "Serializer"]
