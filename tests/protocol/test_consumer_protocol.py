"""Subscriptions and assignments of classic groups, against kio's schemas and two clients' codecs."""

import io

import aiokafka.coordinator.protocol as aiokafka_protocol
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema import consumer_protocol_assignment as kio_assignment
from kio.schema import consumer_protocol_subscription as kio_subscription
from kio.serial import entity_reader, entity_writer

from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.protocol.errors import MalformedMessageError

OWNED = (TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("é", 1))
GROUPED = [("a", [0, 7]), ("é", [1])]
FULL = Subscription(topics=("a", "é"), user_data=b"data", owned_partitions=OWNED, generation_id=5, rack_id="rack")
VERSIONS = range(4)


def kio_type(package, version, name):
    module = __import__(f"{package.__name__}.v{version}.data", fromlist=["data"])
    return getattr(module, name), module


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_are_those_of_the_schema(version):
    kind, module = kio_type(kio_subscription, version, "ConsumerProtocolSubscription")
    arguments = {"topics": FULL.topics, "user_data": FULL.user_data}
    if version >= 1:
        arguments["owned_partitions"] = tuple(
            module.TopicPartition(topic=topic, partitions=tuple(numbers)) for topic, numbers in GROUPED
        )
    if version >= 2:
        arguments["generation_id"] = 5
    if version >= 3:
        arguments["rack_id"] = "rack"
    stream = io.BytesIO()
    entity_writer(kind)(stream, kind(**arguments))
    encoded = encode_subscription(FULL, version)
    assert encoded == version.to_bytes(2, "big") + stream.getvalue()
    assert decode_subscription(encoded) == Subscription(
        topics=FULL.topics,
        user_data=FULL.user_data,
        owned_partitions=OWNED if version >= 1 else (),
        generation_id=5 if version >= 2 else -1,
        rack_id="rack" if version >= 3 else None,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_assignments_are_those_of_the_schema(version):
    kind, module = kio_type(kio_assignment, version, "ConsumerProtocolAssignment")
    encoded = encode_assignment(Assignment(partitions=OWNED, user_data=b"data"), version)
    assert entity_reader(kind)(encoded, 2) == (
        kind(
            assigned_partitions=tuple(
                module.TopicPartition(topic=topic, partitions=tuple(numbers)) for topic, numbers in GROUPED
            ),
            user_data=b"data",
        ),
        len(encoded) - 2,
    )
    assert decode_assignment(memoryview(encoded)) == Assignment(partitions=OWNED, user_data=b"data")


def test_aiokafka_and_this_codec_decode_each_other():
    metadata = aiokafka_protocol.ConsumerProtocolMemberMetadata
    theirs = metadata(0, ["a", "é"], b"data").encode()
    assert decode_subscription(theirs) == Subscription(topics=("a", "é"), user_data=b"data")
    assert metadata.decode(encode_subscription(FULL)).subscription == ["a", "é"]
    assignment = aiokafka_protocol.ConsumerProtocolMemberAssignment
    assert decode_assignment(assignment(0, GROUPED, b"").encode()) == Assignment(partitions=OWNED, user_data=b"")
    assert assignment.decode(encode_assignment(Assignment(partitions=OWNED))).assignment == GROUPED


def test_a_later_version_is_decoded_as_far_as_it_is_known():
    later = b"\x00\x09" + encode_subscription(FULL)[2:] + b"more of it"
    assert decode_subscription(later) == FULL
    assert decode_assignment(b"\x00\x09" + encode_assignment(Assignment(partitions=OWNED))[2:] + b"more") == Assignment(
        partitions=OWNED
    )


def test_empty_bytes_are_no_partitions():
    assert decode_assignment(b"") == Assignment(partitions=())


def test_partitions_are_grouped_by_topic_whatever_their_order():
    assert encode_assignment(Assignment(partitions=OWNED[::-1])) == encode_assignment(Assignment(partitions=OWNED))


@given(data=st.binary(max_size=60), version=st.integers(-1, 4))
def test_random_bytes_are_decoded_or_malformed(data, version):
    frame = version.to_bytes(2, "big", signed=True) + data
    for decode, kind in ((decode_subscription, Subscription), (decode_assignment, Assignment)):
        try:
            decoded = decode(frame)
        except MalformedMessageError:
            continue
        assert type(decoded) is kind
        assert version >= 0


@pytest.mark.parametrize("cut", range(1, len(encode_subscription(FULL))))
def test_a_truncated_subscription_is_malformed(cut):
    with pytest.raises(MalformedMessageError):
        decode_subscription(encode_subscription(FULL)[:-cut])
