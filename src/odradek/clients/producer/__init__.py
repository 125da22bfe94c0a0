"""The producer: a record passes `interceptors` and serializers, and `placement` chooses its partition.

`record_accumulator` has each partition's queue of batches, `ready_batches` decides which are sent, and `sender` sends,
retries, splits and completes them. `transaction_manager` has the producer id and the sequences.
"""

from odradek.clients.producer.interceptors import ProducerInterceptor, ProducerRecord
from odradek.clients.producer.producer import Producer, Serializer
from odradek.clients.producer.producer_batch import RecordMetadata
from odradek.clients.producer.settings import ProducerSettings

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "ProducerSettings", "RecordMetadata", "Serializer"]
