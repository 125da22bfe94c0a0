"""Replies of a group coordinator that show what is not committed, or is no longer true, are findings."""

import pytest

from odradek.broker.coordinators.deferred_replies import DeferredReplies
from odradek.broker.groups.machine.offsets import Offsets
from odradek.clients.group_offsets import ConsumerGroupMetadata
from odradek.model import TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.checks import coordinator_replies
from odradek.simulation.checks.coordinator_replies import CoordinatorReplies
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World, until

CONFIG = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
PLACE = TopicPartition("t", 0)
OFFSET = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
COMMIT = {
    "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
    "topics": [{"name": "t", "partitions": [OFFSET]}],
}  # fmt: skip
JOIN = {
    "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
    "rebalance_timeout": 30_000, "subscribed_topic_names": ["t"], "subscribed_topic_regex": None,
    "server_assignor": None, "topic_partitions": [],
}  # fmt: skip
FETCH = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}


def findings(scene: object, *, brokers: int = 1) -> list[str]:
    check = CoordinatorReplies()
    config = CONFIG | {"offsets.topic.replication.factor": str(brokers)}
    World(1, config, brokers=brokers, before_start=check.watch).play(scene)  # type: ignore[arg-type]
    return check.findings


async def commit_and_join(world: World) -> None:
    """Commit plainly, and by one transaction that is aborted and one that is committed; then join a group."""
    await world.create_topic("t")
    async with world.admin() as admin, world.producer("p", transactional_id="p") as producer:
        await admin.alter_group_offsets("g", {PLACE: 3})
        assert (await admin.list_group_offsets(["g"]))["g"][PLACE].offset == 3
        for offset, end in ((4, producer.abort_transaction), (5, producer.commit_transaction)):
            await producer.begin_transaction()
            await producer.send_offsets({PLACE: offset}, ConsumerGroupMetadata(group_id="g"))
            assert (await admin.list_group_offsets(["g"]))["g"][PLACE].offset == 3
            await end()
        await until(lambda: not world.broker.transactions.markers.pending)
        assert (await admin.list_group_offsets(["g"]))["g"][PLACE].offset == 5
    for protocol in ("classic", "consumer"):
        async with world.consumer("reader", "t", group_id=protocol, group_protocol=protocol) as consumer:
            await consumer.poll(4_000)
            assert consumer.assignment() == {PLACE}
    async with world.admin() as admin:
        await admin.describe_groups(["classic"])


def test_offsets_and_assignments_that_are_committed_are_no_findings() -> None:
    assert findings(commit_and_join) == []


async def cut_off_coordinator(world: World, *, replication_factor: int) -> WireClient:
    """Return a client of the coordinator of `g`, which the other brokers do not reach any more."""
    await world.create_topic("t", 1, replication_factor)
    client = await world.client()
    found = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    number = found.coordinators[0].node_id
    await until(lambda: bool(world.running[number].groups.machine("g")))
    client = await world.client(broker=number)
    others = [host for host in world.hosts if host != world.hosts[number]]
    world.simulation.network.partition([world.hosts[number]], others)
    return client


def test_an_offset_that_is_shown_before_it_is_committed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        client = await cut_off_coordinator(world, replication_factor=3)
        client.request(ApiKey.OFFSET_COMMIT, COMMIT, 7)
        answer = await client.ask(ApiKey.OFFSET_FETCH, FETCH, 5)
        assert answer.topics[0].partitions[0].committed_offset == 7
        world.simulation.network.heal()

    monkeypatch.setattr(DeferredReplies, "add", lambda self, replies: self._send(replies))
    assert [each.partition(" with ")[2] for each in findings(scene, brokers=3)] == ["7, and had committed [None]"]


def test_an_epoch_that_is_shown_before_it_is_committed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        client = await cut_off_coordinator(world, replication_factor=1)
        answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, JOIN, 1)
        assert answer.member_epoch == 1
        world.simulation.network.heal()

    monkeypatch.setattr(DeferredReplies, "add", lambda self, replies: self._send(replies))
    (finding,) = findings(scene, brokers=3)
    assert "CONSUMER_GROUP_HEARTBEAT" in finding
    assert finding.endswith("had committed [None]")


def test_a_broker_that_names_another_coordinator_than_it_knows_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_replies, "_coordinators", lambda broker: {0: 1, 1: 1})
    assert findings(commit_and_join)[0] == "broker 0 answered that 0 coordinates, and knows {1}"


def test_an_offset_of_a_forgotten_commit_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Offsets._put

    def put_once(self: Offsets, group_id: str, key: tuple[str, int], *rest: object) -> None:
        if key not in self.of(group_id):
            put(self, group_id, key, *rest)  # type: ignore[arg-type]

    async def scene(world: World) -> None:
        await world.create_topic("t")
        async with world.admin() as admin:
            await admin.alter_group_offsets("g", {PLACE: 3})
            await admin.alter_group_offsets("g", {PLACE: 4})
            await admin.list_group_offsets(["g"])

    monkeypatch.setattr(Offsets, "_put", put_once)
    (finding,) = findings(scene)
    assert finding.endswith("with 3, and had committed [4]")
