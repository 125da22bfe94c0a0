"""The consumer: who reads what (membership, group), from where (positions, lookup), and the records (fetcher)."""

from odradek.clients.consumer.consumer import Consumer
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord", "ConsumerSettings"]
