"""The consumer: group membership, fetch positions, and fetching of records."""

from odradek.clients.consumer.consumer import Consumer
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord", "ConsumerSettings"]
