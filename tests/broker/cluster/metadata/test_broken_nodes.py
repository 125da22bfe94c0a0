"""Nodes that somebody has spoilt: each kind of SPEC 8 is named in the log and left alone, and nothing is lost (M9)."""

import asyncio
import json

import pytest

from odradek.metadata import paths
from odradek.metadata.nodes import BrokerNode
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.security.quotas import QuotaEntity
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.world.scenes import played

A = TopicPartition("a", 0)
READ_BY_A_BROKER = {
    "/brokers/topics/{topic}": (paths.topic("a"), b"{"),
    "/brokers/topics/{topic} without its fields": (paths.topic("a"), b'{"version": 1}'),
    "/brokers/topics/{topic} with a gap": (paths.topic("a"), b'{"version": 1, "partitions": {"0": [0], "27": [0]}}'),
    "/brokers/topics/{topic}/partitions/{p}/state": (paths.partition_state(A), b'{"leader": "me"}'),
    "/controller": (paths.CONTROLLER, b"me"),
    "/controller_epoch": (paths.CONTROLLER_EPOCH, b"one"),
    "/admin/reassign_partitions": (paths.REASSIGN_PARTITIONS, b"[1]"),
    "/admin/preferred_replica_election": (paths.PREFERRED_REPLICA_ELECTION, b'{"partitions": 1}'),
    "/admin/delete_topics": (paths.DELETE_TOPICS, b"\xff"),
    "/config/topics/{topic}": (paths.topic_config("a"), b'{"config": [1]}'),
    "/config/brokers/<default>": (paths.broker_config(None), b"null"),
    "/brokers/ids/{id} of another": (paths.broker(7), b"{"),
}


async def write(store: MemoryStore, path: str, data: bytes) -> None:
    if await store.get(path) is None:
        await store.create(path, data)
    else:
        await store.set(path, data)


async def produced(client: WireClient, world: World, topic: str, value: bytes) -> None:
    while (await client.produce(topic, world.batch(value))).error_code:
        await world.pass_time(0.1)


@pytest.mark.parametrize("kind", READ_BY_A_BROKER)
@played
async def test_a_broken_node_is_named_and_left_alone_and_nothing_is_lost(world: World, caplog, kind) -> None:
    path, data = READ_BY_A_BROKER[kind]
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    for topic in ("a", "b"):
        await client.create_topic(topic)
        await produced(client, world, topic, b"1")
    before = await store.get(path)
    await write(store, path, data)
    if path == paths.partition_state(A):  # the controller reads what it wrote itself when it is elected
        world.tree.expire(broker.store.session_id)
    await world.pass_time(1)
    await produced(client, world, "b", b"2")
    assert f"node {path} is broken" in caplog.text
    assert caplog.text.count(f"node {path} is broken") == 1, "once is enough"
    assert (await store.get(path)).data == data, "left alone"
    if before is not None:
        await store.set(path, before.data)
    else:
        await store.delete(path)
    if path == paths.partition_state(A):
        world.tree.expire(broker.store.session_id)
    await world.pass_time(1)
    await produced(client, world, "a", b"2")
    assert world.values((await client.fetch("a", 0)).records) == [b"1", b"2"]
    assert broker.image.topics.keys() == {"a", "b"}
    await broker.stop()


@played
async def test_a_broker_repairs_its_own_registration(world: World) -> None:
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    await client.create_topic("a")
    before = await store.get(paths.broker(0))
    await store.set(paths.broker(0), b"{")
    await store.create(paths.broker(7), b"{")  # brokers are read when one comes or goes
    await world.pass_time(1)
    node = await store.get(paths.broker(0))
    assert (node.owner, node.version) == (before.owner, before.version)
    assert BrokerNode.decode("", node.data).endpoints == BrokerNode.decode("", before.data).endpoints
    await produced(client, world, "a", b"1")
    await broker.stop()


@played
async def test_a_broken_block_of_producer_ids_fails_only_requests_for_an_id(world: World) -> None:
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    await client.create_topic("a")
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, b"{")
    message = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    answer = await client.ask(ApiKey.INIT_PRODUCER_ID, message, 4)
    assert answer.error_code not in {0, ErrorCode.not_controller}
    assert (await store.get(paths.LATEST_PRODUCER_ID_BLOCK)).data == b"{"
    await produced(client, world, "a", b"1")
    await store.set(paths.LATEST_PRODUCER_ID_BLOCK, b"")
    assert (await client.ask(ApiKey.INIT_PRODUCER_ID, message, 4)).error_code == 0
    await broker.stop()


@pytest.mark.parametrize("path", [paths.topic("a"), paths.topic_config("a")])
@played
async def test_a_broker_that_starts_with_a_broken_topic_keeps_its_records(world: World, path) -> None:
    """Its configuration may have said to keep them for ever."""
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    await client.create_topic("a", config={"retention.ms": "-1"})
    await produced(client, world, "a", b"1")
    await broker.stop()
    before = await store.get(path)
    await store.set(path, b"{")
    again = await world.start(log_retention_ms=1000, log_retention_check_interval_ms=1000)
    await world.pass_time(100)
    await store.set(path, before.data)
    await world.pass_time(1)
    client = await world.client()
    assert world.values((await client.fetch("a", 0)).records) == [b"1"]
    await again.stop()


@played
async def test_a_topic_of_kafka_0_8_with_a_gap_in_its_partition_ids_is_refused_and_the_others_go_on(
    world: World, caplog
) -> None:
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    await store.create(paths.topic("old"), b'{"version": 1, "partitions": {"0": [0], "1": [0], "2": [0], "27": [0]}}')
    await client.create_topic("a")
    await produced(client, world, "a", b"1")
    assert broker.image.topics.keys() == {"a"}
    refusal = "/brokers/topics/old is broken: partition 3 is missing: clients need the numbers 0 to 3, without gaps"
    assert caplog.text.count(refusal) == 1
    await broker.stop()


UNKNOWN_KEYS = {
    "topic": (paths.topic_config("a"), {"retention.ms": "50000", "x": "y"}),
    "group": (paths.group_config("g"), {"consumer.session.timeout.ms": "50000", "x": "y"}),
    "broker": (paths.broker_config(0), {"log.retention.ms": "50000", "x": "y"}),
    "all brokers": (paths.broker_config(None), {"log.retention.ms": "50000", "x": "y"}),
    "user": (paths.user_config("u"), {"producer_byte_rate": "50000", "x": "y"}),
    "client": (paths.quota_config(QuotaEntity(client_id="c")), {"producer_byte_rate": "50000", "x": "y"}),
}


@pytest.mark.parametrize("kind", UNKNOWN_KEYS)
@played
async def test_an_unknown_key_in_a_configuration_does_not_hide_the_known_ones(world: World, caplog, kind) -> None:
    path, config = UNKNOWN_KEYS[kind]
    broker = await world.start()
    client, store = await world.client(), MemoryStore(world.tree)
    await client.create_topic("a")
    await write(store, path, json.dumps({"version": 1, "config": config, "since": "tomorrow"}).encode())
    await world.pass_time(1)
    image = broker.image
    found = {
        "topic": broker.partitions.leader_or_none("a", 0).log.config.retention_ms,
        "group": int(image.group_configs.get("g", {}).get("consumer.session.timeout.ms", 0)),
        "broker": broker.config.log_retention_ms,
        "all brokers": broker.config.log_retention_ms,
        "user": int(image.quota_configs.get(QuotaEntity(user="u"), {}).get("producer_byte_rate", 0)),
        "client": int(image.quota_configs.get(QuotaEntity(client_id="c"), {}).get("producer_byte_rate", 0)),
    }
    assert found[kind] == 50_000
    assert kind not in {"topic", "group"} or caplog.text.count("there is no configuration key 'x'") == 1
    await broker.stop()


@played
async def test_an_unknown_key_of_a_topic_is_said_once_and_stays_when_another_one_is_altered(
    world: World, caplog
) -> None:
    broker = await world.start()
    client, store, path = await world.client(), MemoryStore(world.tree), paths.topic_config("a")
    await client.create_topic("a")
    await store.set(path, b'{"version": 1, "config": {"retention.ms": "1000", "retention.mss": "1"}}')
    await world.pass_time(1)
    ignored = (
        f"Ignoring a part of the metadata node {path}: there is no configuration key 'retention.mss'; did you mean"
    )
    assert caplog.text.count(ignored) == 1
    change = {"name": "retention.ms", "config_operation": 0, "value": "2000"}
    resource = {"resource_type": 2, "resource_name": "a", "configs": [change]}
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False}, 1)
    assert answer.responses[0].error_code == 0
    assert json.loads((await store.get(path)).data)["config"] == {"retention.ms": "2000", "retention.mss": "1"}
    log = broker.partitions.leader_or_none("a", 0).log
    assert (log.config.retention_ms, log.config.cleanup_policy) == (2000, ("delete",))
    await store.set(path, b'{"version": 1, "config": {"retention.ms": "soon", "retention.mss": "1"}}')
    await world.pass_time(1)
    assert log.config.cleanup_policy == (), "with an invalid value, nothing is deleted"
    await broker.stop()


@played
async def test_a_controller_whose_epoch_is_broken_is_elected_when_it_is_mended(world: World, caplog) -> None:
    store = MemoryStore(world.tree)
    broker = await world.start()
    await broker.stop()
    epoch = await store.get(paths.CONTROLLER_EPOCH)
    await store.set(paths.CONTROLLER_EPOCH, b"one")
    starting = asyncio.create_task(world.start())
    await world.pass_time(15)
    assert not starting.done()
    assert "has the full state of the cluster from a controller" in caplog.text
    await store.set(paths.CONTROLLER_EPOCH, epoch.data)
    broker = await starting
    assert broker.metadata_loop.is_controller
    await broker.stop()
