"""What a leader takes from a client: one record batch of format 2, whole, undamaged, within the topic's limits.

Only the header is looked at, and the CRC over the rest: records stay opaque. The rules and their error codes are
Kafka's, of `LogValidator` and of Produce version 3 and later.
"""

from typing import Final, NamedTuple

from odradek.log.log_config import LogConfig
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.record_batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatchError,
    read_header,
    verify_crc,
)

_UNCOMMON: Final = CONTROL | TRANSACTIONAL


class AppendInfo(NamedTuple):
    """Where a batch went; with `duplicate`, where it went the first time, which may still be pending.

    `log_append_time` is in ms, -1 where records keep their own time.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


def check_batch(
    batches: memoryview, config: LogConfig, now_ms: int, *, from_client: bool, transactional: bool = False
) -> BatchHeader:
    """The header of the one batch in `batches`, which is as it must be.

    Raises `KafkaError` CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_TIMESTAMP or INVALID_TXN_STATE. Sizes and kinds of batches are a client's
    rules: `from_client=False` is for what the broker itself writes. `transactional`: it may be of a transaction.
    """
    header = read_header(batches)
    size = header.size
    if header.magic != MAGIC:
        raise _wrong_magic(header)
    if size != len(batches):
        raise _wrong_size(header, len(batches))
    if from_client:
        if size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"the batch has {size} bytes; max.message.bytes is {config.max_message_bytes}",
            )
        if header.attributes & _UNCOMMON and (header.is_control or header.producer_id < 0 or not transactional):
            raise _not_for_clients(header)
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.record_list_too_large, f"the batch has {size} bytes; segment.bytes is {config.segment_bytes}"
        )
    if not verify_crc(batches, 0, header):
        raise CorruptBatchError("the batch's checksum is wrong: it was damaged on its way; send it again")
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"the batch says that it has {count} records and offsets up to {header.last_offset_delta}",
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or (header.base_sequence < 0 and from_client)):
        raise KafkaError(ErrorCode.invalid_record, f"producer {header.producer_id} sent a batch without a sequence")
    if config.message_timestamp_type == "CreateTime":
        _check_timestamps(header, config, now_ms)
    return header


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """KIP-937, as far as a header tells: the first record may not be too old, none may be too far ahead."""
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.invalid_timestamp, "only a broker says that a timestamp is the time of the append")
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms ahead; "
            f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}",
        )
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms old; "
            f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
        )


def _wrong_magic(header: BatchHeader) -> KafkaError:
    if header.magic in (0, 1):
        return KafkaError(
            ErrorCode.unsupported_for_message_format,
            f"message format {header.magic} is older than all that is supported",
        )
    return CorruptBatchError(f"the batch has the unknown magic {header.magic}")


def _wrong_size(header: BatchHeader, size: int) -> KafkaError:
    if HEADER_SIZE <= header.size < size:
        return KafkaError(ErrorCode.invalid_record, "a partition's records must be exactly one batch")
    return CorruptBatchError(f"the batch says that it has {header.size} bytes, and {size} are there")


def _not_for_clients(header: BatchHeader) -> KafkaError:
    if header.is_control:
        return KafkaError(ErrorCode.invalid_record, "clients do not write control records")
    if header.producer_id < 0:
        return KafkaError(ErrorCode.invalid_record, "a transactional batch names no producer")
    return KafkaError(ErrorCode.invalid_txn_state, f"producer {header.producer_id} has no open transaction here")
