"""Maps errors of the transaction coordinator to error codes that a client's version knows."""

from odradek.model import ErrorCode, KafkaError


def response_code(error: KafkaError, *, knows_fencing: bool) -> ErrorCode:
    """Return the error's code; INVALID_PRODUCER_EPOCH for PRODUCER_FENCED unless the client knows that (KIP-588)."""
    if error.code is ErrorCode.producer_fenced and not knows_fencing:
        return ErrorCode.invalid_producer_epoch
    return error.code
