"""Clients that a cluster refuses at the start or later, and clients whose token endpoint is away (X2)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from odradek.clients import Admin, SimpleConsumer, ZookeeperConsumer
from odradek.clients.admin import NewTopic
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.model import AuthenticationError, TopicPartition
from odradek.security.sasl.scram import encode_credential, scram_credential
from odradek.simulation.world import World
from odradek.stores import MemoryStore

KEYS: Final = {
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "listeners": "SASL://broker:9092",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="b" user_b="b";'
    ),
    "connections.max.reauth.ms": "10000",
    "offsets.topic.num.partitions": "1",
}
ALICE: Final[dict[str, Any]] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": "secret",
}
SESSION_S: Final = 11.0
AT_ONCE_S: Final = 3.0
PLACE: Final = TopicPartition("t", 0)
Work = Callable[[World], Awaitable[None]]


async def start(world: World) -> None:
    """Start the broker, with the user alice and a topic."""
    await world.start()
    credential = scram_credential("SCRAM-SHA-256", "secret", salt=b"salt", iterations=4096)
    node = ConfigNode(config={"SCRAM-SHA-256": encode_credential(credential)})
    await world.store(0).create(paths.user_config("alice"), node.encode())
    await world.pass_time(1)
    await world.create_topic("t")


async def remove_alice(world: World) -> None:
    await world.store(0).delete(paths.user_config("alice"))
    await world.pass_time(SESSION_S)


async def is_refused_at_once(world: World, work: Awaitable[object]) -> None:
    began_s = world.now_s
    with pytest.raises(AuthenticationError, match=r"broker broker:9092: SCRAM-SHA-256: .*invalid credentials"):
        await work
    assert world.now_s - began_s < AT_ONCE_S


def admin(world: World, **settings: Any) -> Admin:
    return world.admin(**{**ALICE, **settings})


def zookeeper_consumer(world: World, **settings: Any) -> ZookeeperConsumer:
    runtime = world.simulation.runtime("old")
    given = {**ALICE, "auto_offset_reset": "smallest", **settings}
    return ZookeeperConsumer(store=MemoryStore(world.tree), runtime=runtime, group_id="old", **given)


async def produce(world: World) -> None:
    async with world.producer("producer", **ALICE) as producer:
        await (await producer.send("t", b"1"))
        await remove_alice(world)
        await is_refused_at_once(world, deliver(producer))
        await is_refused_at_once(world, deliver(producer))


async def deliver(producer: Any) -> None:
    await (await producer.send("t", b"2"))


async def consume_alone(world: World) -> None:
    async with world.consumer("consumer", **ALICE) as consumer:
        consumer.assign([PLACE])
        await consumer.poll(500)
        await remove_alice(world)
        await is_refused_at_once(world, consumer.poll(60_000))
        await world.pass_time(60)
        await is_refused_at_once(world, consumer.poll(60_000))


async def consume_in_a_group(world: World) -> None:
    async with world.consumer("consumer", "t", group_id="g", **ALICE) as consumer:
        await consumer.poll(5_000)
        await remove_alice(world)
        await is_refused_at_once(world, consumer.poll(60_000))
        await is_refused_at_once(world, consumer.commit({PLACE: 0}))


async def commit(world: World) -> None:
    async with world.consumer("consumer", group_id="g", **ALICE) as consumer:
        consumer.assign([PLACE])
        await consumer.poll(500)
        await remove_alice(world)
        await is_refused_at_once(world, consumer.commit({PLACE: 0}))


async def administer(world: World) -> None:
    async with admin(world) as client:
        await client.list_topics()
        await remove_alice(world)
        await is_refused_at_once(world, client.create_topics([NewTopic(name="u")]))


async def read(world: World) -> None:
    runtime = world.simulation.runtime("simple")
    async with SimpleConsumer(world.servers, runtime=runtime, **ALICE) as consumer:
        await consumer.fetch(PLACE, 0)
        await remove_alice(world)
        await is_refused_at_once(world, consumer.fetch(PLACE, 0))


async def consume_as_of_old(world: World) -> None:
    async with zookeeper_consumer(world) as consumer:
        ((stream,),) = (await consumer.create_message_streams({"t": 1})).values()
        await remove_alice(world)
        await is_refused_at_once(world, anext(stream))


@pytest.mark.parametrize(
    "work", [produce, consume_alone, consume_in_a_group, commit, administer, read, consume_as_of_old]
)
def test_a_client_whose_user_was_removed_fails_at_once(seed: int, work: Work, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await start(world)
        await work(world)

    World(seed, KEYS).run(scene)
    assert not [record for record in caplog.records if record.exc_info]
    assert len(caplog.records) < 30, [record.getMessage() for record in caplog.records]


def test_a_wrong_password_fails_at_once_in_admins_simple_consumers_and_old_consumers(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        await start(world)
        wrong: dict[str, Any] = {"sasl_password": "wrong"}
        await is_refused_at_once(world, admin(world, **wrong).start())
        simple = SimpleConsumer(world.servers, runtime=world.simulation.runtime("s"), **{**ALICE, **wrong})
        await is_refused_at_once(world, simple.start())
        async with zookeeper_consumer(world, **wrong) as consumer:
            await is_refused_at_once(world, consumer.create_message_streams({"t": 1}))
        async with zookeeper_consumer(world, **wrong, offsets_storage="kafka") as consumer:
            await is_refused_at_once(world, consumer.create_message_streams({"t": 1}))

    World(seed, KEYS).run(scene)
    assert not [record for record in caplog.records if record.exc_info]
