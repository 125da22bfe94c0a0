"""M1, M9. Consumers read the replica in their rack, up to its high watermark (KIP-392)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.broker.replication.reading.replica_selector import (
    ClientMetadata,
    RackAwareReplicaSelector,
    ReplicaView,
    create_replica_selector,
)
from odradek.clients import Consumer
from odradek.model import ConfigurationError, ErrorCode, TopicPartition
from odradek.simulation.promises import BROKERS
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.simulation.setup import CONFIG
from odradek.simulation.workloads.records import TOPIC
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from tests.world.rack_world import RackWorld
from tests.world.sampling import assert_no_findings, seeds
from tests.world.scenes import in_world

KAFKAS_CLASS = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
T0 = TopicPartition("t", 0)


class ReadReplicas(RackWorld):
    """Brokers with racks, and a topic of one partition whose followers serve consumers."""

    def __init__(self, seed: int, selector: str = KAFKAS_CLASS, *, brokers: int = 2, **config: str) -> None:
        more = {name.replace("_", "."): value for name, value in config.items()}
        super().__init__(seed, more, selector=selector, brokers=brokers)

    async def create(self) -> tuple[int, int]:
        """Create the topic, and return its leader and a follower, which is not the controller if others are there."""
        async with self.admin() as admin:
            await admin.create_topic("t", partitions=1, replication_factor=len(self.hosts))
        await until(lambda: any(broker.partitions.get(T0) for broker in self.running.values()))
        leader = next(number for number, broker in self.running.items() if broker.partitions.get(T0))
        others = (number for number in self.running if number != leader)
        follower = min(others, key=lambda number: self.running[number].metadata_loop.is_controller)
        await until(lambda: T0 in self.running[follower].partitions.followers)
        return leader, follower

    async def write(self, *values: bytes) -> None:
        async with self.producer("writer") as producer:
            for value in values:
                await (await producer.send("t", value, partition=0))

    def sent_by(self, number: int) -> int:
        """Return the bytes that a broker has sent to consumers."""
        traffic = self.running[number].partitions.traffic.get("t")
        return 0 if traffic is None else traffic.bytes_out


async def read(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(1_000)]
    return found


@pytest.mark.parametrize("selector", [KAFKAS_CLASS, "rack-aware", f"{__name__}:Furthest", f"{__name__}:Recent"])
def test_a_consumer_reads_the_follower_in_its_rack(seed: int, selector: str) -> None:
    async def scene(world: ReadReplicas) -> None:
        leader, follower = await world.create()
        async with world.consumer("reader", client_rack=f"rack-{follower}") as consumer:
            consumer.assign([T0])
            await world.write(b"a", b"b")
            assert await read(consumer, 2) == [b"a", b"b"]
            before = world.sent_by(leader)
            await world.write(b"c")
            assert await read(consumer, 1) == [b"c"]
            assert world.sent_by(leader) == before
            assert world.sent_by(follower) > 0

    ReadReplicas(seed, selector).play(scene)


class Furthest:
    """A selector of a user's own."""

    def select(
        self, partition: TopicPartition, client: ClientMetadata, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> ReplicaView | None:
        del partition, client
        return next(each for each in replicas if each != leader)


class Recent(Furthest):
    """A selector with a limit of lag."""

    def select(
        self, partition: TopicPartition, client: ClientMetadata, replicas: Sequence[ReplicaView], leader: ReplicaView
    ) -> ReplicaView | None:
        recent = [each for each in replicas if each.time_since_last_caught_up_ms < 60_000]
        return super().select(partition, client, recent, leader)


class Failing:
    def select(self, *_: object) -> ReplicaView | None:
        raise ValueError("no replica is good enough")


@pytest.mark.parametrize(
    ("selector", "rack"),
    [(KAFKAS_CLASS, None), (KAFKAS_CLASS, "nowhere"), (KAFKAS_CLASS, "leader's"), ("leader", "follower's")],
)
def test_without_a_better_replica_a_consumer_reads_the_leader(seed: int, selector: str, rack: str | None) -> None:
    async def scene(world: ReadReplicas) -> None:
        leader, follower = await world.create()
        racks = {"leader's": f"rack-{leader}", "follower's": f"rack-{follower}"}
        async with world.consumer("reader", client_rack=racks.get(rack or "", rack)) as consumer:
            consumer.assign([T0])
            await world.write(b"a", b"b")
            assert await read(consumer, 2) == [b"a", b"b"]
            assert world.sent_by(follower) == 0

    ReadReplicas(seed, selector).play(scene)


def test_a_selector_that_raises_is_logged_once_and_the_leader_is_read(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: ReadReplicas) -> None:
        _, follower = await world.create()
        async with world.consumer("reader", client_rack=f"rack-{follower}") as consumer:
            consumer.assign([T0])
            await world.write(b"a", b"b", b"c")
            assert await read(consumer, 3) == [b"a", b"b", b"c"]
            assert world.sent_by(follower) == 0

    ReadReplicas(seed, f"{__name__}:Failing").play(scene)
    failures = [each for each in caplog.records if "replica selector" in each.message]
    assert len(failures) == 1


@in_world(of=ReadReplicas)
async def test_a_consumer_goes_back_to_the_leader_when_its_replica_dies(world: ReadReplicas) -> None:
    _, follower = await world.create()
    async with world.consumer("reader", client_rack=f"rack-{follower}", metadata_max_age_ms=600_000) as consumer:
        consumer.assign([T0])
        await world.write(b"a")
        assert await read(consumer, 1) == [b"a"]
        assert world.sent_by(follower) > 0
        await world.kill(follower)
        await world.write(b"b")
        assert await read(consumer, 1) == [b"b"]


@in_world(brokers=3, replica_lag_time_max_ms="3000", of=ReadReplicas)
async def test_a_replica_that_left_the_isr_is_not_named_and_one_that_caught_up_is(world: ReadReplicas) -> None:
    leader, follower = await world.create()
    async with world.consumer("reader", client_rack=f"rack-{follower}", metadata_max_age_ms=2_000) as consumer:
        consumer.assign([T0])
        await world.write(b"a")
        assert await read(consumer, 1) == [b"a"]
        host = world.hosts[follower]
        world.simulation.network.partition([host], [each for each in world.hosts if each != host])
        partition = world.running[leader].partitions.leader("t", 0)
        await world.write(b"b")  # acknowledged without the follower
        assert follower not in partition.isr
        before = world.sent_by(follower)
        assert await read(consumer, 1) == [b"b"], "the consumer has asked the leader again"
        assert world.sent_by(follower) == before
        world.simulation.network.heal()
        await until(lambda: follower in partition.isr)
        await world.pass_time(4)
        await world.write(b"c")
        assert await read(consumer, 1) == [b"c"]
        assert world.sent_by(follower) > before


@in_world(of=ReadReplicas)
async def test_a_follower_serves_committed_offsets_and_refuses_others(world: ReadReplicas) -> None:
    """As Kafka's: nothing between the high watermark and the end, OFFSET_OUT_OF_RANGE beyond the log."""
    leader, follower = await world.create()
    await world.write(b"a", b"b")
    log = world.running[follower].partitions.followers[T0].log
    await until(lambda: log.high_watermark == 2)
    epoch = world.running[leader].partitions.leader("t", 0).leader_epoch
    client = await world.client("tool", broker=follower)
    topic_id = world.running[follower].image.topics["t"].topic_id

    async def fetch(offset: int, *, version: int = 11, leader_epoch: int = -1) -> Any:
        partition = {
            "partition": 0, "current_leader_epoch": leader_epoch, "fetch_offset": offset, "last_fetched_epoch": -1,
            "log_start_offset": -1, "partition_max_bytes": 1 << 20,
        }  # fmt: skip
        message = {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
            "topics": [{"topic": "t", "topic_id": topic_id, "partitions": [partition]}],
        }  # fmt: skip
        answer = await client.ask(1, message, version)
        return answer.responses[0].partitions[0]

    found = await fetch(0)
    assert (found.error_code, world.values(found.records)) == (0, [b"a", b"b"])
    assert (found.high_watermark, found.preferred_read_replica) == (2, -1)
    assert (await fetch(0, version=10)).error_code == ErrorCode.not_leader_or_follower
    assert (await fetch(0, leader_epoch=epoch)).error_code == 0
    assert (await fetch(0, leader_epoch=epoch + 1)).error_code == ErrorCode.unknown_leader_epoch
    assert (await fetch(3)).error_code == ErrorCode.offset_out_of_range
    hosts = world.hosts
    world.simulation.network.block(hosts[leader], hosts[follower])
    log.append_as_follower(world.batch(b"x", base_offset=2, leader_epoch=epoch), now_ms=0)
    log.write()
    await world.pass_time(0.1)
    found = await fetch(2)
    assert (found.error_code, bytes(found.records or b"")) == (0, b""), "it is not known to be committed"
    world.running[follower].partitions.followers[T0].leader_epoch = epoch + 1
    assert (await fetch(0, leader_epoch=epoch)).error_code == ErrorCode.fenced_leader_epoch
    world.simulation.network.heal()


@in_world(of=ReadReplicas)
async def test_a_fetch_that_waits_at_a_follower_ends_with_new_records_and_with_a_new_leader(
    world: ReadReplicas,
) -> None:
    leader, follower = await world.create()
    await world.write(b"a")
    settings = {"client_rack": f"rack-{follower}", "fetch_max_wait_ms": 60_000, "request_timeout_ms": 100_000}
    async with world.consumer("reader", **settings) as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"a"]
        replica = world.running[follower].partitions.followers[T0]
        await until(lambda: bool(replica._readers))
        started = world.now_s
        await world.write(b"b")
        assert await read(consumer, 1) == [b"b"]
        await until(lambda: bool(replica._readers))
        await world.kill(leader)
        await until(lambda: world.running[follower].partitions.get(T0) is not None)
        await world.write(b"c")
        assert await read(consumer, 1) == [b"c"]
        assert world.now_s - started < 30


def test_of_replicas_in_one_rack_the_most_caught_up_is_named() -> None:
    selector, leader = RackAwareReplicaSelector(), ReplicaView(0, "a", 10, 0)
    client = ClientMetadata("b", "reader", "127.0.0.1", "PLAINTEXT")
    late, slow, best = ReplicaView(1, "b", 9, 0), ReplicaView(3, "b", 10, 50), ReplicaView(2, "b", 10, 5)
    assert selector.select(T0, client, [leader, late, slow, best], leader) == best
    assert selector.select(T0, client._replace(rack_id="a"), [leader, late], leader) == leader


@pytest.mark.parametrize("name", ["rack-awear", "no.such.module", "odradek.model:KafkaError", "rack aware"])
def test_an_unknown_selector_is_refused_with_the_names_that_exist(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"replica\.selector\.class"):
        create_replica_selector(name)


# ---- While brokers die -----------------------------------------------------------------------------------------------


class RackConsumers(RackWorld):
    """Each broker has a rack of its own, and so have the consumers that read."""

    def __init__(self, seed: int, config: Mapping[str, str], **options: Any) -> None:
        super().__init__(seed, config, **options)
        self._rack = f"rack-{seed % BROKERS}"

    def consumer(self, host: str, *topics: str, **settings: Any) -> Consumer:
        rack = {"client_rack": self._rack} if host.startswith("reader") else {}  # not the auditor
        return super().consumer(host, *topics, **settings | rack)


@pytest.mark.long
@pytest.mark.parametrize("number", seeds(4))
def test_a_reader_of_followers_skips_and_repeats_nothing_under_faults(number: int) -> None:
    """M1, M9."""
    result = run_seed(SeedPlan(seed=number, workloads=("records",)), new_world=RackConsumers)
    assert_no_findings(result)


@pytest.mark.long
@in_world(CONFIG, seed=1, brokers=BROKERS, of=RackConsumers)
async def test_without_faults_the_reader_reads_what_followers_send(world: World) -> None:
    """M9. The world above is about followers: those in the reader's rack send what it reads."""
    await create_topic(world, TOPIC)
    places = [TopicPartition(TOPIC, number) for number in range(2)]
    async with world.producer("writer") as producer, world.consumer("reader") as consumer:
        consumer.assign(places)
        for number in range(10):
            await (await producer.send(TOPIC, b"%d" % number, partition=number % 2))
        seen = 0
        while seen < 10:
            seen += len(await consumer.poll(1_000))
    traffic = {number: broker.partitions.traffic.get(TOPIC) for number, broker in world.running.items()}
    sent = {number: each.bytes_out for number, each in traffic.items() if each is not None}
    assert [number for number, size in sent.items() if size] == [1], "rack-1 is the reader's"
