"""M6, M8. The coordinator of a group dies, and members of existing clients continue with the next one."""

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import Cluster, eventually

pytestmark = pytest.mark.long

DEADLINE_S = 120.0
SESSION_MS = 6000
"""As short as it may be: who could not say that it leaves is waited for so long."""


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"offsets.topic.num.partitions": "3"}) as cluster:
        yield cluster


def coordinator(three: Cluster, group: str) -> int:
    def found() -> tuple[int] | None:
        with BlockingWireClient(three.address(three.brokers[0])) as connection:
            answer = connection.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]}, 4)
        (one,) = answer.coordinators
        return (int(one.node_id),) if one.error_code.name == "none" else None

    place = eventually(found, within_s=DEADLINE_S, what=f"a coordinator of {group}")
    assert place is not None
    return place[0]


def is_in_sync(three: Cluster) -> bool:
    """Return whether every replica is in sync, so that any broker may die."""
    topics = three.described(three.controller()).topics.values()
    return all(len(each.isr) == 3 for topic in topics for each in topic.partitions.values())


def write(three: Cluster, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


def confluent_member(three: Cluster, name: str, between: Callable[[], None]) -> list[bytes]:
    """Read and commit two messages, then, after `between`, two more, as the same member."""
    settings = {"bootstrap.servers": three.bootstrap_servers, "group.id": name, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(
        {**settings, "enable.auto.commit": False, "log_level": 0, "session.timeout.ms": SESSION_MS}
    )
    consumer.subscribe([name])
    found = consumer.consume(2, DEADLINE_S)
    consumer.commit(asynchronous=False)
    between()
    found += consumer.consume(2, DEADLINE_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [message.value() for message in found]


def python_member(three: Cluster, name: str, between: Callable[[], None]) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        name,
        bootstrap_servers=three.bootstrap_servers.split(","),
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(DEADLINE_S * 1000),
        session_timeout_ms=SESSION_MS,
    )
    found = [next(consumer).value for _ in range(2)]
    consumer.commit()
    between()
    found += [next(consumer).value for _ in range(2)]
    consumer.commit()
    consumer.close()
    return found


def aiokafka_member(three: Cluster, name: str, between: Callable[[], None]) -> list[bytes]:
    async def member() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            name,
            bootstrap_servers=three.bootstrap_servers,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )
        async with consumer, asyncio.timeout(DEADLINE_S):
            found = [(await consumer.getone()).value for _ in range(2)]
            await consumer.commit()
            await asyncio.to_thread(between)
            found += [(await consumer.getone()).value for _ in range(2)]
            await consumer.commit()
            return found

    return asyncio.run(member())


@pytest.mark.parametrize("member", [confluent_member, python_member, aiokafka_member], ids=lambda each: each.__name__)
def test_a_member_continues_after_a_failover_from_its_committed_offsets(
    three: Cluster, member: Callable[[Cluster, str, Callable[[], None]], list[bytes]]
):
    name = member.__name__
    three.create_topic(name)
    write(three, name, b"one", b"two")

    def the_coordinator_dies() -> None:
        victim = coordinator(three, name)
        eventually(lambda: is_in_sync(three), within_s=DEADLINE_S)
        three.kill(victim)
        write(three, name, b"three", b"four")
        assert coordinator(three, name) != victim
        three.restart(victim)

    assert member(three, name, the_coordinator_dies) == [b"one", b"two", b"three", b"four"]
    write(three, name, b"five")
    settings = {"bootstrap.servers": three.bootstrap_servers, "group.id": name, "auto.offset.reset": "earliest"}
    later = confluent_kafka.Consumer({**settings, "log_level": 0})
    later.subscribe([name])
    (message,) = later.consume(1, DEADLINE_S)
    later.close()
    assert message.value() == b"five"
