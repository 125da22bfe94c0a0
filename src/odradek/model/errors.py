"""The exception classes. An error's class says who caused it and whether to retry; its message says what to do.

A `KafkaError` has one of Kafka's error codes (`ErrorCode`, which kio generates from Kafka's) and is sent on the wire.
The others stay in the process: the command line prints them as one line.
"""

from typing import Final

from odradek.model.error_code import ErrorCode
from odradek.model.error_texts import explained

LONGEST_MESSAGE: Final = 1000
"""Limit of a `KafkaError`'s message, in characters: responses contain it, and it may quote a client's text."""


class OdradekError(Exception):
    """The base of all errors. `str(error)` is one sentence; if `retriable`, the same call may succeed later."""

    retriable = False


class KafkaError(OdradekError):
    """An error with one of Kafka's error codes, from a response or for one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        if message is not None and len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        self.message = message
        super().__init__(message or explained(code))

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether Kafka's clients retry after this error code."""
        return self.code.retriable


class AuthenticationError(OdradekError):
    """The other side refuses who this side says it is, or cannot prove who it is itself: repeating does not help."""


class ConfigurationError(OdradekError):
    """The caller's fault, such as an unknown configuration key: exit code 2."""


class PreconditionError(ConfigurationError):
    """Something outside of the configuration is in the way: a port in use, a missing package."""


class StorageError(OdradekError):
    """A fault of the disk or of its content: a directory in use, a full disk, a foreign file."""


class UnavailableError(OdradekError):
    """A temporary fault: no broker answered in time. A retry may succeed."""

    retriable = True


__all__ = [
    "ConfigurationError",
    "ErrorCode",
    "KafkaError",
    "OdradekError",
    "PreconditionError",
    "StorageError",
    "UnavailableError",
]
