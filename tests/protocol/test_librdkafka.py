"""Batches of librdkafka are decoded here and the other way round, through its own mock broker (M1).

The mock stores batches unchanged, so that no other code of this project touches them.
"""

import contextlib
import socket
import struct

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import iterate_batches, verify_crc
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.messages.fetch import decode_fetch_response
from odradek.protocol.messages.headers import decode_response_header, encode_request_header
from odradek.protocol.messages.message_codec import encode_request
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_response, encode_produce_request

COUNT = 3000
TIMEOUT_S = 30
RECORDS = [
    (
        1_700_000_000_000 + number,
        None if number % 7 == 0 else b"key %d" % number,
        b"value %d " % number * 10,
        (("name", b"content %d" % number), ("name", None)) if number % 5 == 0 else (),
    )
    for number in range(COUNT)
]


@pytest.fixture(scope="module")
def mock_cluster():
    """A producer whose librdkafka runs a mock cluster, and where that listens."""
    producer = Producer({"test.mock.num.brokers": 1, "security.protocol": "plaintext"})
    (broker,) = producer.list_topics(timeout=TIMEOUT_S).brokers.values()
    yield broker.host, broker.port
    producer.flush(TIMEOUT_S)


def ask(address, api, version, body):
    """Send one request, and give the response's frame and where its body starts."""
    header = encode_request_header(api, version, 1, "test")
    with contextlib.closing(socket.create_connection(address, timeout=TIMEOUT_S)) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            frame = stream.read(size)
    return frame, decode_response_header(api, version, frame)[1]


def fetch(address, topic, offset):
    message = {
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "topics": [
            {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 50 << 20}]}
        ],
    }
    frame, start = ask(address, ApiKey.FETCH, 11, encode_request(ApiKey.FETCH, 11, message))
    ((_, _, (partition,)),) = decode_fetch_response(11, frame, start).topics
    assert partition.error_code == 0
    return partition


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_librdkafka_are_decoded_here(mock_cluster, codec):
    topic = f"from-librdkafka-{codec.name.lower()}"
    producer = Producer(
        {
            "bootstrap.servers": f"{mock_cluster[0]}:{mock_cluster[1]}",
            "compression.type": codec.name.lower(),
            "linger.ms": 100,
            "batch.size": 64 << 10,
        }
    )
    for timestamp, key, value, headers in RECORDS:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(TIMEOUT_S) == 0
    records = []
    codecs = set()
    while len(records) < COUNT:
        data = fetch(mock_cluster, topic, len(records)).records
        for position, header in iterate_batches(data):
            assert verify_crc(data, position, header)
            codecs.add(header.codec)
            records += decode_records(data, position)
    assert [record[1:] for record in records] == RECORDS
    assert [record.offset for record in records] == list(range(COUNT))
    assert codec in codecs


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_decodes_batches_encoded_here(mock_cluster, codec):
    topic = f"to-librdkafka-{codec.name.lower()}"
    ask(mock_cluster, ApiKey.METADATA, 4, encode_request(ApiKey.METADATA, 4, {"topics": [{"name": topic}]}))
    for start in (0, 1000):
        batch = encode_batch(RECORDS[start:] if start else RECORDS[:1000], codec=codec)
        body = encode_produce_request(7, [ProduceTopic(topic, None, [(0, batch)])], acks=-1, timeout_ms=1000)
        frame, position = ask(mock_cluster, ApiKey.PRODUCE, 7, b"".join(body))
        ((_, _, (answer,)),) = decode_produce_response(7, frame, position).topics
        assert (answer.error_code, answer.base_offset) == (0, start)
    consumer = Consumer(
        {
            "bootstrap.servers": f"{mock_cluster[0]}:{mock_cluster[1]}",
            "group.id": topic,
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(COUNT, TIMEOUT_S)
    assert not [message.error() for message in messages if message.error()]
    assert [
        (message.timestamp()[1], message.key(), message.value(), tuple(message.headers() or ())) for message in messages
    ] == RECORDS
