"""Batches, good and bad, to Kafka and to our broker: the same answers, and the same bytes on disk (M1)."""

import itertools
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, Case, check, produce
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    iterate_batches,
    read_header,
    write_header,
)
from odradek.protocol.batches.records import encode_batch, encode_record
from odradek.testing.conditions import eventually

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_790_000_000_000
FAR: Final = 4_000_000_000_000
"""A time that is years ahead, whenever this runs."""

TOPICS: Final = {
    "bad": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "1000"},
    "old-refused": {"message.timestamp.before.max.ms": "1000"},
    "sequences": {},
    "rolled": {"segment.bytes": str(1 << 20), "message.timestamp.after.max.ms": str(2**63 - 1)},
}
PARTITIONS: Final = 5
ASIDE: Final = 4
"""Where one of the two takes what the other refuses, so that offsets are no longer the same."""
_producers = itertools.count(1000)

WRONG_OFFSETS: Final = "Kafka stores them: its readers meet an offset twice, or in the next batch again"
WE_SAY_WHICH: Final = "we name the record that is broken"
KAFKA_FAILS: Final = "Kafka meets it as a failure of its own, and answers UNKNOWN_SERVER_ERROR"
FIRST_TIME: Final = "Kafka tells the time of the first attempt as the time of the append, where records keep their own"
NO_EPOCH: Final = "a producer's id comes with an epoch and a sequence, from 0 on"
NO_TRANSACTIONS: Final = "Kafka says that the transactional id, which is missing, is not authorised"

Change = Callable[[BatchHeader], BatchHeader]


def batch(
    *values: bytes | None, key: bytes | None = b"k", at: int = NOW, change: Change | None = None, **options: Any
) -> bytes:
    """A batch of these values; `change` lets its header lie, under a CRC that is right."""
    found = encode_batch(
        [(at + place, key, value, ()) for place, value in enumerate(values or (b"v", b"w"))], **options
    )
    if change is not None:
        write_header(found, change(read_header(found)))
    return bytes(found)


def lying(**fields: int) -> bytes:
    """A batch of two records whose header has these values."""
    return batch(change=lambda header: header._replace(**fields))


def with_records(*records: bytes, count: int | None = None) -> bytes:
    """A batch of records that are encoded already."""
    found = bytearray(HEADER_SIZE) + b"".join(records)
    good = read_header(encode_batch([(NOW, None, b"v", ())]))
    number = len(records) if count is None else count
    write_header(found, good._replace(record_count=number, last_offset_delta=number - 1))
    return bytes(found)


def legacy(magic: int) -> bytes:
    """A message of the formats 0 and 1."""
    import zlib

    body = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", NOW) if magic else b"")
        + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    )
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def compressed(codec: Codec, garbage: bytes) -> bytes:
    """A batch that says it is compressed."""
    found = bytearray(HEADER_SIZE) + garbage
    good = read_header(encode_batch([(NOW, None, b"v", ())]))
    write_header(found, good._replace(attributes=int(codec)))
    return bytes(found)


def flipped(data: bytes, position: int) -> bytes:
    """One bit of it is another."""
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def bad(name: str, data: bytes | None, *, topic: str = "bad", partition: int = 0, differs: str = "") -> Case:
    """One batch that something is wrong with, or might be."""
    return Case(name=name, requests=[produce(topic, data, partition=partition)], differs=differs)


def sequence(name: str, *steps: tuple[int, int, int], partition: int = 0, differs: str = "") -> Case:
    """A producer's batches: epoch, first sequence, number of records."""
    producer_id = next(_producers)
    requests = [
        produce(
            "sequences",
            batch(*[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=first),
            partition=partition,
        )
        for epoch, first, count in steps
    ]
    return Case(name=name, requests=requests, differs=differs)


GARBAGE: Final = bytes(range(64))
CASES: Final = [
    bad("a good batch", batch()),
    bad("wrong CRC", flipped(batch(), HEADER_SIZE + 3)),
    bad("wrong CRC in the attributes", flipped(batch(), 22)),
    bad("magic 0", legacy(0)),
    bad("magic 1", legacy(1)),
    bad("magic 3", lying(magic=3)),
    bad("magic -1", lying(magic=-1)),
    bad("two batches", batch() * 2),
    bad("no bytes", b""),
    Case(
        name="no records field", requests=[produce("bad", None, kafka_is_silent=True)], differs="Kafka does not answer"
    ),
    bad("a batch without records", batch(change=lambda header: header._replace(record_count=0))),
    bad("a header alone, no records", with_records()),
    bad("more records promised", lying(record_count=3)),
    bad("more records and offsets promised", lying(record_count=3, last_offset_delta=2), differs=WE_SAY_WHICH),
    bad("fewer records promised", lying(record_count=1)),
    bad("fewer records and offsets promised", lying(record_count=1, last_offset_delta=0), differs=WE_SAY_WHICH),
    bad("a negative count", lying(record_count=-1)),
    bad("a huge count", lying(record_count=2**31 - 1, last_offset_delta=2**31 - 2), differs=WE_SAY_WHICH),
    bad("last offset too high", lying(last_offset_delta=5)),
    bad("last offset too low", lying(last_offset_delta=0)),
    bad("last offset negative", lying(last_offset_delta=-1)),
    bad("cut in the records", batch()[:-3]),
    bad("cut in the header", batch()[:40]),
    bad("cut in the length", batch()[:10]),
    bad("trailing bytes", batch() + b"more", partition=ASIDE, differs="Kafka does not look at less than a header"),
    bad("trailing zeros", batch() + bytes(100), differs="Kafka says that the second batch is corrupt"),
    bad("length too short for a header", struct.pack(">qi", 0, 10) + batch()[12:]),
    bad("a negative length", struct.pack(">qi", 0, -1) + batch()[12:]),
    bad("a base offset of its own", lying(base_offset=17)),
    bad("a leader epoch of its own", lying(partition_leader_epoch=99)),
    bad(
        "offset deltas that jump",
        with_records(encode_record(0, 0, None, b"a", ()), encode_record(0, 2, None, b"b", ())),
        partition=3,
        differs=WRONG_OFFSETS,
    ),
    bad(
        "offset deltas that go back",
        with_records(encode_record(0, 1, None, b"a", ()), encode_record(0, 0, None, b"b", ())),
        partition=3,
        differs=WRONG_OFFSETS,
    ),
    bad(
        "offset deltas that repeat",
        with_records(encode_record(0, 0, None, b"a", ()), encode_record(0, 0, None, b"b", ())),
        partition=3,
        differs=WRONG_OFFSETS,
    ),
    bad("a record that is cut", with_records(encode_record(0, 0, None, b"abcdef", ())[:-2]), differs=WE_SAY_WHICH),
    bad("a record of no bytes", with_records(b"\x00"), differs=WE_SAY_WHICH),
    bad("a record of a negative size", with_records(b"\x01"), differs=WE_SAY_WHICH),
    bad("a record of garbage", with_records(GARBAGE), differs=WE_SAY_WHICH),
    bad("a control batch", batch(is_control=True, producer_id=9, producer_epoch=0, base_sequence=0)),
    bad("a control batch without a producer", batch(is_control=True)),
    bad(
        "a transactional batch without a transaction",
        batch(is_transactional=True, producer_id=9, producer_epoch=0, base_sequence=0),
        differs=NO_TRANSACTIONS,
    ),
    bad("a transactional batch without a producer", batch(is_transactional=True), differs=NO_TRANSACTIONS),
    bad("the bit of a delete horizon", lying(attributes=0x40)),
    bad("unused bits of attributes", lying(attributes=0x100)),
    bad("codec 5", lying(attributes=5), differs=KAFKA_FAILS),
    bad("codec 7", lying(attributes=7), differs=KAFKA_FAILS),
    *(
        bad(f"garbage as {codec.name.lower()}", compressed(codec, GARBAGE), differs=KAFKA_FAILS)
        for codec in Codec
        if codec
    ),
    *(
        bad(
            f"nothing as {codec.name.lower()}",
            compressed(codec, b""),
            differs="" if codec is Codec.ZSTD else KAFKA_FAILS,
        )
        for codec in Codec
        if codec
    ),
    *(
        bad(
            f"garbage as {codec.name.lower()}, checked",
            compressed(codec, GARBAGE),
            topic="compacted",
            differs=KAFKA_FAILS,
        )
        for codec in Codec
        if codec
    ),
    bad(
        "a client's append time",
        lying(attributes=LOG_APPEND_TIME),
        partition=ASIDE,
        differs="Kafka lets it pass where records keep their own time",
    ),
    bad("no key, compacted", batch(key=None), topic="compacted"),
    bad("no key, compacted, compressed", batch(key=None, codec=Codec.LZ4), topic="compacted"),
    bad("a key, compacted", batch(), topic="compacted"),
    bad("a tombstone, compacted", batch(None), topic="compacted"),
    bad("too large", batch(b"x" * 1000), topic="small"),
    bad("as large as may be", batch(b"x" * (1000 - len(batch(b"x" * 900)) + 900)), topic="small"),
    bad("a byte too large", batch(b"x" * (1001 - len(batch(b"x" * 900)) + 900)), topic="small"),
    bad("compressed to less than the limit", batch(b"x" * 5000, codec=Codec.GZIP), topic="small"),
    bad("from the future", batch(at=FAR)),
    bad("from the future by its header only", lying(max_timestamp=FAR)),
    # One record: a greatest time of 0 is none for us, so a segment that begins with it rolls by its age (decision 5).
    bad("without a time", batch(b"v", at=-1)),
    bad("a negative time", batch(at=-1000)),
    bad("a time of 0", batch(at=0)),
    bad("a greatest time that is too low", lying(max_timestamp=NOW - 5)),
    bad("too old", batch(), topic="old-refused"),
    bad("an unknown topic", batch(), topic="nobody-made-it"),
    bad("an illegal topic", batch(), topic="a b/c"),
    bad("no topic's name", batch(), topic=""),
    Case(name="an unknown partition", requests=[produce("bad", batch(), partition=PARTITIONS)]),
    Case(name="a negative partition", requests=[produce("bad", batch(), partition=-1)]),
    Case(name="acks 2", requests=[produce("bad", batch(), acks=2)]),
    Case(name="acks -2", requests=[produce("bad", batch(), acks=-2)]),
    Case(name="acks 1", requests=[produce("bad", batch(), acks=1)]),
    *(Case(name=f"version {version}", requests=[produce("bad", batch(), version=version)]) for version in range(3, 13)),
    *(
        Case(name=f"zstd in version {version}", requests=[produce("bad", batch(codec=Codec.ZSTD), version=version)])
        for version in (3, 6, 7)
    ),
    sequence("in order", (0, 0, 2), (0, 2, 3), (0, 5, 1)),
    sequence("a duplicate of the last", (0, 0, 2), (0, 0, 2), (0, 2, 1), differs=FIRST_TIME),
    sequence("a duplicate of the fifth last", *[(0, n, 1) for n in range(6)], (0, 1, 1), differs=FIRST_TIME),
    sequence("a duplicate of the sixth last", *[(0, n, 1) for n in range(6)], (0, 0, 1)),
    sequence("a duplicate of another length", (0, 0, 3), (0, 0, 2)),
    sequence("a gap", (0, 0, 2), (0, 5, 1)),
    sequence("an overlap", (0, 0, 2), (0, 2, 2), (0, 3, 2)),
    sequence("a first sequence that is not 0", (0, 7, 1), (0, 8, 1)),
    sequence("an old epoch", (3, 0, 1), (2, 1, 1)),
    sequence("a new epoch", (0, 0, 1), (1, 0, 1), (0, 1, 1)),
    sequence("a new epoch that goes on", (0, 0, 2), (1, 2, 1)),
    sequence("sequences that wrap", (0, 2**31 - 2, 2), (0, 0, 1), (0, 2**31 - 2, 2), differs=FIRST_TIME),
    sequence("sequences that wrap within a batch", (0, 2**31 - 2, 3), (0, 1, 1)),
    sequence("a sequence without an epoch", (-1, 0, 1), partition=ASIDE, differs=NO_EPOCH),
    sequence("a producer without a sequence", (0, -1, 1)),
    sequence("a negative sequence", (0, -5, 1)),
    sequence("a negative epoch", (-2, 0, 1), differs=NO_EPOCH),
    bad("a negative producer", batch(producer_id=-2, producer_epoch=0, base_sequence=0)),
    bad("a sequence without a producer", lying(base_sequence=0)),
    bad("an epoch without a producer", lying(producer_epoch=0)),
]


@pytest.fixture(scope="module", autouse=True)
def topics(pair: BrokerPair) -> None:
    """The topics of this table."""
    pair.create(TOPICS, PARTITIONS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_batch_has_the_same_fate(pair: BrokerPair, case: Case):
    """M1"""
    check(pair, case)


def test_accepted_batches_have_the_same_bytes_on_disk(pair: BrokerPair):
    """M1: after whichever of the cases above came before, headers that were mended included."""
    for topic in ("bad", "compacted", "small", "sequences"):
        pair.agree(produce(topic, batch()))
        ours, kafkas = pair.partition_files(topic, 0, ".log")
        assert sorted(ours) == sorted(kafkas), "they rolled at other batches"
        differing = [each for each in zip(batches(ours), batches(kafkas), strict=True) if each[0] != each[1]]
        assert differing == [], topic


def batches(files: dict[str, bytes]) -> list[tuple[BatchHeader, bytes]]:
    """Return the header and the records of each batch of a log, so that a difference shows its fields."""
    data = b"".join(files[name] for name in sorted(files))
    return [(header, data[start + HEADER_SIZE : start + header.size]) for start, header in iterate_batches(data)]


def test_segments_that_rolled_have_the_same_indexes_and_producers(pair: BrokerPair):
    """M1: three segments of batches of all sizes and codecs, idempotent ones among them."""
    for number in range(600):
        codec = list(Codec)[number % len(Codec)]
        values = [random.Random(number).randbytes(600 * (1 + number % 7)) for _ in range(1 + number % 9)]
        producer = (
            {"producer_id": 77, "producer_epoch": 1, "base_sequence": 9 * (number // 3)} if number % 3 == 0 else {}
        )
        if producer:
            values = (values * 9)[:9]
        # From the future, or the producer would expire.
        data = batch(*values, at=FAR + 1000 * (number - 20 * (number % 5)), codec=codec, **producer)
        answer = pair.agree(produce("rolled", data))
        assert "'error_code': 'none'" in str(answer), answer
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        _, kafkas = pair.partition_files("rolled", 0, suffix)
        # Kafka's index of the active segment is as long as it may become; ours is written when a segment is synced.
        names = sorted(kafkas) if suffix in {".log", ".snapshot"} else sorted(kafkas)[:-1]
        assert len(names) >= 2
        ours = eventually(lambda suffix=suffix, names=names: files_of("rolled", names, suffix, pair), what=suffix)
        assert ours == {name: kafkas[name] for name in names}, suffix

    epochs = eventually(lambda: pair.partition_files("rolled", 0, "leader-epoch-checkpoint")[0], what="epochs")
    assert epochs == pair.partition_files("rolled", 0, "leader-epoch-checkpoint")[1]
    ours, kafkas = (
        re.sub(rb"(?<=topic_id: ).*", b"an id", files["partition.metadata"])
        for files in pair.partition_files("rolled", 0, "partition.metadata")
    )
    assert ours == kafkas


def files_of(topic: str, names: Sequence[str], suffix: str, pair: BrokerPair) -> dict[str, bytes]:
    """Those of ours, once they are all there."""
    ours, _ = pair.partition_files(topic, 0, suffix)
    return {name: ours[name] for name in names} if ours.keys() >= set(names) else {}
