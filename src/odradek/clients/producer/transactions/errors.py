"""The errors of transactions: one that a new transaction mends, and one that ends the producer."""

from odradek.model import ErrorCode, KafkaError, OdradekError


class TransactionAbortedError(OdradekError):
    """The open transaction can only be aborted; its records must be sent again in another one. Has a `__cause__`."""

    def __init__(self, transactional_id: str, cause: OdradekError | None = None) -> None:
        why = "it was aborted by the application" if cause is None else str(cause)
        super().__init__(
            f"the transaction of {transactional_id!r} is not committed: {why} (after abort_transaction, or the end of "
            "its block, send its records again in another transaction)"
        )
        self.__cause__ = cause


class ProducerFencedError(KafkaError):
    """The transactional id has a newer epoch: this producer can only be closed. `reason` is of `fenced_by`."""

    def __init__(self, transactional_id: str, reason: str) -> None:
        text = f"transactional id {transactional_id!r}: {reason}; close this producer (an open transaction was aborted)"
        super().__init__(ErrorCode.producer_fenced, f"PRODUCER_FENCED: {text}")


def fenced_by(open_ms: int | None, timeout_ms: int) -> str:
    """Return what has raised the epoch, as far as a producer knows, and what to do.

    `open_ms` is the time since its transaction began, None without one.
    """
    if open_ms is not None and open_ms >= timeout_ms:
        return (
            f"the transaction was open for {open_ms:,} ms, and the coordinator aborts it after transaction_timeout_ms "
            f"({timeout_ms:,}): make transactions shorter, or the limit longer"
        )
    return (
        "another producer was started with this transactional id, or an administrator fenced it: let one producer at a "
        "time have the id"
    )
