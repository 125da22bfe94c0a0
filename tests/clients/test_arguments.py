"""Arguments as a newcomer gives them: taken as meant, or refused in one sentence that names them (M12)."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from odradek.clients import (
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    SimpleConsumer,
    ZookeeperConsumer,
    setting_types,
)
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.offsets import EARLIEST
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import ABSENT_KEYS, RENAMED
from odradek.config.definition import definitions
from odradek.model import ConfigurationError, OdradekError, TopicPartition, UnavailableError
from odradek.simulation.world import World
from odradek.testing import Cluster
from tests.clients.setting_types import CLASSES, PATH, config_name, text
from tests.world.scenes import played_by

PLACE = TopicPartition("t", 0)


def play(seed: int, scene: Callable[..., Any]) -> None:
    """Run `scene` with the four clients, a topic t with a record, and topics a and b."""
    world = World(seed)

    async def scenario(_: World) -> None:
        runtime = world.simulation.runtime("client")
        async with Admin("broker:9092", runtime=runtime) as admin:
            await admin.create_topics([NewTopic(name=name, partitions=1) for name in ("t", "a", "b", "ab")])
        async with (
            Admin("broker:9092", runtime=runtime) as admin,
            Producer("broker:9092", runtime=runtime) as producer,
            Consumer("t", bootstrap_servers="broker:9092", runtime=runtime, group_id="g") as consumer,
            SimpleConsumer("broker:9092", runtime=runtime) as reader,
        ):
            await (await producer.send("t", b"v"))
            await scene(admin, producer, consumer, reader)

    world.play(scenario)


@played_by(play)
async def test_a_string_is_one_name_and_not_its_letters(admin: Any, producer: Any, consumer: Any, reader: Any) -> None:
    """Deleting the topic ab deletes neither a nor b."""
    await admin.delete_topics("ab")
    assert [topic.name for topic in await admin.list_topics()] == ["a", "b", "t"]
    assert list(await admin.describe_topics("t")) == ["t"]
    assert list(await admin.list_group_offsets("gg")) == ["gg"]
    with pytest.raises(OdradekError, match="there is no group 'gg'"):
        await admin.delete_groups("gg")


@played_by(play)
async def test_partitions_may_be_pairs_wherever_they_are_named(
    admin: Any, producer: Any, consumer: Any, reader: Any
) -> None:
    pair = ("t", 0)
    assert (await admin.list_offsets({pair: EARLIEST}))[PLACE].offset == 0
    for client in (consumer, reader):
        assert await client.end_offsets([pair]) == {PLACE: 1}
        assert (await client.offsets_for_times({pair: 0}))[PLACE].offset == 0
    assert list(await reader.fetch_many({pair: 0})) == [PLACE]
    await admin.alter_group_offsets("other", {pair: 1})
    assert (await admin.list_group_offsets(["other"]))["other"] == {PLACE: OffsetAndMetadata(1)}
    await admin.delete_group_offsets("other", [pair])
    assert await admin.delete_records({pair: 1}) == {PLACE: 1}
    assert list(await admin.describe_producers(pair)) != []


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "topic and number apart": (lambda _a, _p, c, _r: c.pause("t", 0), r"such as \('flights', 0\), not 't'"),
    "three numbers": (lambda _a, _p, c, _r: c.seek(("t", 0, 0), 0), r"not \('t', 0, 0\)"),
    "a number as text": (lambda _a, _p, c, _r: c.position(("t", "0")), "a partition is a whole number, not '0'"),
    "a topic for partitions": (lambda _a, _p, c, _r: c.end_offsets("t"), "not 't'"),
    "a list for a mapping": (lambda _a, _p, c, _r: c.offsets_for_times([("t", 0)]), "by partition, such as"),
    "a word for a time": (lambda a, _p, _c, _r: a.list_offsets({("t", 0): "latest"}), "EARLIEST or LATEST is a whole"),
    "a topic for a fetch": (lambda _a, _p, _c, r: r.fetch("t", 0), "not 't'"),
    "nothing to subscribe": (lambda _a, _p, c, _r: c.subscribe(None), "expected a list, not None"),
    "a name for a new topic": (lambda a, _p, _c, _r: a.create_topics(["x"]), "expected NewTopic, not 'x'"),
    "bytes for a name": (lambda a, _p, _c, _r: a.delete_topics([b"t"]), "a name is a string, not b't'"),
    "a name for a resource": (lambda a, _p, _c, _r: a.alter_configs("t", []), "expected ConfigResource, not 't'"),
    "keys for alterations": (
        lambda a, _p, _c, _r: a.alter_configs(
            ConfigResource(type=ConfigResourceType.TOPIC, name="t"), {"retention.ms": "1"}
        ),
        "expected Alteration, not 'retention.ms'",
    ),
    "bytes for a value": (
        lambda a, _p, _c, _r: a.create_topic("x", configs={"retention.ms": b"5"}),
        "retention.ms is a string, a number, a bool or a list of these, not of type bytes",
    ),
    "a partition as text": (lambda _a, p, _c, _r: p.send("t", b"v", partition="0"), "partition is a whole number"),
    "seconds": (lambda _a, p, _c, _r: p.send("t", b"v", timestamp_ms=1.5), "timestamp_ms is a whole number, not 1.5"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_arguments_are_refused_by_name(seed: int, what: str) -> None:
    call, sentence = REFUSED[what]

    async def scene(*clients: Any) -> None:
        with pytest.raises(TypeError, match=sentence):
            await call(*clients)

    play(seed, scene)


@pytest.mark.parametrize("topic", [b"t", 5])
@played_by(play)
async def test_a_topic_that_is_no_string_is_refused(
    admin: Any, producer: Any, consumer: Any, reader: Any, *, topic: Any
) -> None:
    with pytest.raises(OdradekError, match=f"a topic's name is a string, not {topic!r}"):
        await producer.send(topic, b"v")


@pytest.mark.parametrize("client", [Admin, Consumer, Producer, SimpleConsumer])
@pytest.mark.parametrize(
    ("servers", "sentence"),
    [
        (5, "HOST:PORT, or a list of these, not 5"),
        (None, "HOST:PORT, or a list of these, not None"),
        ([], "bootstrap_servers is empty"),
        ("", "bootstrap_servers is empty"),
        ("kafka://broker:9092", "HOST:PORT without a protocol, not 'kafka://broker:9092'"),
    ],
)
def test_bootstrap_servers_that_are_no_addresses_are_refused(client: Any, servers: object, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        client(bootstrap_servers=servers)


@played_by(play)
async def test_a_closed_client_says_so(admin: Any, producer: Any, consumer: Any, reader: Any) -> None:
    """It may have been used after its block."""
    await producer.close()
    await consumer.close()
    await admin.close()
    await reader.close()
    calls = (admin.list_topics(), admin.create_topic("x"), admin.start(), reader.fetch(PLACE, 0), reader.start())
    for call in (producer.send("t", b"v"), consumer.poll(0), anext(consumer), *calls):
        with pytest.raises(UnavailableError, match="was closed: create another one"):
            await call


def test_another_event_loop_is_refused_and_so_is_one_that_ended(kafka: Cluster) -> None:
    """The loop of `asyncio.run` ends with it, and connections end with their loop."""
    kafka.create_topic("other-loops")

    async def use() -> tuple[Admin, SimpleConsumer]:
        admin = await Admin(kafka.bootstrap_servers).start()
        await admin.list_topics()
        reader = await SimpleConsumer(kafka.bootstrap_servers).start()
        await reader.end_offsets([("other-loops", 0)])
        for client in (admin, reader):
            await client._cluster.connections.close()
        await asyncio.sleep(0)
        return admin, reader

    admin, reader = asyncio.run(use())
    for call in (admin.list_topics, admin.close, lambda: reader.fetch(("other-loops", 0), 0), reader.close):
        with pytest.raises(UnavailableError, match="another event loop: create a client in this one"):
            asyncio.run(call())  # type: ignore[arg-type]


# ---- Keys of Kafka 0.8 -----------------------------------------------------------------------------------------------

OF_KAFKA_0_8 = [key for key in ABSENT_KEYS if key in RENAMED or "ZookeeperConsumer" in ABSENT_KEYS[key]]


@pytest.mark.parametrize("client", [Admin, Consumer, Producer, SimpleConsumer])
@pytest.mark.parametrize("key", OF_KAFKA_0_8)
def test_a_client_names_the_successor_of_a_key_of_kafka_0_8(client: Any, key: str) -> None:
    instead = RENAMED.get(key, "ZookeeperConsumer")
    with pytest.raises(ConfigurationError, match=f"is not supported here: .*{instead}"):
        client(**{key.replace(".", "_"): "1"})


def test_a_successor_is_a_key_of_a_client() -> None:
    assert set(RENAMED.values()) <= {*definitions(ConsumerSettings), *definitions(ProducerSettings)}


@pytest.mark.parametrize("word", ["smallest", "largest"])
def test_the_words_of_kafka_0_8_for_a_reset_are_translated_in_the_error(word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"smallest is earliest, largest is latest"):
        Consumer("t", auto_offset_reset=word)
    ZookeeperConsumer(auto_offset_reset=word)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("enable_auto_commit", "auto.commit.enable"),
        ("max_partition_fetch_bytes", "fetch.message.max.bytes"),
        ("fetch_max_wait_ms", "fetch.wait.max.ms"),
        ("session_timeout_ms", "zookeeper.session.timeout.ms"),
    ],
)
def test_the_consumer_of_kafka_0_8_names_its_word_for_a_later_key(new: str, old: str) -> None:
    with pytest.raises(ConfigurationError, match=f"is not supported here: use {old}"):
        ZookeeperConsumer(**{new: "1"})  # type: ignore[arg-type]


# ---- Types of settings -----------------------------------------------------------------------------------------------


@pytest.mark.needs("ruff")
def test_the_types_of_settings_are_those_of_the_keys() -> None:
    assert text() == PATH.read_text(), "the keys have changed: run `python tests/clients/setting_types.py`"


@pytest.mark.parametrize("settings", CLASSES)
def test_a_client_takes_each_of_its_keys_as_a_parameter_or_as_a_typed_setting(settings: type) -> None:
    parameters = inspect.signature(CLASSES[settings]).parameters
    typed = get_type_hints(getattr(setting_types, config_name(settings)))
    assert parameters["settings"].annotation.__args__ == (getattr(setting_types, config_name(settings)),)
    assert not typed.keys() & parameters.keys()
    keys = {each.attribute for each in definitions(settings).values()}
    assert keys - {"bootstrap_servers"} <= typed.keys() | parameters.keys()
