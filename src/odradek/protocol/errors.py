"""Errors in received bytes: a corrupt record batch, a malformed message or record."""

from odradek.model import ErrorCode, KafkaError


class CorruptBatchError(KafkaError):
    """A record batch has an invalid length, checksum, codec or varint. `next_offset` is the one after it, if known."""

    def __init__(self, message: str, *, next_offset: int | None = None) -> None:
        self.next_offset = next_offset
        super().__init__(ErrorCode.corrupt_message, message)


class MalformedMessageError(KafkaError):
    """A message or record does not match its schema; after a malformed message its connection is unusable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class UnknownRecordVersionError(MalformedMessageError):
    """A record of an internal topic has an unknown version, written by a newer release."""
