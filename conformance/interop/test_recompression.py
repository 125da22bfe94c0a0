"""A topic's `compression.type`: what any client writes in any codec is stored in the topic's and read by all (M1)."""

import json
import subprocess
import sys
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.interop.existing_clients import CLIENTS, CODECS, DEADLINE_S, Client, Message, batches_of
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

NOW_MS: Final = 1_790_000_000_000
KINDS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
NAMES: Final = [
    pytest.param(client, id=client.name, marks=[pytest.mark.needs("kcat")] if client.name == "kcat" else [])
    for client in CLIENTS
]
READERS: Final[dict[Client, tuple[Client, ...]]] = {CLIENTS[0]: CLIENTS[1:3], CLIENTS[1]: CLIENTS[:1]}
"""Each client reads each kind once: the broker encodes it, whoever writes."""


def create(servers: str, topic: str, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(DEADLINE_S)


def some_messages(writer: Client) -> list[Message]:
    """A few of every kind in each of five partitions: one for each codec."""
    contents: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (b"", b"", ()),
        (b"tombstone", None, ()),
        (bytes(range(256)), bytes(range(256)) * 3, ()),
        (b"headers", b"v", (("twice", b"1"), ("twice", b"2"), ("null", None))),
        (b"large", b"the same words again and again " * 4000, ()),
    ]
    wrote = [
        Message(partition=partition, key=key, value=value, headers=headers, timestamp_ms=NOW_MS - index * 1000)
        for partition in range(len(CODECS))
        for index, (key, value, headers) in enumerate(contents)
    ]
    return [message for message in wrote if writer.can_write(message)]


@pytest.mark.parametrize("writer", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_codec_are_stored_in_the_topic_s_and_read_by_others(
    served: ServedBroker, topic: str, writer: Client, kind: str
) -> None:
    servers = served.bootstrap_servers
    create(servers, topic, len(CODECS), {"compression.type": kind, "cleanup.policy": "compact"})
    wrote = some_messages(writer)
    for partition, codec in enumerate(CODECS):
        writer.write(servers, topic, [message for message in wrote if message.partition == partition], codec)
    for partition, codec in enumerate(CODECS):
        stored = {header.codec.name.lower() for header in batches_of(served.data_dir, topic, partition)}
        if kind == "producer":
            assert stored <= {codec, "none"}, "some clients leave what does not shrink as it is"
        else:
            assert stored == {"none" if kind == "uncompressed" else kind}
    for reader in READERS.get(writer, ()):
        read = reader.read(servers, topic, len(CODECS), len(wrote))
        assert [writer.shown(message) for message in read] == [writer.shown(message) for message in wrote]


@pytest.mark.parametrize(("codec", "levels"), [("gzip", ("1", "9")), ("lz4", ("9", "12")), ("zstd", ("-20", "19"))])
def test_the_compression_level_is_the_topic_s_and_log_dump_names_the_codec(
    served: ServedBroker, topic: str, codec: str, levels: tuple[str, str]
) -> None:
    sizes = []
    for level in levels:
        name = f"{topic}.{level}"
        create(served.bootstrap_servers, name, 1, {"compression.type": codec, f"compression.{codec}.level": level})
        text = b"".join(b"%d flights leave gate %d; " % (number * 31 % 97, number) for number in range(1000))
        CLIENTS[0].write(
            served.bootstrap_servers, name, [Message(partition=0, key=None, value=text, timestamp_ms=NOW_MS)], "none"
        )
        command = [sys.executable, "-m", "odradek", "log", "dump", "--json", str(served.data_dir / f"{name}-0")]
        lines = subprocess.run(command, check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE).stdout.splitlines()
        batches = [line for line in map(json.loads, lines) if "compress_codec" in line]
        assert [batch["compress_codec"].lower() for batch in batches] == [codec]
        sizes.append(batches[0]["size"])
    assert sizes[0] > sizes[1]
