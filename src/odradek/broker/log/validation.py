"""Validation of batches: a client's single batch of format 2 within the topic's limits, or a leader's batches.

With `log.validate.records=needed`, records are checked only if a rule needs it (docs/decisions/0005).
Rules and error codes are those of Kafka's `LogValidator`, for Produce version 3 and later.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.broker.log.batch_contents import RecordLimits, check_records, open_records, store_records
from odradek.broker.log.continuity import discontinuity
from odradek.broker.log.log_config import LOG_APPEND_TIME, LogConfig
from odradek.config.definition import LONG_MAX
from odradek.kernels import LIBRARY, address
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches import record_batch
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatchError,
    iterate_batches,
    read_header,
    verify_crc,
)
from odradek.protocol.batches.record_walk import MIN_RECORD_BYTES

_UNCOMMON: Final = CONTROL | TRANSACTIONAL | record_batch.LOG_APPEND_TIME
_CODECS: Final = len(Codec)
_MOST_WALKED_BYTES: Final = 64 << 10
"""Batches with more decompressed bytes are neither checked by Python nor compressed anew on the event loop: that takes
15 ms, because a record may have a header in every two bytes."""
_MOST_BYTES_AT_ONCE: Final = 4 << 20 if LIBRARY else _MOST_WALKED_BYTES
"""The same limit for the library, which takes 10 ms."""
_COPIED_BYTES: Final = 16 << 10
"""To copy fewer bytes is cheaper than to ask for their address."""
_USUAL_RATIO: Final = 32
"""The records of batches with a higher compression ratio are checked."""
_AFTER_MAX_MS: Final = 3_600_000
"""Kafka's default of `message.timestamp.after.max.ms`."""
_RECENT_MS: Final = 600_000
"""Older timestamps cause a check of the records; twice librdkafka's delivery timeout, so retries cause none."""

_TOO_LARGE: Final = "The request included a message larger than the max message size the server will accept"
"""The text that Kafka's clients print, as its brokers send none."""


class AppendInfo(NamedTuple):
    """Where a batch was appended, perhaps pending; `log_append_time` is in ms, -1 with CreateTime.

    A `duplicate` batch has the offsets of its first append, a `duplicate` marker the log's last offset.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool


class UncheckedBatchError(KafkaError):
    """A batch was not appended: the check of its records takes long. `check` does it on any thread.

    `check` returns the batch to append with `is_checked`, or why it is refused.
    """

    def __init__(self, check: Callable[[], memoryview | KafkaError]) -> None:
        super().__init__(ErrorCode.invalid_record, "the batch's records are not checked yet")
        self.check = check


class MessageRules:
    """The validation rules of one topic configuration.

    Records are checked if the topic is compacted, if `compression.type` differs from the codec, if a timestamp limit is
    below Kafka's default, if the header breaks a limit or is implausible, or with `log.validate.records=all`.
    """

    __slots__ = (
        "_after_max_ms",
        "_codec",
        "_config",
        "_is_create_time",
        "_level",
        "_limits",
        "_looks_inside",
        "_packed",
        "_packed_at",
    )

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._is_create_time = config.message_timestamp_type != LOG_APPEND_TIME
        self._codec = _TARGETS[config.compression_type]
        self._level = _LEVELS.get(self._codec, _no_level)(config)
        needs_keys = "compact" in config.cleanup_policy
        before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        self._limits = RecordLimits(
            needs_keys=needs_keys,
            before_max_ms=before_ms if self._is_create_time else None,
            after_max_ms=after_ms if self._is_create_time else None,
            max_bytes=config.validate_max_bytes,
        )
        is_tight = self._is_create_time and (before_ms < LONG_MAX or after_ms < _AFTER_MAX_MS)
        self._packed = self._limits.packed()
        self._packed_at, _ = self._packed.buffer_info()
        self._after_max_ms = after_ms
        self._looks_inside = config.validate_all or needs_keys or is_tight

    def admit(
        self,
        batch: memoryview,
        now_ms: int,
        *,
        from_client: bool,
        transactional: bool = False,
        is_checked: bool | None = False,
    ) -> tuple[BatchHeader, memoryview]:
        """Check a batch; return its header and the batch to store: `batch`, changed in place, or a new one.

        After a `KafkaError` nothing has changed. `from_client=False` is for the broker's own batches; `transactional`
        allows a batch of a transaction. Raises `UncheckedBatchError` for a long check unless `is_checked` is true, or
        None: then it is done.
        """
        header = check_batch(batch, self._config, from_client=from_client, transactional=transactional)
        if not from_client or is_checked:
            return header, batch
        is_other_codec = self._codec is not None and header.attributes & CODEC_MASK != self._codec
        # The header breaks a limit, or is implausible.
        is_suspicious = not _has_room(header)
        if self._is_create_time:  # retention uses the largest timestamp
            latest = header.max_timestamp
            is_in_range = now_ms - _RECENT_MS <= latest <= now_ms + self._after_max_ms
            is_suspicious = is_suspicious or not is_in_range or header.base_timestamp > latest
        if not (self._looks_inside or is_other_codec or is_suspicious):
            return header, batch
        if LIBRARY and not header.attributes & CODEC_MASK and not is_other_codec and header.size <= _MOST_BYTES_AT_ONCE:
            place = bytes(batch) if header.size < _COPIED_BYTES else address(batch)
            found = LIBRARY.check(place, None, header.size - HEADER_SIZE, now_ms, self._packed_at)
            is_right = found > 0 and found & 1
            if is_right and (not self._is_create_time or (found >> 1) - 1 == header.max_timestamp):
                return header, batch
        most_bytes = self._limits.max_bytes
        if is_checked is not None:
            most_bytes = min(most_bytes, _MOST_WALKED_BYTES if is_other_codec else _MOST_BYTES_AT_ONCE)
        try:
            if is_checked is not None and header.size > most_bytes:
                raise KafkaError(ErrorCode.message_too_large)
            data = open_records(batch, header, max_bytes=most_bytes)
            may_walk = is_checked is None or len(data) <= _MOST_WALKED_BYTES
            contents = check_records(header, data, self._limits, now_ms, may_walk=may_walk)
        except KafkaError as error:
            if is_checked is None or error.code is not ErrorCode.message_too_large:
                raise
            copy = memoryview(bytearray(batch))
            raise UncheckedBatchError(lambda: self._check(copy, now_ms, transactional=transactional)) from None
        codec = self._codec if self._codec is not None else header.codec
        timestamp = contents.max_timestamp if self._is_create_time else header.max_timestamp
        if codec == header.codec and not contents.is_in_sequence:
            text = "the offset deltas of the batch's records are not 0, 1, 2 and so on"
            raise KafkaError(ErrorCode.invalid_record, text)
        if codec == header.codec and timestamp == header.max_timestamp:
            return header, batch
        stored = store_records(batch, header, data, contents, codec=codec, level=self._level, max_timestamp=timestamp)
        check_size(len(stored), self._config)
        return read_header(stored), stored

    def _check(self, batch: memoryview, now_ms: int, *, transactional: bool) -> memoryview | KafkaError:
        try:
            return self.admit(batch, now_ms, from_client=True, transactional=transactional, is_checked=None)[1]
        except KafkaError as error:
            # The frames of its traceback, and of its cause's, have the decompressed records.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)


def _has_room(header: BatchHeader) -> bool:
    room = header.size - HEADER_SIZE
    if header.attributes & CODEC_MASK:
        room *= _USUAL_RATIO
    return header.record_count * MIN_RECORD_BYTES <= room


def check_batch(
    batches: memoryview, config: LogConfig, *, from_client: bool, transactional: bool = False
) -> BatchHeader:
    """Check the header, size and CRC of the one batch in `batches`; return the header. Raises `KafkaError`."""
    if len(batches) < HEADER_SIZE:
        raise KafkaError(ErrorCode.invalid_record, f"{len(batches)} bytes are not a record batch")
    header = read_header(batches)
    size = header.size
    if header.magic != MAGIC:
        raise _wrong_magic(header)
    if size != len(batches):
        raise _wrong_size(header, len(batches))
    attributes = header.attributes
    if (size > config.max_message_bytes or size > config.segment_bytes) and not attributes & CONTROL:
        check_size(size, config)
    if not verify_crc(batches, 0, header):
        raise CorruptBatchError("the batch's checksum is wrong: it was damaged in transit; send it again")
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"the batch declares {count} records and offsets up to {header.last_offset_delta}",
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or (header.base_sequence < 0 and from_client)):
        raise KafkaError(ErrorCode.invalid_record, f"producer {header.producer_id} sent a batch without a sequence")
    if from_client and (header.base_offset or attributes & _UNCOMMON or attributes & CODEC_MASK >= _CODECS):
        _check_clients_batch(header, transactional=transactional)
    return header


def fetched_batches(records: memoryview, *, log_end_offset: int, leader_epoch: int) -> list[tuple[int, BatchHeader]]:
    """Return `(position, header)` of the batches in `records` that continue a follower's log.

    Stops at the first batch that does not; raises `KafkaError` if `records` begins with it.
    """
    batches: list[tuple[int, BatchHeader]] = []
    try:
        batches.extend(_checked(records, log_end_offset, leader_epoch))  # keeps the batches before an invalid one
    except KafkaError:
        if not batches:
            raise
    return batches


def _checked(records: memoryview, log_end_offset: int, leader_epoch: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield batches, raise `KafkaError` at an invalid one; gaps between offsets are valid (compaction)."""
    expected, epoch = log_end_offset, leader_epoch
    for position, header in iterate_batches(records):
        fault = discontinuity(header, records, position, next_offset=expected, leader_epoch=epoch)
        if fault is not None:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has {fault}")
        yield position, header
        expected, epoch = header.next_offset, header.partition_leader_epoch


def check_size(size: int, config: LogConfig) -> None:
    """Raise `KafkaError` MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE for a batch of too many bytes."""
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"{_TOO_LARGE}: the batch has {size} bytes, and max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.record_list_too_large, f"the batch has {size} bytes; segment.bytes is {config.segment_bytes}"
        )


def _check_clients_batch(header: BatchHeader, *, transactional: bool) -> None:
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.invalid_record, f"a batch to be appended has base offset 0, not {header.base_offset}"
        )
    if header.is_control or (header.is_transactional and (header.producer_id < 0 or not transactional)):
        raise _not_for_clients(header)
    if header.attributes & CODEC_MASK >= _CODECS:
        raise KafkaError(ErrorCode.invalid_record, f"there is no codec {header.attributes & CODEC_MASK}")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.invalid_timestamp, "only a broker sets log append time")


def _wrong_magic(header: BatchHeader) -> KafkaError:
    if header.magic in (0, 1):
        return KafkaError(ErrorCode.invalid_record, f"message format {header.magic} is not supported")
    return CorruptBatchError(f"the batch has the unknown magic {header.magic}")


def _wrong_size(header: BatchHeader, size: int) -> KafkaError:
    sizes = f"the batch declares {header.size} bytes, and {size} are there"
    if header.size < HEADER_SIZE:
        return CorruptBatchError(sizes)
    return KafkaError(ErrorCode.invalid_record, f"a partition's records must be exactly one batch: {sizes}")


def _not_for_clients(header: BatchHeader) -> KafkaError:
    if header.is_control:
        return KafkaError(ErrorCode.invalid_record, "clients cannot write control records")
    if header.producer_id < 0:
        return KafkaError(ErrorCode.invalid_record, "a transactional batch names no producer")
    return KafkaError(ErrorCode.invalid_txn_state, f"producer {header.producer_id} has no open transaction here")


def _no_level(config: LogConfig) -> None:
    return None


_TARGETS: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS: Final[dict[Codec | None, Callable[[LogConfig], int | None]]] = {
    Codec.GZIP: lambda config: config.compression_gzip_level,
    Codec.LZ4: lambda config: config.compression_lz4_level,
    Codec.ZSTD: lambda config: config.compression_zstd_level,
}
