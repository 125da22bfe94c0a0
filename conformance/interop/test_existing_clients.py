"""Records of every client are read by every other, byte for byte: keys, values, headers, timestamps, codecs (M1)."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from conformance.interop.existing_clients import CLIENTS, CODECS, Client, Message, batches_of
from conformance.interop.odradek_client import Odradek
from odradek.protocol.batches.compression import Codec
from odradek.testing.servers.odradek_process import ServedBroker

NOW_MS: Final = 1_790_000_000_000
ALL: Final[Sequence[Client]] = (*CLIENTS, Odradek())

NAMES: Final = [
    pytest.param(client, id=client.name, marks=[pytest.mark.needs("kcat")] if client.name == "kcat" else [])
    for client in ALL
]


def messages() -> list[Message]:
    """Everything that a record may be, in each of five partitions: one for each codec."""
    contents: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"", b"", ()),
        (b"tombstone", None, ()),
        (bytes(range(256)), bytes(range(256)) * 3, ()),
        (b"headers", b"v", (("twice", b"1"), ("twice", b"2"), ("s\u00ed", b"yes"))),
        (b"empty header", b"v", (("empty", b""),)),
        (b"null header", b"v", (("null", None),)),
        (b"binary header", b"v", (("bytes", b"\x01\x02\xfe\xff"),)),
        (b"large", b"the same words again and again " * 6000, ()),
        (b"noise", random.Random(1).randbytes(60_000), ()),
    ]
    return [
        Message(partition=partition, key=key, value=value, headers=headers, timestamp_ms=NOW_MS + index * 1000)
        for partition in range(len(CODECS))
        for index, (key, value, headers) in enumerate(contents)
    ]


@cache
def written_by(writer: Client, servers: str) -> tuple[str, list[Message]]:
    """A topic that `writer` has filled, and what it wrote there; filled once."""
    topic = f"written-by-{writer.name}"
    CLIENTS[0].create(servers, topic, len(CODECS))
    wrote = [message for message in messages() if writer.can_write(message)]
    for partition, codec in enumerate(CODECS):
        writer.write(servers, topic, [message for message in wrote if message.partition == partition], codec)
    return topic, wrote


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_records_of_one_client_are_read_by_every_other(servers: str, writer: Client, reader: Client):
    topic, wrote = written_by(writer, servers)
    read = reader.read(servers, topic, len(CODECS), len(wrote))
    assert [writer.shown(reader.shown(message)) for message in read] == [
        reader.shown(writer.shown(message)) for message in wrote
    ]


@pytest.mark.parametrize("writer", NAMES)
def test_batches_of_compressing_clients_are_compressed(served: ServedBroker, writer: Client):
    """Some librdkafka releases silently stop compressing when a broker's Produce versions displease them."""
    topic = f"compressed-by-{writer.name}"
    CLIENTS[0].create(served.bootstrap_servers, topic, len(CODECS))
    text = Message(partition=0, key=None, value=b"again and " * 3000, timestamp_ms=NOW_MS)
    for partition, codec in enumerate(CODECS):
        writer.write(served.bootstrap_servers, topic, [replace(text, partition=partition)], codec)
    for partition, codec in enumerate(CODECS):
        headers = batches_of(served.data_dir, topic, partition)
        assert {header.codec for header in headers} == {Codec[codec.upper()]}
        assert (sum(header.size for header in headers) < 3000) is (codec != "none")
