"""Topics that pack batches anew, Kafka's and ours: the same answers, and the same headers and records on disk (M1)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, produce
from odradek.protocol.batches.compression import Codec, compress
from odradek.protocol.batches.record_batch import HEADER_SIZE, iterate_batches, read_header, write_header
from odradek.protocol.batches.records import Record, decode_records, encode_batch, encode_record

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_790_000_000_000
KINDS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    **{f"packed-{kind}": {"compression.type": kind} for kind in KINDS},
    "packed-gzip-9": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "packed-lz4-12": {"compression.type": "lz4", "compression.lz4.level": "12"},
    "packed-zstd-19": {"compression.type": "zstd", "compression.zstd.level": "19"},
    "packed-small": {"compression.type": "uncompressed", "max.message.bytes": "600"},
    "packed-compact": {"compression.type": "lz4", "cleanup.policy": "compact"},
}
RECORDS: Final = [
    (NOW, b"k", b"v", ()),
    (NOW - 5, b"", b"", ()),
    (NOW + 7, b"tombstone", None, ()),
    (-1, b"no time", b"v", [("h", None), ("h", b"\xff")]),
    (NOW - 1000, b"large", b"again and again " * 300, [("n\u00e9", b"x")]),
]


def stored(data: Mapping[str, bytes]) -> Iterator[tuple[Any, list[Record]]]:
    """`(header but for its size and CRC, records)` of all batches of a partition."""
    for name in sorted(data):
        for position, header in iterate_batches(data[name]):
            batch = memoryview(data[name])[position : position + header.size]
            yield header._replace(batch_length=0, crc=0), decode_records(batch)


def renumbered(codec: Codec) -> bytes:
    """A compressed batch whose records are not numbered 0, 1, 2."""
    section = b"".join(encode_record(number, delta, b"k", b"%d" % delta, ()) for number, delta in enumerate((4, 2, 2)))
    batch = bytearray(HEADER_SIZE) + compress(codec, section)
    good = read_header(encode_batch([(NOW, b"k", b"v", ())] * 3))
    write_header(batch, good._replace(attributes=codec, max_timestamp=NOW + 2))
    return bytes(batch)


def batches(codec: Codec, topic: str) -> Iterator[bytes]:
    yield bytes(encode_batch(RECORDS, codec=codec))
    yield bytes(encode_batch(RECORDS[:2], codec=codec, producer_id=4000 + codec, producer_epoch=1, base_sequence=0))
    lying = encode_batch(RECORDS, codec=codec)
    write_header(lying, read_header(lying)._replace(max_timestamp=NOW + 50))
    yield bytes(lying)
    # Kafka fails at such records, UNKNOWN_SERVER_ERROR, in a batch that is in the topic's codec already.
    target = TOPICS[topic]["compression.type"]
    if codec != Codec.NONE and target not in {codec.name.lower(), "producer"}:
        yield renumbered(codec)


@pytest.fixture(scope="module", autouse=True)
def topics(pair: BrokerPair) -> None:
    """The topics of these tests, with a partition for each codec."""
    pair.create(TOPICS, len(Codec))


@pytest.mark.parametrize("topic", TOPICS)
def test_recompressed_batches_equal_kafkas(pair: BrokerPair, topic: str):
    """M1"""
    for codec in Codec:
        for batch in batches(codec, topic):
            ours, kafkas = pair.ask(produce(topic, batch, partition=int(codec)))
            assert ours == kafkas
        mine, theirs = pair.partition_files(topic, int(codec), ".log")
        assert list(stored(mine)) == list(stored(theirs))
