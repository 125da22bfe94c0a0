"""Shared values: `TopicPartition`, the rule for topic names, the exception classes, and the names of extras.

Imports no other package of Odradek.
"""

from odradek.model.buffer import Buffer
from odradek.model.error_texts import explained
from odradek.model.errors import (
    AuthenticationError,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    OdradekError,
    StorageError,
    UnavailableError,
)
from odradek.model.extras import install_command, packages_of
from odradek.model.names import InvalidTopicError, TopicPartition, first_names, validate_topic_name
from odradek.model.security_protocol import SecurityProtocol

__all__ = [
    "AuthenticationError",
    "Buffer",
    "ConfigurationError",
    "ErrorCode",
    "InvalidTopicError",
    "KafkaError",
    "OdradekError",
    "SecurityProtocol",
    "StorageError",
    "TopicPartition",
    "UnavailableError",
    "explained",
    "first_names",
    "install_command",
    "packages_of",
    "validate_topic_name",
]
