"""M1. Existing clients see one cluster of three brokers, whichever broker they connect to first."""

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import Cluster

pytestmark = pytest.mark.long

DEADLINE_S = 120.0
RACKS = ("north", "south", "west")
BROKERS = (0, 1, 2)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    own = {number: {"broker.rack": rack} for number, rack in enumerate(RACKS)}
    with Cluster(brokers=3, broker_configs=own, config={"offsets.topic.num.partitions": "6"}) as cluster:
        yield cluster


def admin(three: Cluster, broker_id: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": three.address(broker_id)})


@pytest.mark.parametrize("broker_id", BROKERS)
def test_a_topic_is_created_through_one_broker_and_read_through_another(three: Cluster, broker_id: int):
    topic, settings = f"written-to-{broker_id}", {"bootstrap.servers": three.address(broker_id)}
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, f"from {broker_id}")
    assert producer.flush(DEADLINE_S) == 0
    other = {"bootstrap.servers": three.address((broker_id + 1) % 3)}
    consumer = confluent_kafka.Consumer({**other, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, DEADLINE_S)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    assert message.value() == f"from {broker_id}".encode()


@pytest.mark.parametrize("broker_id", BROKERS)
def test_kafka_python_and_aiokafka_can_bootstrap_from_any_broker(three: Cluster, broker_id: int):
    topic, servers = f"python-{broker_id}", three.address(broker_id)
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"one").get(DEADLINE_S)
    producer.close()

    async def write_and_read() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as writer:
            await writer.send_and_wait(topic, b"two")
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest"
        )
        async with consumer, asyncio.timeout(DEADLINE_S):
            return [(await consumer.getone()).value for _ in range(2)]

    assert sorted(asyncio.run(write_and_read())) == [b"one", b"two"]


def test_every_broker_returns_the_same_metadata(three: Cluster):
    three.create_topic("spread", partitions=6)
    pictures = []
    for broker_id in BROKERS:
        client = admin(three, broker_id)
        known = client.list_topics(timeout=DEADLINE_S)
        described = client.describe_cluster().result(DEADLINE_S)
        racks = {node.id: node.rack for node in described.nodes}
        leaders = {number: each.leader for number, each in known.topics["spread"].partitions.items()}
        pictures.append((known.cluster_id, set(known.brokers), known.controller_id, racks, leaders))
        assert (described.cluster_id, described.controller.id) == (known.cluster_id, known.controller_id)
    assert pictures[0] == pictures[1] == pictures[2]
    _, brokers, controller, racks, leaders = pictures[0]
    assert (brokers, racks, controller) == (set(BROKERS), dict(enumerate(RACKS)), three.controller())
    assert sorted(leaders.values()) == [0, 0, 1, 1, 2, 2]


def test_groups_are_coordinated_by_all_brokers_and_every_broker_finds_the_coordinator(three: Cluster):
    groups = [f"group-{number}" for number in range(12)]
    three.create_topic("grouped")
    place = confluent_kafka.TopicPartition("grouped", 0, 5)
    for group in groups:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": three.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
    answers = []
    for broker_id in BROKERS:
        with BlockingWireClient(three.address(broker_id)) as connection:
            found = connection.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": groups}, 4)
        answers.append({each.key: (each.error_code.name, each.node_id, each.port) for each in found.coordinators})
    assert answers[0] == answers[1] == answers[2]
    assert {node for _, node, _ in answers[0].values()} == set(BROKERS)
    client = admin(three, 1)
    listed = client.list_consumer_groups().result(DEADLINE_S)
    assert {each.group_id for each in listed.valid} >= set(groups)
    assert not listed.errors
    (offsets,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("group-7")]).values()
    assert [each.offset for each in offsets.result(DEADLINE_S).topic_partitions] == [5]


@pytest.mark.parametrize("broker_id", BROKERS)
def test_a_topic_is_administered_through_any_broker(three: Cluster, broker_id: int):
    client, name = admin(three, broker_id), f"administered-{broker_id}"
    client.create_topics([NewTopic(name, 2, config={"retention.ms": "1000"})])[name].result(DEADLINE_S)
    client.create_partitions([NewPartitions(name, 5)])[name].result(DEADLINE_S)
    for number in range(5):
        three.wait_for_leader(name, number)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    config = client.describe_configs([resource])[resource].result(DEADLINE_S)
    assert config["retention.ms"].value == "1000"
    places = [confluent_kafka.TopicPartition(name, number) for number in range(5)]
    ends = client.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
    assert [future.result(DEADLINE_S).offset for future in ends.values()] == [0] * 5
    client.delete_topics([name])[name].result(DEADLINE_S)
    assert name not in three.described(three.controller()).topics


# ---- Racks (KIP-392) -------------------------------------------------------------------------------------------------

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.mark.parametrize("rack", ["north", "south", ""])
def test_librdkafka_reads_the_replica_in_its_rack(rack: str) -> None:
    racks = {0: {"broker.rack": "north"}, 1: {"broker.rack": "south"}}
    with Cluster(brokers=2, config={"replica.selector.class": SELECTOR}, broker_configs=racks) as cluster:
        cluster.create_topic("t", assignment={0: [0, 1]})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "client.rack": rack}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition("t", 0, 0)])
        for number in range(20):
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(30)
            message = consumer.poll(30)
            assert message is not None
            assert (message.error(), message.value()) == (None, b"%d" % number)
        consumer.close()
        sent = {number: bytes_out(cluster, number) for number in cluster.brokers}
        assert [number for number, size in sent.items() if size] == [1 if rack == "south" else 0]


def bytes_out(cluster: Cluster, number: int) -> int:
    """Return what a broker has sent to consumers of the topic."""
    traffic = cluster._thread(number).broker.partitions.traffic.get("t")
    return 0 if traffic is None else traffic.bytes_out
