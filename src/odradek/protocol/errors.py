"""Errors of received bytes: in a record batch, and in a message."""

from odradek.model import ErrorCode, KafkaError


class CorruptBatchError(KafkaError):
    """A record batch contradicts itself in a length, a checksum, a codec or a varint."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class MalformedMessageError(KafkaError):
    """A request or response does not follow its schema; its connection cannot be used any more."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)


class UnknownRecordVersionError(MalformedMessageError):
    """A record of an internal topic has a version that this release does not know: a newer one wrote it."""
