"""Shared values: `TopicPartition`, the rule for topic names, the exception classes, addresses, and the names of extras.

Imports no other package of Odradek.
"""

from odradek.model.addresses import address_text, bootstrap_addresses, parse_host_port, parse_server
from odradek.model.buffer import Buffer
from odradek.model.error_texts import explained
from odradek.model.errors import (
    AuthenticationError,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    OdradekError,
    PreconditionError,
    StorageError,
    UnavailableError,
)
from odradek.model.extras import install_command, packages_of
from odradek.model.names import InvalidTopicError, TopicPartition, first_names, is_mistake, validate_topic_name
from odradek.model.security_protocol import SecurityProtocol

__all__ = [
    "AuthenticationError",
    "Buffer",
    "ConfigurationError",
    "ErrorCode",
    "InvalidTopicError",
    "KafkaError",
    "OdradekError",
    "PreconditionError",
    "SecurityProtocol",
    "StorageError",
    "TopicPartition",
    "UnavailableError",
    "address_text",
    "bootstrap_addresses",
    "explained",
    "first_names",
    "install_command",
    "is_mistake",
    "packages_of",
    "parse_host_port",
    "parse_server",
    "validate_topic_name",
]
