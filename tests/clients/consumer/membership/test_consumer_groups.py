"""Consumers that share a group, beside a broker in virtual time: rebalances, callbacks, assignors (M3, M6, M12)."""

import asyncio
from typing import Any

import pytest

from odradek.assignors import InvalidAssignmentError
from odradek.clients import ConsumerState, OffsetAndMetadata
from odradek.clients.cluster import ConnectionPurpose
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.world import Member, World, until
from odradek.wire.client_connection import ClientConnection
from tests.clients.group_world import GroupWorld
from tests.clients.scenarios import T0, T1, T2, T3, create, fill, play, poll_all, values
from tests.world.scenes import in_world, played_by


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


classic_only = pytest.mark.parametrize("protocol", ["classic"], indirect=True)
"""For tests of the assignors of clients."""


@pytest.fixture
def world(seed: int, protocol: str) -> World:
    return GroupWorld(seed, protocol)


@played_by(play, partitions=4, count=4_000)
async def test_members_share_the_partitions_and_take_over_from_each_other(world: World) -> None:
    """M6: four partitions, one member, two, one again; every record once."""
    found: list[int] = []
    async with world.consumer("first", "t", group_id="g") as first:
        found += await poll_all(first, 10, max_records=10)
        assert len(first.assignment()) == 4
        async with world.consumer("second", "t", group_id="g") as second:
            while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                for records in await asyncio.gather(first.poll(500, 5), second.poll(500, 5)):
                    found += values(records)
            assert first.assignment() | second.assignment() == {T0, T1, T2, T3}
            found += await poll_all(second, 10, max_records=10)
        while len(first.assignment()) != 4:
            found += values(await first.poll(500, 5))
        while len(found) < 4_000:
            found += values(await first.poll(5_000))
    assert sorted(found) == list(range(4_000))


@played_by(play, partitions=2, count=10)
async def test_callbacks_run_in_order_and_may_be_coroutines(world: World, *, protocol: str) -> None:
    """A revoked callback can still commit; that is where per-partition state is saved. The consumer protocol gives up
    only the partition that moves (M7)."""
    story: list[str] = []
    first = world.consumer("first", group_id="g", enable_auto_commit=False)

    async def assigned(partitions: Any) -> None:
        await asyncio.sleep(0.1)
        story.append(f"assigned {len(partitions)}")

    async def revoked(partitions: Any) -> None:
        await first.commit({partitions[0]: 3})
        story.append(f"revoked {len(partitions)}")

    first.subscribe(["t"], on_partitions_assigned=assigned, on_partitions_revoked=revoked)
    async with first:
        await first.poll(max_records=1)
        async with world.consumer("second", "t", group_id="g", enable_auto_commit=False) as second:
            while len(second.assignment()) != 1:
                await asyncio.gather(first.poll(500, 1), second.poll(500, 1))
            saved = T0 if protocol == "classic" else next(iter(second.assignment()))
            assert (await second.committed(saved))[saved] == OffsetAndMetadata(3, "", -1)
    changes = ["revoked 2", "assigned 1"] if protocol == "classic" else ["revoked 1", "assigned 0"]
    assert story[:3] == ["assigned 2", *changes]
    assert story[-1].startswith("revoked")


@played_by(play, count=10)
async def test_a_callback_that_fails_is_raised_and_the_group_goes_on(world: World) -> None:
    consumer = world.consumer("reader", group_id="g")

    def fail(_: Any) -> None:
        raise LookupError("in the application")

    consumer.subscribe("t", on_partitions_assigned=fail)
    async with consumer:
        with pytest.raises(LookupError):
            await consumer.poll(10_000)
        assert len(await poll_all(consumer, 10)) == 10


@played_by(play, count=10)
async def test_an_application_that_exceeds_max_poll_interval_loses_its_partitions(world: World) -> None:
    """KIP-62: `max.poll.interval.ms`; what it read since is read again."""
    story: list[str] = []
    slow = world.consumer("slow", group_id="g", max_poll_interval_ms=10_000)
    slow.subscribe("t", on_partitions_lost=lambda _: story.append("lost"))
    async with slow:
        await slow.poll(max_records=5)
        await asyncio.sleep(60)
        async with world.consumer("other", "t", group_id="g") as other:
            assert values(await other.poll(max_records=5)) == [0, 1, 2, 3, 4]
        assert story == []
        while not slow.assignment() or not story:
            await slow.poll(500)
    assert story == ["lost"]


@played_by(play, partitions=2, count=10)
async def test_a_static_member_restarts_without_a_rebalance(world: World) -> None:
    """KIP-345: it finds its partition again, and the other member is not disturbed."""
    settings: dict[str, Any] = {"group_id": "g", "group_instance_id": "one", "session_timeout_ms": 30_000}
    told: list[str] = []
    other = world.consumer("other", group_id="g", group_instance_id="two", session_timeout_ms=30_000)
    other.subscribe("t", on_partitions_revoked=lambda _: told.append("revoked"))
    async with other:
        async with world.consumer("one", "t", **settings) as one:
            while len(one.assignment()) != 1 or len(other.assignment()) != 1:
                await asyncio.gather(one.poll(500), other.poll(500))
            before, told[:] = one.assignment(), []
        async with world.consumer("one", "t", **settings) as one:
            while not one.assignment():
                await asyncio.gather(one.poll(500), other.poll(500))
            assert one.assignment() == before
            assert told == []


@played_by(play, count=5)
async def test_a_pattern_includes_topics_created_later(world: World) -> None:
    """SPEC 6: a rebalance is also triggered by a topic created after it was subscribed."""
    consumer = world.consumer("reader", group_id="g", metadata_max_age_ms=2_000)
    consumer.subscribe(pattern="t|logs-.*")
    async with consumer:
        assert await poll_all(consumer, 5) == [0, 1, 2, 3, 4]
        await create(world, "logs-new")
        await create(world, "other")
        await fill(world, 3, topic="logs-new", first=5)
        assert await poll_all(consumer, 3) == [5, 6, 7]
        assert consumer.subscription() == {"t", "logs-new"}


@played_by(play)
async def test_a_subscribed_topic_is_read_once_it_is_created(world: World) -> None:
    async with world.consumer("reader", "late", group_id="g", allow_auto_create_topics=False) as consumer:
        assert await consumer.poll(5_000) == []
        await create(world, "late", partitions=2)
        await fill(world, 10, topic="late")
        assert sorted(await poll_all(consumer, 10)) == list(range(10))


@played_by(play, count=3)
async def test_unsubscribing_leaves_the_group(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g") as consumer:
        await poll_all(consumer, 3)
        await consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert await consumer.poll(1_000) == []
        async with world.admin() as admin:
            group = await admin.describe_group("g")
        assert (group.group_state, group.members) == ("Empty", ())
        consumer.assign([T0])
        assert await consumer.poll(1_000) == []
        consumer.seek_to_beginning()
        assert await poll_all(consumer, 3) == [0, 1, 2]


class Everything:
    """An assignor of a user's own: the first member gets everything."""

    name = "everything"

    def assign(self, group: Any) -> Any:
        first, *others = sorted(group.members)
        owned = [TopicPartition(topic, number) for topic, count in group.partitions.items() for number in range(count)]
        return {first: owned, **{member: [] for member in others}}


@classic_only
@pytest.mark.parametrize("strategy", [Everything(), "roundrobin", ["roundrobin", "range"], "own_assignors:Everything"])
@played_by(play, partitions=2, count=10)
async def test_assignors_are_names_objects_or_import_paths(world: World, *, strategy: Any, monkeypatch: Any) -> None:
    """M3: what JoinGroup votes on is the assignor's name."""
    import sys

    monkeypatch.setitem(sys.modules, "own_assignors", sys.modules[__name__])

    async with world.consumer("reader", "t", group_id="g", partition_assignment_strategy=strategy) as consumer:
        assert len(await poll_all(consumer, 10)) == 10
        async with world.admin() as admin:
            group = await admin.describe_group("g")
        own = isinstance(strategy, Everything) or ":" in strategy
        assert group.protocol == ("everything" if own else "roundrobin")


class Flawed:
    """An assignor that makes a mistake in its first round."""

    name = "flawed"

    def __init__(self, mistake: str) -> None:
        self._mistake: str | None = mistake

    def assign(self, group: Any) -> Any:
        mistake, self._mistake = self._mistake, None
        member, partitions = next(iter(group.members)), [T0, T1]
        if mistake == "raises":
            raise LookupError("no idea")
        return {member: {"twice": [T0, T1, T0], "forgets": [T0], None: partitions}[mistake]}


@classic_only
@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        ("raises", LookupError, "no idea"),
        ("twice", InvalidAssignmentError, "assigns partition t-0 twice"),
        ("forgets", InvalidAssignmentError, "forgets partition t-1"),
    ],
)
@played_by(play, partitions=2, count=10)
async def test_an_assignor_that_fails_is_an_error_of_one_poll_and_the_round_is_tried_again(
    world: World, *, caplog: pytest.LogCaptureFixture, mistake: str, error: type[Exception], message: str
) -> None:
    """M3."""
    strategy: Any = Flawed(mistake)
    async with world.consumer("reader", "t", group_id="g", partition_assignment_strategy=strategy) as consumer:
        with pytest.raises(error, match=message):
            await consumer.poll(30_000)
        assert consumer.assignment() == frozenset()
        assert len(await poll_all(consumer, 10)) == 10


@classic_only
@played_by(play, partitions=4, count=400)
async def test_a_partition_that_moves_is_revoked_before_it_is_assigned_and_other_members_continue(world: World) -> None:
    """M3, M12 (KIP-429): the callbacks wait for a second each."""
    story: list[str] = []

    def told(name: str, what: str) -> Any:
        async def callback(partitions: Any) -> None:
            story.append(f"{name} {what} {[each.partition for each in partitions]} begins")
            await asyncio.sleep(1)
            story.append(f"{name} {what} {[each.partition for each in partitions]}")

        return callback

    def member(name: str) -> Any:
        consumer = world.consumer(name, group_id="g", partition_assignment_strategy="cooperative-sticky")
        consumer.subscribe(
            ["t"], on_partitions_assigned=told(name, "assigned"), on_partitions_revoked=told(name, "revoked")
        )
        return consumer

    async with member("first") as first:
        await first.poll(max_records=1)
        async with member("second") as second:
            while not second.assignment():
                kept = first.assignment()
                await asyncio.gather(first.poll(500, 1), second.poll(500, 1))
                assert len(first.assignment() & kept) >= 2, "the first member stopped reading what it keeps"
            assert first.assignment() | second.assignment() == {T0, T1, T2, T3}
            assert len(first.assignment()) == len(second.assignment()) == 2
            given, kept = second.assignment(), first.assignment()
        while len(first.assignment()) < 4:
            await first.poll(500, 1)
    numbers = sorted(each.partition for each in given)
    ends = [line for line in story if not line.endswith("begins") and not line.endswith("[]")]
    assert ends == [
        "first assigned [0, 1, 2, 3]",
        f"first revoked {numbers}",
        f"second assigned {numbers}",
        f"second revoked {numbers}",
        f"first assigned {numbers}",
        "first revoked [0, 1, 2, 3]",
    ]
    assert story.index(f"first revoked {numbers}") < story.index(f"second assigned {numbers} begins")
    assert kept.isdisjoint(given)


@classic_only
@played_by(play, partitions=4, count=400)
async def test_a_group_goes_from_eager_to_cooperative_with_two_rolling_restarts(world: World) -> None:
    """M3 (KIP-429): every record is read, and no partition has two readers."""
    members: list[Any] = []

    async def settled() -> None:
        while True:
            await asyncio.gather(*(each.poll(200, 10) for each in members))
            owned = [partition for each in members for partition in each.assignment()]
            assert len(owned) == len(set(owned))
            if len(owned) == 4 and all(len(each.assignment()) == 2 for each in members):
                return

    async def start(name: str, strategy: str) -> None:
        members.append(await world.consumer(name, "t", group_id="g", partition_assignment_strategy=strategy).start())

    for name in ("a0", "b0"):
        await start(name, "range")
    await settled()
    for bounce, strategy in enumerate(("cooperative-sticky,range", "cooperative-sticky"), start=1):
        for name in ("a", "b"):
            await members.pop(0).close()
            await start(f"{name}{bounce}", strategy)
            await settled()
    async with world.admin() as admin:
        assert (await admin.describe_group("g")).protocol == "cooperative-sticky"
    for each in members:
        await each.close()


@classic_only
@played_by(play, count=1)
async def test_members_without_a_common_assignor_get_an_error(world: World) -> None:
    async with world.consumer("one", "t", group_id="g") as one:
        await poll_all(one, 1)
        polling = asyncio.ensure_future(one.poll(60_000))
        two = world.consumer("two", "t", group_id="g", partition_assignment_strategy="roundrobin")
        async with two:
            with pytest.raises(KafkaError) as caught:
                await two.poll(10_000)
            assert caught.value.code == ErrorCode.inconsistent_group_protocol
        polling.cancel()
        await asyncio.wait([polling])


@in_world()
async def test_a_leader_assigns_topics_that_only_other_members_subscribe_to(world: World) -> None:
    for topic in ("t1", "t2"):
        await world.create_topic(topic)
        async with world.producer("writer") as producer:
            await producer.send(topic, topic.encode())
    leader = await Member(world, "leader", "t1", "g", partition_assignment_strategy="range").start()
    await until(lambda: leader.read == [b"t1"])
    other = await Member(world, "other", "t2", "g", partition_assignment_strategy="range").start()
    began = world.now_s
    await until(lambda: other.read == [b"t2"])
    assert world.now_s - began < 30
    await leader.stop()
    await other.stop()


@in_world()
async def test_a_consumer_finds_the_partitions_of_a_topic_that_is_just_being_created(world: World) -> None:
    await world.create_topic("t")
    async with world.consumer("reader", "t", allow_auto_create_topics=False) as consumer:
        finding = asyncio.create_task(consumer.partitions_for_topic("new"))
        await world.pass_time(2)
        assert not finding.done()
        await world.create_topic("new", 2)
        assert len(await finding) == 2


@in_world()
async def test_a_commit_waits_for_a_coordinator_that_is_unknown_again_while_it_is_connected(world: World) -> None:
    await world.create_topic("t")
    async with world.consumer("assigned", group_id="g") as consumer:
        consumer.assign([T0])
        group, connections = consumer._group, consumer._cluster.connections
        assert group is not None
        connect = connections.to_broker

        async def lose(number: int, *purpose: ConnectionPurpose) -> ClientConnection:
            connection = await connect(number, *purpose)
            if purpose:
                group._mark_coordinator_unknown()
            return connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections, "to_broker", lose)
            await consumer.commit({T0: 1})
        assert (await consumer.committed(T0))[T0] == OffsetAndMetadata(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@in_world()
async def test_a_consumer_without_membership_commits(world: World, protocol: str) -> None:
    """With assigned partitions, and before or while it joins the group for the first time."""
    await world.create_topic("t")
    async with world.producer("writer") as producer:
        await producer.send("t", b"a")
    settings: Any = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    async with world.consumer("assigned", **settings) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(10_000)
        await consumer.commit()
        assert (await consumer.committed(T0))[T0] == OffsetAndMetadata(1, leader_epoch=0)
    for step in range(20):  # of the first join, which has begun
        async with world.consumer(f"subscribed-{step}", "t", **settings | {"group_id": f"new-{step}"}) as consumer:
            await asyncio.sleep(step * 0.0005)
            await consumer.commit({T0: 1})
            assert not await consumer.poll(5_000)
            assert await consumer.position(T0) == 1


@played_by(play, partitions=2, count=10)
async def test_a_consumer_says_which_state_it_is_in(world: World) -> None:
    """M6, SPEC 6: with both protocols; a consumer that has lost its coordinator keeps its partitions."""
    consumer = world.consumer("reader", "t", group_id="g")
    states = [consumer.state]
    async with consumer:
        states.append(consumer.state)
        await consumer.poll(10_000, 1)
        states.append(consumer.state)
        await world.kill()
        while consumer.state is ConsumerState.MEMBER:
            await consumer.poll(100, 1)
        assert len(consumer.assignment()) == 2
        states.append(consumer.state)
        await world.start()
        while consumer.state is not ConsumerState.MEMBER:
            await consumer.poll(100, 1)
    assert [*states, consumer.state] == [
        ConsumerState.DOWN, ConsumerState.DISCOVERING, ConsumerState.MEMBER, ConsumerState.REDISCOVERING,
        ConsumerState.DOWN,
    ]  # fmt: skip
    assert world.consumer("reader", "t").state is None, "without a group"


@played_by(play, partitions=2, count=10)
async def test_a_member_that_joins_a_rebalance_is_stopped(world: World) -> None:
    """SPEC 6: the partitions are lost, and the state shows it until others are assigned."""
    async with world.consumer("reader", "t", group_id="g", max_poll_interval_ms=10_000) as consumer:
        await consumer.poll(10_000, 1)
        await asyncio.sleep(11)
        assert consumer.state is ConsumerState.STOPPED
        await poll_all(consumer, 9)
        assert consumer.state is ConsumerState.MEMBER
