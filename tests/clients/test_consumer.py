"""The consumer beside a broker in virtual time: what it hands out, what it commits, and from where it goes on (M12)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from world import World

from odradek.clients import Admin, Consumer, OffsetAndMetadata
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition
from odradek.testing.clock import EPOCH_MS

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


async def create(world: World, name: str = "t", partitions: int = 1) -> None:
    async with Admin("broker:9092", runtime=world.simulation.runtime("admin")) as admin:
        await admin.create_topic(name, partitions=partitions)


async def fill(world: World, count: int, *, topic: str = "t", first: int = 0, **settings: Any) -> None:
    """`count` records with their numbers as values, over partition 0 or, if there are several, in turn."""
    async with world.producer("writer", **settings) as producer:
        numbers = await producer.partitions_for(topic)
        for value in range(first, first + count):
            await producer.send(
                topic, b"%d" % value, partition=numbers[value % len(numbers)], timestamp_ms=EPOCH_MS + value
            )


def play(world: World, scene: Callable[[], Awaitable[None]], *, partitions: int = 1, count: int = 0) -> None:
    async def scenario(_: World) -> None:
        await create(world, partitions=partitions)
        await fill(world, count)
        await scene()

    world.play(scenario)


def values(records: Any) -> list[int]:
    return [int(record.value) for record in records]


async def poll_all(consumer: Consumer, count: int, **options: Any) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += values(await consumer.poll(10_000, **options))
    return found


def test_iterating_gives_every_record_in_the_order_of_its_partition(world: World) -> None:
    async def scene() -> None:
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with world.consumer("reader", "t") as consumer:
            async for record in consumer:
                found[record.partition].append(int(record.value or b""))
                if sum(map(len, found.values())) == 1_500:
                    break
        assert found == {number: list(range(number, 1_500, 3)) for number in range(3)}

    play(world, scene, partitions=3, count=1_500)


def test_a_loop_that_breaks_commits_exactly_what_it_was_given(world: World) -> None:
    """Records that were fetched and decoded, but not given out, are read again."""

    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g") as consumer:
            count = 0
            async for _ in consumer:
                count += 1
                if count == 137:
                    break
            assert await consumer.position(T0) == 137
        async with world.consumer("reader", "t", group_id="g") as consumer:
            assert (await consumer.committed(T0))[T0] == OffsetAndMetadata(137, "", 0)
            assert values(await consumer.poll(max_records=3)) == [137, 138, 139]

    play(world, scene, count=1_000)


def test_what_a_poll_returned_is_committed_by_a_later_one(world: World) -> None:
    """At least once: while the application works on a poll's records, they are not committed."""

    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", auto_commit_interval_ms=1_000) as consumer:
            assert values(await consumer.poll(max_records=10)) == list(range(10))
            await asyncio.sleep(30)
            assert await consumer.committed(T0) == {T0: None}
            assert values(await consumer.poll(max_records=10)) == list(range(10, 20))
            await asyncio.sleep(1)
            committed = (await consumer.committed(T0))[T0]
            assert committed is not None
            assert committed.offset == 10

    play(world, scene, count=100)


def test_what_was_handed_out_is_committed_even_if_nothing_more_comes(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", auto_commit_interval_ms=1_000) as consumer:
            await poll_all(consumer, 100)
            assert await consumer.poll(3_000) == []
            committed = (await consumer.committed(T0))[T0]
            assert committed is not None
            assert committed.offset == 100

    play(world, scene, count=100)


def test_without_automatic_commits_only_what_is_committed_by_hand_counts(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", enable_auto_commit=False) as consumer:
            await poll_all(consumer, 100)
            await consumer.commit({T0: 5})
        async with world.consumer("reader", "t", group_id="g", enable_auto_commit=False) as consumer:
            assert values(await consumer.poll(max_records=1)) == [5]
            await consumer.commit()
            await consumer.commit({T0: OffsetAndMetadata(7, "a note", 0)})
            assert await consumer.committed(T0) == {T0: OffsetAndMetadata(7, "a note", 0)}

    play(world, scene, count=100)


def test_members_share_the_partitions_and_take_over_from_each_other(world: World) -> None:
    """M6: four partitions, one member, two, one again; every record once."""

    async def scene() -> None:
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

    play(world, scene, partitions=4, count=4_000)


def test_callbacks_are_told_in_order_and_may_wait(world: World) -> None:
    """A revoked callback can still commit; that is where per-partition state is saved."""

    async def scene() -> None:
        story: list[str] = []
        first = world.consumer("first", group_id="g", enable_auto_commit=False)

        async def assigned(partitions: Any) -> None:
            await asyncio.sleep(0.1)
            story.append(f"assigned {[each.partition for each in partitions]}")

        async def revoked(partitions: Any) -> None:
            await first.commit({partitions[0]: 3})
            story.append(f"revoked {[each.partition for each in partitions]}")

        first.subscribe(["t"], on_partitions_assigned=assigned, on_partitions_revoked=revoked)
        async with first:
            await first.poll(max_records=1)
            async with world.consumer("second", "t", group_id="g", enable_auto_commit=False) as second:
                while len(second.assignment()) != 1:
                    await asyncio.gather(first.poll(500, 1), second.poll(500, 1))
                assert (await second.committed(T0))[T0] == OffsetAndMetadata(3, "", -1)
        assert story[:3] == ["assigned [0, 1]", "revoked [0, 1]", "assigned [0]"] or story[:3] == [
            "assigned [0, 1]",
            "revoked [0, 1]",
            "assigned [1]",
        ]
        assert story[3].startswith("revoked")

    play(world, scene, partitions=2, count=10)


def test_a_callback_that_fails_is_raised_and_the_group_goes_on(world: World) -> None:
    async def scene() -> None:
        consumer = world.consumer("reader", group_id="g")

        def fail(_: Any) -> None:
            raise LookupError("in the application")

        consumer.subscribe("t", on_partitions_assigned=fail)
        async with consumer:
            with pytest.raises(LookupError):
                await consumer.poll(10_000)
            assert len(await poll_all(consumer, 10)) == 10

    play(world, scene, count=10)


def test_an_application_that_is_too_slow_loses_its_partitions_and_is_told(world: World) -> None:
    """KIP-62: `max.poll.interval.ms`; what it read since is read again."""

    async def scene() -> None:
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

    play(world, scene, count=10)


def test_a_static_member_that_restarts_is_not_noticed(world: World) -> None:
    """KIP-345: it finds its partition again, and the other member is not disturbed."""

    async def scene() -> None:
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

    play(world, scene, partitions=2, count=10)


def test_seeking_goes_on_from_there(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader") as consumer:
            consumer.assign([T0, T1])
            assert sorted(await poll_all(consumer, 100)) == list(range(100))
            consumer.seek(T0, 48)
            assert values(await consumer.poll()) == [96, 98]
            consumer.seek_to_beginning(T1)
            assert await consumer.position(T1) == 0
            assert values(await consumer.poll(max_records=2)) == [1, 3]
            consumer.seek_to_end()
            assert await consumer.poll(1_000) == []
            assert await consumer.position(T0) == 50
            await fill(world, 2, first=100)
            assert sorted(await poll_all(consumer, 2)) == [100, 101]

    play(world, scene, partitions=2, count=100)


def test_a_paused_partition_waits(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader") as consumer:
            consumer.assign([T0, T1])
            consumer.pause(T0)
            assert await poll_all(consumer, 50) == list(range(1, 100, 2))
            assert consumer.paused() == {T0}
            assert await consumer.poll(5_000) == []
            consumer.resume(T0)
            assert await poll_all(consumer, 50) == list(range(0, 100, 2))

    play(world, scene, partitions=2, count=100)


def test_a_poll_returns_at_most_what_was_asked_for_and_waits_no_longer_than_told(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", max_poll_records=7) as consumer:
            consumer.assign([T0])
            assert len(await consumer.poll()) == 7
            assert len(await consumer.poll(max_records=3)) == 3
            await poll_all(consumer, 10)
            started = world.now_s
            assert await consumer.poll(1_500) == []
            assert world.now_s - started == pytest.approx(1.5, abs=0.01)
            assert await consumer.poll(0) == []

    play(world, scene, count=20)


def test_a_poll_that_is_cancelled_loses_nothing(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g") as consumer:
            found: list[int] = []
            patience = 0.001
            while len(found) < 200:
                try:
                    async with asyncio.timeout(patience):
                        found += values(await consumer.poll(max_records=9))
                except TimeoutError:
                    patience *= 1.3
            assert found == list(range(200))

    play(world, scene, count=200)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_arrow_has_what_records_have(world: World, codec: str) -> None:
    pytest.importorskip("pyarrow")

    async def scene() -> None:
        await fill(world, 300, compression_type=codec, batch_size=1_000)
        async with world.consumer("reader") as consumer:
            consumer.assign([T0])
            records = [*await consumer.poll(max_records=7), *await consumer.poll(max_records=1_000)]
            consumer.seek_to_beginning()
            rows = []
            first = await consumer.poll(max_records=3)
            while len(first) + len(rows) < 300:
                batch = await consumer.poll_arrow(columns=["topic", "offset", "key", "value", "headers"])
                assert batch is not None
                rows += batch.to_pylist()
            assert await consumer.poll_arrow(100) is None
        while len(records) < 300:
            raise AssertionError("one fetch brings them all")
        assert [row["offset"] for row in rows] == list(range(3, 300))
        assert [row["value"] for row in rows] == [record.value for record in records[3:]]

    play(world, scene)


@pytest.mark.parametrize(("reset", "found"), [("earliest", [0, 1]), ("latest", [2])])
def test_without_a_committed_offset_the_reset_policy_says_where_to_start(
    world: World, reset: str, found: list[int]
) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", auto_offset_reset=reset) as consumer:
            assert values(await consumer.poll(4_000)) == ([] if reset == "latest" else found)
            if reset == "latest":
                await fill(world, 1, first=2)
                assert values(await consumer.poll()) == found

    play(world, scene, count=2)


def test_without_an_offset_and_a_policy_polling_fails(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", auto_offset_reset="none") as consumer:
            with pytest.raises(KafkaError, match="t-0 has no committed offset, and auto_offset_reset is none"):
                await consumer.poll()
        async with world.consumer("reader", auto_offset_reset="none") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 99)
            with pytest.raises(KafkaError, match="does not hold offset 99") as caught:
                await consumer.poll()
            assert caught.value.code == ErrorCode.offset_out_of_range

    play(world, scene, count=2)


def test_an_offset_that_is_gone_is_reset(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader") as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 99)
            assert await poll_all(consumer, 2) == [0, 1]

    play(world, scene, count=2)


def test_offsets_are_found_by_time(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader") as consumer:
            found = await consumer.offsets_for_times({T0: EPOCH_MS + 30, T1: EPOCH_MS + 9_999})
            assert found[T0] is not None
            assert (found[T0].offset, found[T0].timestamp) == (15, EPOCH_MS + 30)
            assert found[T1] is None
            assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
            assert await consumer.end_offsets([T0, T1]) == {T0: 50, T1: 50}

    play(world, scene, partitions=2, count=100)


def test_a_pattern_takes_in_topics_that_are_created_later(world: World) -> None:
    """SPEC 6: a rebalance is also triggered by a topic created after it was subscribed."""

    async def scene() -> None:
        consumer = world.consumer("reader", group_id="g", metadata_max_age_ms=2_000)
        consumer.subscribe(pattern="t|logs-.*")
        async with consumer:
            assert await poll_all(consumer, 5) == [0, 1, 2, 3, 4]
            await create(world, "logs-new")
            await create(world, "other")
            await fill(world, 3, topic="logs-new", first=5)
            assert await poll_all(consumer, 3) == [5, 6, 7]
            assert consumer.subscription() == {"t", "logs-new"}

    play(world, scene, count=5)


def test_a_topic_that_does_not_exist_yet_is_read_once_it_does(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "late", group_id="g", allow_auto_create_topics=False) as consumer:
            assert await consumer.poll(5_000) == []
            await create(world, "late", partitions=2)
            await fill(world, 10, topic="late")
            assert sorted(await poll_all(consumer, 10)) == list(range(10))

    play(world, scene)


def test_without_a_group_a_subscription_is_every_partition(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t") as consumer:
            assert sorted(await poll_all(consumer, 30)) == list(range(30))
            assert consumer.assignment() == {T0, T1, T2}
            assert all(map(consumer.is_at_end, consumer.assignment()))
            with pytest.raises(ConfigurationError, match="group_id"):
                await consumer.commit()

    play(world, scene, partitions=3, count=30)


def test_unsubscribing_leaves_the_group(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g") as consumer:
            await poll_all(consumer, 3)
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
            assert await consumer.poll(1_000) == []
            async with Admin("broker:9092", runtime=world.simulation.runtime("admin")) as admin:
                group = await admin.describe_group("g")
            assert (group.group_state, group.members) == ("Empty", ())
            consumer.assign([T0])
            assert await consumer.poll(1_000) == []
            consumer.seek_to_beginning()
            assert await poll_all(consumer, 3) == [0, 1, 2]

    play(world, scene, count=3)


def test_a_broker_that_restarts_is_read_on(world: World) -> None:
    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g") as consumer:
            found = await poll_all(consumer, 10, max_records=10)
            await world.kill()
            assert len(await consumer.poll(2_000, max_records=500)) <= 90
            consumer.seek(T0, 10)
            await world.start()
            await fill(world, 5, first=100)
            while len(found) < 105:
                found += values(await consumer.poll(5_000))
            assert found == list(range(105))

    play(world, scene, count=100)


class Everything:
    """An assignor of a user's own: the first member gets everything."""

    name = "everything"

    def assign(self, group: Any) -> Any:
        first, *others = sorted(group.members)
        owned = [TopicPartition(topic, number) for topic, count in group.partitions.items() for number in range(count)]
        return {first: owned, **{member: [] for member in others}}


@pytest.mark.parametrize("strategy", [Everything(), "roundrobin", ["roundrobin", "range"], "test_consumer:Everything"])
def test_assignors_are_names_objects_or_import_paths(world: World, strategy: Any, monkeypatch: Any) -> None:
    """M3: what JoinGroup votes on is the assignor's name."""
    import sys

    monkeypatch.setitem(sys.modules, "test_consumer", sys.modules[__name__])

    async def scene() -> None:
        async with world.consumer("reader", "t", group_id="g", partition_assignment_strategy=strategy) as consumer:
            assert len(await poll_all(consumer, 10)) == 10
            async with Admin("broker:9092", runtime=world.simulation.runtime("admin")) as admin:
                group = await admin.describe_group("g")
            own = isinstance(strategy, Everything) or ":" in strategy
            assert group.protocol == ("everything" if own else "roundrobin")

    play(world, scene, partitions=2, count=10)


def test_members_without_a_strategy_in_common_are_told(world: World) -> None:
    async def scene() -> None:
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

    play(world, scene, count=1)
