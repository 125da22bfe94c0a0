"""What is wrong with bytes that came in: of a record batch, and of a message."""

from odradek.model import ErrorCode, KafkaError


class CorruptBatchError(KafkaError):
    """A record batch whose bytes contradict themselves: a length, a checksum, a codec or a varint that cannot be."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class MalformedMessageError(KafkaError):
    """A request or response that is not of its schema: the connection that it came on is of no more use."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_request, message)
