"""Consumers with `group_protocol="consumer"` beside a broker in virtual time (M7, KIP-848)."""

import asyncio
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from tests.clients.group_world import GroupWorld
from tests.clients.scenarios import play, poll_all, values
from tests.world.scenes import played_by


@pytest.fixture
def world(seed: int) -> World:
    return GroupWorld(seed, "consumer")


@played_by(play, count=10)
async def test_a_pattern_is_sent_to_the_coordinator_in_its_syntax(world: World) -> None:
    consumer = world.consumer("reader", group_id="g")
    consumer.subscribe(pattern="(?=t)t")
    async with consumer:
        with pytest.raises(KafkaError, match="is not a valid regular expression") as caught:
            await consumer.poll(10_000)
        assert caught.value.code is ErrorCode.invalid_regular_expression
        await consumer.unsubscribe()
        consumer.subscribe(pattern="[a-t]")
        assert len(await poll_all(consumer, 10)) == 10


@played_by(play, count=10)
async def test_the_coordinators_assignor_is_a_members_choice(world: World) -> None:
    async with world.consumer("reader", "t", group_id="g", group_remote_assignor="range") as consumer:
        await consumer.poll(10_000)
        (shown,) = await described_consumer_groups(world, "g")
        assert shown.assignor_name == "range"
    async with world.consumer("other", "t", group_id="g", group_remote_assignor="sticky") as consumer:
        with pytest.raises(KafkaError) as caught:
            await consumer.poll(10_000)
        assert caught.value.code is ErrorCode.unsupported_assignor


async def described_consumer_groups(world: World, *groups: str) -> Any:
    client = await world.client()
    message = {"group_ids": list(groups), "include_authorized_operations": False}
    return (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, message, 1)).groups


@pytest.mark.parametrize(("before", "after"), [("classic", "consumer"), ("consumer", "classic")])
@played_by(play, partitions=4, count=4_000)
async def test_a_group_of_our_consumers_changes_its_protocol_and_skips_no_record(
    world: World, *, before: str, after: str
) -> None:
    """M7: member by member, with `group.consumer.migration.policy` bidirectional."""
    found: list[int] = []
    assert isinstance(world, GroupWorld)

    async def shared(*consumers: Consumer) -> None:
        while sorted(len(each.assignment()) for each in consumers) != [4 // len(consumers)] * len(consumers):
            for records in await asyncio.gather(*(each.poll(500, 5) for each in consumers)):
                found.extend(values(records))

    world.protocol = before
    first = world.consumer("first", "t", group_id="g")
    world.protocol = after
    second = world.consumer("second", "t", group_id="g")
    async with first:
        await shared(first)
        async with second:
            await shared(first, second)
            await first.close()
            await shared(second)
            while len(set(found)) < 4_000:
                found.extend(values(await second.poll(5_000)))
            (shown,) = await described_consumer_groups(world, "g")
            assert (shown.error_code == ErrorCode.none) == (after == "consumer")
    assert sorted(found) == list(range(4_000))


@played_by(play, count=10)
async def test_a_broker_without_the_protocol_is_an_error_that_says_what_to_do(world: World) -> None:
    await world.broker.stop()
    await world.start(group_coordinator_rebalance_protocols="classic")
    async with world.consumer("reader", "t", group_id="g") as consumer:
        with pytest.raises(KafkaError, match=r"group\.coordinator\.rebalance\.protocols"):
            await consumer.poll(30_000)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"session_timeout_ms": 6_000}, "session_timeout_ms has no effect"),
        ({"heartbeat_interval_ms": 100}, "heartbeat_interval_ms has no effect"),
        ({"partition_assignment_strategy": "range"}, "is for group_protocol classic"),
        ({"group_id": None}, "needs a group_id"),
        ({"group_protocol": "streams"}, "group.protocol"),
        ({"group_protocol": "classic", "group_remote_assignor": "range"}, "is for group_protocol consumer"),
    ],
)
def test_settings_of_the_other_protocol_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Consumer("t", **{"group_id": "g", "group_protocol": "consumer", **settings})
