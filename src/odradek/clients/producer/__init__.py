"""The producer: an accumulator of batches per partition, and a sender to the leaders."""

from odradek.clients.producer.producer import Producer
from odradek.clients.producer.record_accumulator import RecordMetadata
from odradek.clients.producer.settings import ProducerSettings

__all__ = ["Producer", "ProducerSettings", "RecordMetadata"]
