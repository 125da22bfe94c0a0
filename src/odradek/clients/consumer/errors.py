"""Errors of a consumer that carry a partition and an offset."""

from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import ErrorCode, KafkaError, TopicPartition


class LogTruncationError(KafkaError):
    """An unclean leader election removed records before the position, and `auto.offset.reset` is none (KIP-320).

    `position` is the consumer's offset; `divergence` is the offset where the leader's log diverges from the records
    that were read, None if the leader does not know it. Seek to `divergence`, or to another offset, to continue.
    """

    def __init__(self, partition: TopicPartition, position: int, divergence: OffsetAndMetadata | None) -> None:
        self.partition = partition
        self.position = position
        self.divergence = divergence
        where = "at an unknown offset" if divergence is None else f"at offset {divergence.offset}"
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"partition {partition} was truncated: the log diverges {where} from what was read up to offset {position}"
            "; seek to go on",
        )


class RecordDeserializationError(KafkaError):
    """A deserializer failed; the position stays at the record (Kafka's RecordDeserializationException).

    `record` has the undecoded bytes (KIP-1036), `origin` is "key" or "value", and `__cause__` is the deserializer's
    error. Seek to `offset + 1` to skip the record.
    """

    def __init__(self, record: ConsumerRecord, origin: str, error: Exception) -> None:
        self.partition = TopicPartition(record.topic, record.partition)
        self.offset = record.offset
        self.origin = origin
        self.record = record
        super().__init__(
            ErrorCode.invalid_record,
            f"the {origin}_deserializer failed for partition {self.partition}, offset {record.offset}: "
            f"{type(error).__name__}: {error}; seek past the record to go on",
        )
