"""The name of a prepared transaction, which an application stores in its database (KIP-939)."""

from typing import NamedTuple, Self


class PreparedTransaction(NamedTuple):
    """The producer id and epoch of a transaction; `str` and `parse` use Kafka's format, `producerId:epoch`."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the transaction that `str` has written. Raises `ValueError` for other texts."""
        producer_id, colon, epoch = text.partition(":")
        if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"a prepared transaction is PRODUCER_ID:EPOCH, such as 4000:7, not {text!r}")
        return cls(int(producer_id), int(epoch))
