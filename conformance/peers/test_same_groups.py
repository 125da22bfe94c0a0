"""M6, M7, M12. Our consumers in groups of both protocols, the same with Apache Kafka and with our broker."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import confluent_kafka
import pytest

from bench.peers.kafka_peer import KafkaBroker
from odradek.clients import Admin, Consumer, ConsumerRecord, Producer, blocking
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.testing.servers.odradek_process import ServedBroker
from tests.world.scenes import awaited

pytestmark = pytest.mark.needs("kafka")

PARTITIONS: Final = 4
WITHIN_S: Final = 90.0
OPTIONS: Final = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


CLASSIC: Final = {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 300}
"""Settings of members of the classic protocol, which has them in the client."""
EAGER: Final = {"protocol": "classic", "partition_assignment_strategy": "sticky"}


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all tests of the module share."""
    folder = tmp_path_factory.mktemp(request.param) / "data"
    made: KafkaBroker | ServedBroker
    if request.param == "kafka":
        made = KafkaBroker(folder, options=OPTIONS, heap="384M", short_lived=True)
        made.format()
    else:
        made = ServedBroker(folder, options=OPTIONS)
    made.start()
    yield made.bootstrap_servers
    made.stop()


class Scene:
    """A topic with records, a group, and our consumers."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.topic = f"t-{uuid.uuid4().hex}"
        self.group = f"g-{uuid.uuid4().hex}"
        self.read: set[tuple[int, int]] = set()

    async def create(self) -> None:
        async with Admin(bootstrap_servers=self.servers) as admin:
            await admin.create_topic(self.topic, partitions=PARTITIONS)

    async def fill(self, count: int = 40) -> None:
        async with Producer(bootstrap_servers=self.servers) as producer:
            for number in range(count):
                await producer.send(self.topic, b"value", partition=number % PARTITIONS)
            await producer.flush()

    @asynccontextmanager
    async def member(self, *, protocol: str = "consumer", **settings: Any) -> AsyncIterator[Consumer]:
        own = CLASSIC if protocol == "classic" else {}
        given = {"auto_offset_reset": "earliest", "group_protocol": protocol, **own, **settings}
        topics = () if "pattern" in given else (self.topic,)
        pattern = given.pop("pattern", None)
        consumer = Consumer(*topics, bootstrap_servers=self.servers, group_id=self.group, **given)
        if pattern is not None:
            consumer.subscribe(pattern=pattern)
        async with consumer:
            yield consumer

    async def shared(self, *members: Consumer) -> None:
        """Poll until the members have equal shares."""
        async with asyncio.timeout(WITHIN_S):
            while [len(each.assignment()) for each in members] != [PARTITIONS // len(members)] * len(members):
                await self.poll(*members)

    async def poll(self, *members: Consumer) -> None:
        for records in await asyncio.gather(*(each.poll(200) for each in members)):
            self.read.update((record.partition, record.offset) for record in records)


@pytest.fixture
def scene(servers: str) -> Scene:
    found = Scene(servers)
    asyncio.run(found.create())
    return found


@pytest.mark.parametrize("settings", [{"protocol": "consumer"}, {"protocol": "classic"}, EAGER], ids=str)
@awaited
async def test_members_share_and_take_over_and_skip_no_record(scene: Scene, settings: dict[str, str]) -> None:
    await scene.fill()
    async with scene.member(**settings) as first:
        await scene.shared(first)
        async with scene.member(**settings) as second:
            await scene.shared(first, second)
            await scene.fill()
            await scene.poll(first, second)
        await scene.shared(first)
        async with asyncio.timeout(WITHIN_S):
            while len(scene.read) < 80:
                await scene.poll(first)
        await first.commit()
        committed = await first.committed(*(TopicPartition(scene.topic, number) for number in range(PARTITIONS)))
        assert {each and each.offset for each in committed.values()} == {20}


@awaited
async def test_a_pattern_is_resolved_by_the_broker_and_a_wrong_one_is_refused(scene: Scene) -> None:
    async with scene.member(pattern=f"{scene.topic[:-1]}.") as member:
        await scene.shared(member)
    async with scene.member(pattern="(?=a)b") as member:
        with pytest.raises(KafkaError) as caught:
            await member.poll(30_000)
        assert caught.value.code is ErrorCode.invalid_regular_expression


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@awaited
async def test_a_static_member_returns_to_its_partitions(scene: Scene, protocol: str) -> None:
    async with scene.member(protocol=protocol) as other:
        async with scene.member(protocol=protocol, group_instance_id="i") as static:
            await scene.shared(static, other)
            had, kept = static.assignment(), other.assignment()
        async with scene.member(protocol=protocol, group_instance_id="i") as static:
            await scene.shared(static, other)
            assert (static.assignment(), other.assignment()) == (had, kept)


@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
@awaited
async def test_a_group_changes_its_protocol_member_by_member(scene: Scene, before: str, after: str) -> None:
    await scene.fill()
    async with scene.member(protocol=before) as first:
        await scene.shared(first)
        async with scene.member(protocol=after) as second:
            await scene.shared(first, second)
            await first.close()
            await scene.shared(second)
            async with asyncio.timeout(WITHIN_S):
                while len(scene.read) < 40:
                    await scene.poll(second)
            assert len(second.assignment()) == PARTITIONS


@awaited
async def test_ours_and_librdkafkas_share_a_group(scene: Scene) -> None:
    other = confluent_kafka.Consumer(
        {"bootstrap.servers": scene.servers, "group.id": scene.group, "group.protocol": "consumer"}
    )
    other.subscribe([scene.topic])
    async with scene.member() as ours:
        async with asyncio.timeout(WITHIN_S):
            while (len(ours.assignment()), len(other.assignment())) != (2, 2):
                await asyncio.gather(scene.poll(ours), asyncio.to_thread(other.poll, 0.2))
        assert not {place.partition for place in ours.assignment()} & {each.partition for each in other.assignment()}
    other.close()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_script_without_asyncio_reads_commits_and_goes_on(scene: Scene, protocol: str) -> None:
    """M12: the blocking clients, with a loop that is left in the middle."""
    settings: dict[str, Any] = {
        "bootstrap_servers": scene.servers,
        "group_id": scene.group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    with blocking.Producer(scene.servers) as producer:
        sent = [producer.send(scene.topic, b"%d" % number, partition=number % PARTITIONS) for number in range(100)]
        assert {each.result(WITHIN_S).offset for each in sent} == set(range(25))
    read: list[ConsumerRecord] = []
    for count in (33, 67):
        with blocking.Consumer(scene.topic, **settings) as consumer:
            read += itertools.islice(consumer, count)
    assert sorted(int(record.value) for record in read) == list(range(100))
