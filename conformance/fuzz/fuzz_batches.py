"""Targets: record batches, as brokers and clients read them, and what decompresses them.

Whatever a mutation does to a batch, its lengths and its CRC are put right in a second try: else nothing behind them
would be reached.
"""

import random
import struct
from collections.abc import Iterator

from conformance.fuzz.fuzz_engine import Target
from odradek.model import KafkaError
from odradek.protocol.batches.compression import Codec, compress, decompress
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    iterate_batches,
    read_header,
    set_log_append_time,
    verify_crc,
    write_header,
)
from odradek.protocol.batches.record_walk import walk_records
from odradek.protocol.batches.records import NewRecord, Record, decode_records, encode_batch
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import encode_varint

MOST_BYTES = 1 << 16
INT64 = range(-(1 << 63), 1 << 63)
_CODEC_BITS = 7
_ATTRIBUTES = struct.Struct(">h")
_RECORDS: tuple[list[NewRecord], ...] = (
    [],
    [(1_700_000_000_000, None, None, ())],
    [
        (5, b"k", b"v", (("h", b"x"), ("e", None))),
        (4, b"", b"", ()),
        (7_000, b"key" * 30, b"v" * 200, (("é" * 40, b""),)),
    ],
    [(-1, None, b"value", ())] * 5,
)


def repaired(data: bytes) -> bytes | None:
    """One batch of the bytes: the length and the CRC of its header are right. None if there are too few."""
    if len(data) < HEADER_SIZE:
        return None
    batch = bytearray(data)
    write_header(batch, read_header(batch)._replace(magic=MAGIC))
    return bytes(batch)


def read_all(data: bytes) -> list[tuple[int, BatchHeader]] | None:
    """The batches in the bytes, None where they are refused; checks what every reader relies on."""
    found = []
    end = 0
    try:
        for position, header in iterate_batches(data):
            found.append((position, header))
            assert position == end
            end += header.size
            assert header.size >= HEADER_SIZE
            assert end <= len(data)
            assert header == read_header(data, position)
            if verify_crc(data, position, header):
                damaged = bytearray(data)
                damaged[end - 1] ^= 1
                assert not verify_crc(damaged, position, header), "a bit fell, and nobody saw"
    except KafkaError:
        return None
    return found


def read_records(data: bytes, position: int) -> list[Record] | None:
    """A batch's records, None where they are refused."""
    try:
        return decode_records(data, position, max_bytes=MOST_BYTES)
    except CorruptBatchError:
        return None


def check_batches(data: bytes) -> None:
    """Batches lie in their buffer, and records that are read are written and read again the same."""
    for candidate in dict.fromkeys((data, repaired(data))):
        if candidate is None:
            continue
        for position, header in read_all(candidate) or ():
            records = read_records(candidate, position)
            _check_walk(header, candidate, position, records)
            if records is None:
                continue
            assert len(records) == header.record_count
            for record in records:
                assert record.offset in INT64
                assert record.timestamp in INT64
            _check_writing(header, records)
            stamped = bytearray(candidate)
            set_log_append_time(stamped, position, header, 42)
            assert verify_crc(stamped, position, read_header(stamped, position))
            again = read_records(bytes(stamped), position)
            assert again is not None
            assert {record.timestamp for record in again} <= {42}


def _check_walk(header: BatchHeader, data: bytes, position: int, records: list[Record] | None) -> None:
    """Check that the broker's validation finds the same records, with the same offsets, times and keys."""
    section = memoryview(data)[position + HEADER_SIZE : position + header.size]
    try:
        plain = bytes(decompress(header.codec, section, max_bytes=MOST_BYTES))
        walked = list(walk_records(plain, header.record_count, len(plain)))
    except CorruptBatchError:
        return
    base, first = header.base_timestamp, header.base_offset
    if first + (1 << 31) not in INT64 or first - (1 << 31) not in INT64:
        return
    if header.is_log_append_time:
        base, walked = header.max_timestamp, [(0, *rest[1:]) for rest in walked]
    if any(base + time not in INT64 for time, *_ in walked):
        return
    assert records is not None
    assert [(base + time, first + offset, key < 0) for time, offset, key in walked] == [
        (record.timestamp, record.offset, record.key is None) for record in records
    ]


def _check_writing(header: BatchHeader, records: list[Record]) -> None:
    try:
        batch = encode_batch(
            [(record.timestamp, record.key, record.value, record.headers) for record in records],
            codec=header.codec,
            base_offset=header.base_offset,
        )
    except OverflowError:
        return
    assert verify_crc(batch, 0, read_header(batch))
    again = read_records(bytes(batch), 0)
    if again is None:
        return  # compressed, it was within the bound; the others are larger
    assert [record[1:] for record in again] == [record[1:] for record in records]


def batch_seeds() -> Iterator[bytes]:
    """Few and many records, each codec, transactions, two batches in one buffer, one that is cut."""
    for records in _RECORDS:
        for codec in Codec:
            yield bytes(encode_batch(records, codec=codec, base_offset=100))
    producer = encode_batch(_RECORDS[2], producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True)
    control = encode_batch([(1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", ())], is_control=True)
    yield bytes(producer + control)
    yield bytes(producer + control)[:-7]


def mutate_batch(data: bytes, chance: random.Random) -> bytes | None:
    """Change the header, a varint of the records, or how they are compressed; the first batch's length stays right."""
    if len(data) < HEADER_SIZE or chance.random() < 0.5:
        return random_batch(chance)
    batch = bytearray(data)
    section = bytes(batch[HEADER_SIZE:])
    codec = batch[22] & _CODEC_BITS
    if codec in Codec._value2member_map_:
        try:
            section = bytes(decompress(Codec(codec), section, max_bytes=MOST_BYTES))
        except CorruptBatchError:
            codec = 0
    section = _mutate_section(section, chance)
    if chance.random() < 0.3:
        place = chance.choice((0, 4, 8, 12, 16, 21, 22, 23, 27, 35, 43, 51, 53, 57, 60))
        batch[place] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    codec = chance.choice((codec, codec, chance.randrange(5)))
    batch[22] = batch[22] & ~_CODEC_BITS | codec
    changed = batch[:HEADER_SIZE] + bytes(compress(Codec(codec), section) if codec < len(Codec) else section)
    struct.pack_into(">i", changed, 8, len(changed) - LENGTH_OVERHEAD)
    return bytes(changed)


_EDGES = (
    *(0, 1, -1, 5, 63, 64, -64, 8191, 8192, 1 << 31, 1 << 32, 1 << 62),
    *((1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)),
)


def _varint(value: int, chance: random.Random) -> bytes:
    """Sometimes longer than needed, and sometimes longer than allowed."""
    encoded = encode_varint(value)
    if chance.random() < 0.1:
        encoded = encoded[:-1] + bytes([encoded[-1] | 0x80])
        encoded += b"\x80" * (chance.choice((1, 2, 5, 9, 10)) - len(encoded) - 1)
        encoded += chance.choice((b"\x00", b"\x01", b"\x7f"))
    return encoded


def _some_bytes(chance: random.Random) -> bytes:
    """With their length in front; null at times, and at times with a length that lies."""
    content = chance.choice((b"", b"a", b"\xff\xfe", b"bytes" * 30))
    length = len(content) if chance.random() < 0.9 else chance.choice(_EDGES)
    return _varint(-1, chance) if chance.random() < 0.2 else _varint(length, chance) + content


def _record(chance: random.Random) -> bytes:
    headers = [_some_bytes(chance) + _some_bytes(chance) for _ in range(chance.choice((0, 0, 1, 3)))]
    count = len(headers) if chance.random() < 0.9 else chance.choice(_EDGES)
    body = b"".join(
        (
            chance.choice((b"\x00", b"\xff")),
            _varint(chance.choice(_EDGES), chance),
            _varint(chance.choice(_EDGES), chance),
            _some_bytes(chance),
            _some_bytes(chance),
            _varint(count, chance),
            *headers,
        )
    )
    return _varint(len(body) if chance.random() < 0.95 else chance.choice(_EDGES), chance) + body


def random_batch(chance: random.Random) -> bytes:
    """A batch whose header and records are right in most things, and at the limits in many."""
    records = [_record(chance) for _ in range(chance.choice((0, 1, 1, 2, 5)))]
    header = read_header(encode_batch(_RECORDS[1]))._replace(
        base_offset=chance.choice((0, 0, 7, (1 << 63) - 1, -1)),
        base_timestamp=chance.choice((0, 1_700_000_000_000, (1 << 63) - 1, -1)),
        record_count=len(records) if chance.random() < 0.95 else chance.choice((-1, 0, 1 << 30)),
        attributes=chance.choice((0, 0, LOG_APPEND_TIME)),
    )
    batch = bytearray(HEADER_SIZE) + b"".join(records)
    write_header(batch, header)
    return bytes(batch)


def _mutate_section(section: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((0, 1, 1, 2))):
        place = chance.randrange(len(section) + 1)
        new = _varint(chance.choice(_EDGES), chance)
        section = section[:place] + new + section[place + chance.choice((0, 1, len(new))) :]
    return section


# ---- compression ----------------------------------------------------------------------------------------------------


def check_compression(data: bytes) -> None:
    """Data is refused, or is decompressed within the bound and compressed again to the same."""
    if not data:
        return
    codec = Codec(data[0] % len(Codec))
    bound = (0, 1, 100, MOST_BYTES)[data[0] // len(Codec) % 4]
    for view in (data[1:], memoryview(data)[1:]):
        try:
            plain = decompress(codec, view, max_bytes=bound)
        except CorruptBatchError:
            continue
        assert codec == Codec.NONE or len(plain) <= bound
        assert bytes(decompress(codec, compress(codec, plain), max_bytes=max(len(plain), 1))) == bytes(plain)
    assert bytes(decompress(codec, compress(codec, data), max_bytes=len(data))) == data


def compression_seeds() -> Iterator[bytes]:
    """Return short, long and random data compressed by each codec, and two frames in a row."""
    chance = random.Random(1)
    for number, codec in enumerate(Codec):
        for text in (b"", b"a", b"abc" * 500, chance.randbytes(300), bytes(60_000)):
            packed = bytes(compress(codec, text))
            for head in (number + 10, number + 15):
                yield bytes([head]) + packed
                yield bytes([head]) + packed + packed


TARGETS = {
    "batches": Target(
        check=check_batches,
        seeds=batch_seeds,
        mutate=mutate_batch,
        reaches={"odradek.protocol.batches.record_batch": 0.75, "odradek.protocol.batches.records": 0.6},
        runs=3000,
        longest=2048,
    ),
    "compression": Target(
        check=check_compression,
        seeds=compression_seeds,
        reaches={"odradek.protocol.batches.codecs": 0.85},
        runs=2000,
        longest=4096,
    ),
}
