"""Errors of a consumer that have more to say than a code: where in which partition."""

from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import ErrorCode, KafkaError, TopicPartition


class LogTruncationError(KafkaError):
    """Records before the position were removed by an unclean leader election, and there is no reset policy (KIP-320).

    `position` is the consumer's offset; `divergence` is the end of the records that the leader has in common with it,
    None if the leader does not know. Seek to it, or to where the application wants to go on.
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
