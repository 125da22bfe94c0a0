"""Shared values: `TopicPartition`, the rule for topic names, and the exception classes.

Imports no other package of Odradek.
"""

from odradek.model.buffer import Buffer
from odradek.model.errors import ConfigurationError, ErrorCode, KafkaError, OdradekError, StorageError, UnavailableError
from odradek.model.names import InvalidTopicError, TopicPartition, validate_topic_name

__all__ = [
    "Buffer",
    "ConfigurationError",
    "ErrorCode",
    "InvalidTopicError",
    "KafkaError",
    "OdradekError",
    "StorageError",
    "TopicPartition",
    "UnavailableError",
    "validate_topic_name",
]
