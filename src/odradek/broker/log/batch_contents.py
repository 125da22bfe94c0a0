"""Validation of the records inside a client's batch: decompress, check, and encode again if needed.

The rules are those of Kafka's `LogValidator` (KIP-467, KIP-937): records are whole, fill the batch, and have timestamps
within limits and, in a compacted topic, keys. A wrong largest timestamp is corrected; wrong offset deltas are corrected
in a batch that is compressed anew, and else refused.
"""

from array import array
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.kernels import LIBRARY, Library, address
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.compression import Codec, DecompressedSizeError, compress, decompress
from odradek.protocol.batches.record_batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    set_max_timestamp,
    write_header,
)
from odradek.protocol.batches.record_walk import MIN_RECORD_BYTES, renumber_records, walk_records
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.messages.produce import RecordError

NO_TIMESTAMP: Final = -1
MAX_RECORD_ERRORS: Final = 1000
"""The limit of returned record errors, which keeps a response small."""
MAX_RECORDS: Final = 1 << 20
"""Batches with more records, or more record headers, are refused, because their check takes over a second."""
_LATEST: Final = 2**63 - 1


class RecordLimits(Struct, frozen=True, kw_only=True):
    """A topic's rules for records. Timestamp limits are in ms, None with LogAppendTime.

    `max_bytes` limits the decompressed records.
    """

    needs_keys: bool
    before_max_ms: int | None
    after_max_ms: int | None
    max_bytes: int

    def packed(self) -> "array[int]":
        before_ms, after_ms = (-1 if each is None else each for each in (self.before_max_ms, self.after_max_ms))
        return array("q", (self.needs_keys, before_ms, after_ms, MAX_RECORDS))


NO_KEY: Final = "Compacted topic cannot accept message without key"
_OUT_OF_RANGE: Final = "Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]"
"""The error text for a record without a key."""


class Contents(NamedTuple):
    """The largest timestamp of valid records (ms or -1), and whether their offset deltas count up from 0."""

    max_timestamp: int
    is_in_sequence: bool


class InvalidRecordsError(KafkaError):
    """A batch was refused because of the records in `record_errors` (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


def open_records(batch: memoryview, header: BatchHeader, *, max_bytes: int) -> Buffer:
    """Return the batch's decompressed records: a view of `batch`, if they were not compressed.

    Raises `KafkaError` MESSAGE_TOO_LARGE for more than `max_bytes` or `MAX_RECORDS`, so that clients split the batch,
    and INVALID_RECORD if decompression fails, because clients would retry CORRUPT_MESSAGE.
    """
    try:
        data = decompress(header.codec, batch[HEADER_SIZE:], max_bytes=max_bytes)
    except DecompressedSizeError as error:
        raise KafkaError(ErrorCode.message_too_large, f"{error}; log.validate.max.bytes allows no more") from error
    except CorruptBatchError as error:
        raise KafkaError(ErrorCode.invalid_record, str(error)) from error
    if MAX_RECORDS < header.record_count <= len(data) // MIN_RECORD_BYTES:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"the batch has {header.record_count} records; at most {MAX_RECORDS} are accepted",
        )
    return data


def check_records(
    header: BatchHeader,
    data: Buffer,
    limits: RecordLimits,
    now_ms: int,
    library: Library | None = LIBRARY,
    *,
    may_walk: bool = True,
) -> Contents:
    """Check all records of a client's batch; `data` are its decompressed records.

    Raises `InvalidRecordsError` with INVALID_RECORD or INVALID_TIMESTAMP if a record is invalid. Python finds the
    invalid record, and does all checks without `library`; raises `KafkaError` MESSAGE_TOO_LARGE instead if it may not
    (`may_walk`).
    """
    if library is not None:
        packed = limits.packed()
        place, _ = packed.buffer_info()
        found = library.check(HEADER.pack(*header), address(data), len(data), now_ms, place)
        if found >= 0:
            return Contents((found >> 1) - 1, bool(found & 1))
    base_timestamp, needs_keys = header.base_timestamp, limits.needs_keys
    earliest, latest = _range(limits, now_ms)
    if not may_walk:
        raise KafkaError(ErrorCode.message_too_large)
    data = bytes(data)
    largest = NO_TIMESTAMP
    is_in_sequence = True
    bad: list[tuple[int, str]] = []
    bad_count, has_bad_time, index = 0, False, 0
    try:
        for timestamp_delta, offset_delta, key_length in walk_records(data, header.record_count, MAX_RECORDS):
            timestamp = base_timestamp + timestamp_delta
            if needs_keys and key_length < 0:
                bad_count += 1
                if len(bad) < MAX_RECORD_ERRORS:
                    bad.append((index, NO_KEY))
            elif not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
                bad_count += 1
                has_bad_time = True
                if len(bad) < MAX_RECORD_ERRORS:
                    bad.append((index, _OUT_OF_RANGE % (timestamp, index, earliest, latest)))
            elif timestamp > largest:
                largest = timestamp
            if offset_delta != index:
                is_in_sequence = False
            index += 1
    except CorruptBatchError as error:
        message = f"the batch cannot be read: {error}"
        raise InvalidRecordsError(ErrorCode.invalid_record, message, [RecordError(index, str(error))]) from error
    if bad:
        code = ErrorCode.invalid_timestamp if has_bad_time else ErrorCode.invalid_record
        message = (
            f"One or more records have been rejected due to {bad_count} record errors in total, and only showing the "
            f"first: record {bad[0][0]}: {bad[0][1]}"
        )
        raise InvalidRecordsError(code, message, [RecordError(*each) for each in bad])
    return Contents(largest, is_in_sequence)


def _range(limits: RecordLimits, now_ms: int) -> tuple[int, int]:
    if limits.before_max_ms is None or limits.after_max_ms is None:
        return -_LATEST - 1, _LATEST
    return max(now_ms - limits.before_max_ms, -_LATEST - 1), min(now_ms + limits.after_max_ms, _LATEST)


def store_records(
    batch: memoryview,
    header: BatchHeader,
    data: Buffer,
    contents: Contents,
    *,
    codec: Codec,
    level: int | None,
    max_timestamp: int,
) -> memoryview:
    """Return the batch to store: `batch` with its largest timestamp corrected, or a new one encoded from `data`."""
    if codec == header.codec:
        set_max_timestamp(batch, 0, header, max_timestamp)
        return batch
    records = data if contents.is_in_sequence else renumber_records(bytes(data), header.record_count)
    packed = bytearray(HEADER_SIZE)
    packed += compress(codec, records, level=level)
    write_header(
        packed, header._replace(attributes=header.attributes & ~CODEC_MASK | codec, max_timestamp=max_timestamp)
    )
    return memoryview(packed)
