"""The nodes' JSON compared with the table of SPEC 8 (M9), and decoded from arbitrary content."""

import json
import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    BrokerDirectoriesNode,
    BrokerNode,
    ClusterIdNode,
    ClusterSecretNode,
    ConfigNode,
    ConsumerNode,
    ControllerNode,
    DeleteTopicsNode,
    KnownDirectory,
    LogDirEventNode,
    PartitionStateNode,
    PreferredReplicaElectionNode,
    ProducerIdBlockNode,
    ReassignPartitionsNode,
    TopicNode,
    decode_integer,
    decode_topic_id,
    encode_integer,
    encode_topic_id,
)
from odradek.model import TopicPartition
from odradek.runtime import new_id, uuid4

ONE = TopicPartition("flights", 1)
TOPIC_ID = UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
NODES = [
    (
        paths.broker(7),
        "/brokers/ids/7",
        BrokerNode(endpoints=(ListenerAddress("PLAINTEXT", "host", 9092),), timestamp_ms=5, rack="a"),
        {
            "version": 5,
            "host": "host",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "5",
            "endpoints": ["PLAINTEXT://host:9092"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
            "rack": "a",
        },
    ),
    (
        paths.topic("flights"),
        "/brokers/topics/flights",
        TopicNode(replicas={0: (1, 2), 10: (2, 3)}, topic_id=TOPIC_ID, adding_replicas={0: (2,)}),
        {
            "version": 3,
            "partitions": {"0": [1, 2], "10": [2, 3]},
            "adding_replicas": {"0": [2]},
            "removing_replicas": {},
            "topic_id": "a6e4EJ2tQdGAtADAT9QwyA",
        },
    ),
    (
        paths.partition_state(ONE),
        "/brokers/topics/flights/partitions/1/state",
        PartitionStateNode(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=3),
        {"controller_epoch": 3, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1, 2]},
    ),
    (
        paths.CONTROLLER,
        "/controller",
        ControllerNode(broker_id=2, timestamp_ms=1),
        {"version": 1, "brokerid": 2, "timestamp": "1"},
    ),
    (
        paths.consumer_id("group", "consumer"),
        "/consumers/group/ids/consumer",
        ConsumerNode(subscription={"flights": 2}, pattern="white_list", timestamp_ms=3),
        {"version": 1, "subscription": {"flights": 2}, "pattern": "white_list", "timestamp": "3"},
    ),
    (
        paths.REASSIGN_PARTITIONS,
        "/admin/reassign_partitions",
        ReassignPartitionsNode(replicas={ONE: (3, 1)}),
        {"version": 1, "partitions": [{"topic": "flights", "partition": 1, "replicas": [3, 1]}]},
    ),
    (
        paths.PREFERRED_REPLICA_ELECTION,
        "/admin/preferred_replica_election",
        PreferredReplicaElectionNode(partitions=(ONE,)),
        {"version": 1, "partitions": [{"topic": "flights", "partition": 1}]},
    ),
    (
        paths.DELETE_TOPICS,
        "/admin/delete_topics",
        DeleteTopicsNode(topics=("flights",)),
        {"version": 1, "topics": ["flights"]},
    ),
    (
        paths.log_dir_event() + "0000000003",
        "/log_dir_event_notification/log_dir_event_0000000003",
        LogDirEventNode(broker_id=2),
        {"version": 1, "broker": 2, "event": 1},
    ),
    (
        paths.topic_config("flights"),
        "/config/topics/flights",
        ConfigNode(config={"retention.ms": "5"}),
        {"version": 1, "config": {"retention.ms": "5"}},
    ),
    (
        paths.broker_directories(2),
        "/brokers/log_dirs/2",
        BrokerDirectoriesNode(
            directories={
                "aaa": KnownDirectory(path="/a"),
                "bbb": KnownDirectory(path="/b", is_forgotten=True, is_old=True),
            },
            accepted=frozenset({ONE}),
        ),
        {
            "version": 1,
            "directories": {"aaa": {"path": "/a"}, "bbb": {"path": "/b", "forgotten": True, "old": True}},
            "accepted": {"flights": [1]},
        },
    ),
    (
        paths.CLUSTER_SECRET,
        "/cluster/secret",
        ClusterSecretNode(secret=b"\x01\xff"),
        {"version": 1, "secret": "01ff", "requires_proofs": 1},
    ),
    (paths.CLUSTER_ID, "/cluster/id", ClusterIdNode(cluster_id="abc"), {"version": "1", "id": "abc"}),
    (
        paths.LATEST_PRODUCER_ID_BLOCK,
        "/latest_producer_id_block",
        ProducerIdBlockNode(broker_id=1, first=1000, last=1999),
        {"version": 1, "broker": 1, "block_start": "1000", "block_end": "1999"},
    ),
]
KINDS = [type(node) for _, _, node, _ in NODES]


@pytest.mark.parametrize(("path", "expected", "node", "fields"), NODES, ids=[kind.__name__ for kind in KINDS])
def test_nodes_have_the_paths_and_contents_of_the_specification(path, expected, node, fields) -> None:
    """M9."""
    assert path == expected
    assert json.loads(node.encode()) == fields
    decoded = type(node).decode(path, node.encode())
    assert decoded.encode() == node.encode()


@pytest.mark.parametrize(("kind", "fields"), [(type(node), fields) for _, _, node, fields in NODES])
def test_a_field_that_is_not_known_is_ignored(kind, fields) -> None:
    of_a_later_version = kind.decode("/node", json.dumps(fields | {"since": [1]}).encode())
    assert of_a_later_version == kind.decode("/node", json.dumps(fields).encode())


def test_other_paths_are_those_of_the_specification() -> None:
    """M9."""
    assert paths.consumer_owner("group", ONE) == "/consumers/group/owners/flights/1"
    assert paths.consumer_offset("group", ONE) == "/consumers/group/offsets/flights/1"
    assert paths.delete_topic("flights") == "/admin/delete_topics/flights"
    assert paths.CONTROLLER_EPOCH == "/controller_epoch"
    assert paths.broker_config(None) == "/config/brokers/<default>"
    for path in paths.PERSISTENT_ROOTS:
        earlier = paths.PERSISTENT_ROOTS[: paths.PERSISTENT_ROOTS.index(path)]
        assert paths.parent(path) in {"/", *earlier}, path
    assert (paths.parent("/a/b"), paths.parent("/a"), paths.parent("/")) == ("/a", "/", "/")
    assert paths.name_of("/a/b") == "b"


def test_nodes_of_kafka_s_first_versions_are_read() -> None:
    """M9: version 1 of the table, as old tools write it."""
    broker = b'{"jmx_port":-1,"timestamp":"1428512949385","host":"localhost","version":1,"port":9092}'
    decoded = BrokerNode.decode("/brokers/ids/0", broker)
    assert decoded.endpoints == (ListenerAddress("PLAINTEXT", "localhost", 9092),)
    assert decoded.timestamp_ms == 1428512949385
    topic = TopicNode.decode("/brokers/topics/t", b'{"version":1,"partitions":{"1":[0],"0":[1]}}')
    assert topic == TopicNode(replicas={0: (1,), 1: (0,)})
    assert json.loads(topic.encode())["version"] == 2
    config = ConfigNode.decode("/config/topics/t", b'{"version":1,"config":{"retention.ms":5,"preallocate":true}}')
    assert config.config == {"retention.ms": "5", "preallocate": "true"}


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (TopicNode, b"", "not JSON"),
        (TopicNode, b"\xff\xfe", "not JSON"),
        (TopicNode, b"[" * 100_000, "not JSON"),
        (TopicNode, b"[1]", "not a JSON object"),
        (TopicNode, b'{"version":1}', "partitions is not an object"),
        (TopicNode, b'{"partitions":{"x":[1]}}', "an object of partitions"),
        (TopicNode, b'{"partitions":{"0":["1"]}}', "0 is not a list of integers"),
        (TopicNode, b'{"partitions":{},"topic_id":"short"}', "not a topic id"),
        (PartitionStateNode, b'{"leader":true,"leader_epoch":0,"isr":[],"controller_epoch":1}', "leader is not"),
        (PartitionStateNode, b'{"leader":1,"leader_epoch":0,"isr":[null],"controller_epoch":1}', "isr is not"),
        (BrokerNode, b'{"endpoints":["nowhere"]}', "HOST:PORT"),
        (BrokerNode, b'{"host":1}', "host is not a string"),
        (ConsumerNode, b'{"pattern":"regex","subscription":{}}', "pattern is 'regex'"),
        (ConsumerNode, b'{"pattern":"static","subscription":{"t":"1"}}', "numbers of threads"),
        (ReassignPartitionsNode, b'{"partitions":[{"topic":"t"}]}', "partition is not an integer"),
        (ReassignPartitionsNode, b'{"partitions":[[]]}', "not a JSON object"),
        (ReassignPartitionsNode, b"{}", "partitions is not a list"),
    ],
)
def test_the_error_names_a_broken_node(kind, data, said) -> None:
    with pytest.raises(BrokenNodeError, match=said) as error:
        kind.decode("/some/node", data)
    assert "/some/node" in str(error.value)
    assert error.value.path == "/some/node"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({name for _, _, _, fields in NODES for name in fields})


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6))
def test_any_json_is_a_value_or_a_broken_node(kind, fields) -> None:
    try:
        node = kind.decode("/node", json.dumps(fields).encode())
    except BrokenNodeError:
        return
    assert kind.decode("/node", node.encode()).encode() == node.encode()


@given(st.uuids())
def test_topic_ids_are_written_as_kafka_writes_them(topic_id) -> None:
    text = encode_topic_id(topic_id)
    assert len(text) == 22
    assert decode_topic_id(text) == topic_id


def test_integers_are_plain_decimal() -> None:
    """M9: `/controller_epoch` and the offsets of consumers."""
    assert encode_integer(12) == b"12"
    assert decode_integer("/controller_epoch", b"12") == 12
    with pytest.raises(BrokenNodeError, match="/controller_epoch"):
        decode_integer("/controller_epoch", b"twelve")


def test_a_generated_id_does_not_begin_with_a_dash() -> None:
    entropy = random.Random(1)
    assert any(encode_topic_id(uuid4(entropy)).startswith("-") for _ in range(200))
    entropy = random.Random(1)
    assert not any(encode_topic_id(new_id(entropy)).startswith("-") for _ in range(200))


def test_directories_of_an_earlier_release_that_had_been_missing_are_old() -> None:
    data = json.dumps(
        {
            "version": 1,
            "directories": {
                "aaa": {"path": "/a"},
                "bbb": {"path": "/b", "partitions": {}},
                "ccc": {"path": "/c", "doubted": {"flights": [1]}},
            },
        }
    ).encode()
    assert BrokerDirectoriesNode.decode("/brokers/log_dirs/2", data) == BrokerDirectoriesNode(
        directories={
            "aaa": KnownDirectory(path="/a"),
            "bbb": KnownDirectory(path="/b", is_old=True),
            "ccc": KnownDirectory(path="/c", is_old=True),
        }
    )
