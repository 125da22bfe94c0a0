"""M4: what an application and its log see of a rebalance of generation 1."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.clients.zookeeper_consumer.machine.view import Ownership
from odradek.model import ConfigurationError, UnavailableError
from odradek.simulation.world import World
from tests.clients.zookeeper_consumer.zookeeper_world import Reader, Scenario, expect, produce
from tests.world.scenes import played

Play = Callable[[Scenario], str]


@played
async def test_a_rebalance_passes_released_and_claimed_partitions_to_the_application(world: World) -> None:
    """A commit in the first callback counts: the next owner repeats no record."""
    await world.create_topic("t", 2)
    told: list[tuple[str, Ownership]] = []
    by_hand: dict[str, Any] = {"auto_commit_enable": False}
    first = Reader(world, "c1", {"t": 1}, **by_hand)

    async def releasing(owned: Ownership) -> None:
        told.append(("releasing", owned))
        await first.consumer.commit_offsets()

    first.consumer.set_consumer_rebalance_listener(
        before_releasing_partitions=releasing,
        before_starting_fetchers=lambda owned: told.append(("starting", owned)),
    )
    await first.start()
    with pytest.raises(ConfigurationError, match="set the rebalance listener before"):
        first.consumer.set_consumer_rebalance_listener()
    await produce(world, "t", (0, b"a"), (1, b"b"))
    await expect(lambda: sorted(first.read) == [b"a", b"b"])
    second = await Reader(world, "c2", {"t": 1}, **by_hand).start()
    await expect(lambda: first.owned == {0} and second.owned == {1})
    await produce(world, "t", (1, b"c"))
    await expect(lambda: second.read == [b"c"])
    both = {("t", 0): "readers_c1-0", ("t", 1): "readers_c1-0"}
    assert told == [("starting", both), ("releasing", both), ("starting", {("t", 0): "readers_c1-0"})]
    await first.stop()
    await second.stop()


@played
async def test_an_error_of_the_tree_in_a_callback_fails_the_attempt_only(world: World) -> None:
    await world.create_topic("t")
    errors = [UnavailableError("not now")]

    def starting(owned: Ownership) -> None:
        if errors:
            raise errors.pop()

    reader = Reader(world, "c", {"t": 1}, rebalance_backoff_ms=1)
    reader.consumer.set_consumer_rebalance_listener(before_starting_fetchers=starting)
    await reader.start()
    assert (reader.owned, errors) == ({0}, [])
    await reader.stop()


@played
async def test_another_error_in_a_callback_ends_the_streams_and_the_consumer_leaves(world: World) -> None:
    await world.create_topic("t")

    def fail(owned: Ownership) -> None:
        raise ZeroDivisionError

    reader = Reader(world, "c1", {"t": 1})
    reader.consumer.set_consumer_rebalance_listener(before_releasing_partitions=fail)
    await reader.start()
    other = await Reader(world, "c2", {"t": 1}).start()
    await expect(lambda: other.owned == {0})
    assert reader.consumer.state is State.CLOSED
    with pytest.raises(ZeroDivisionError):
        await anext(reader.streams[0])
    await asyncio.gather(reader.stop(), other.stop())


def test_a_rebalance_is_logged_in_the_words_of_kafka_0_8(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.create_topic("t")
        first = await Reader(world, "a", {"t": 1}).start()
        with caplog.at_level(logging.INFO, "odradek.clients"):
            second = await Reader(world, "b", {"t": 2}).start()
            await expect(lambda: first.consumer.rebalances == 2 and first.owned == {0})
        await second.stop()
        await first.stop()

    play(scenario)
    consumers = "readers_a-0, readers_b-0, readers_b-1"
    assert [text for text in caplog.messages if "readers_b" in text.split(" with consumers")[0]] == [
        "begin registering consumer readers_b in ZK",
        "end registering consumer readers_b in ZK",
        "begin rebalancing consumer readers_b try #0",
        f"Consumer readers_b rebalancing the following partitions: [0] for topic t with consumers: [{consumers}]",
        "No broker partitions consumed by consumer thread readers_b-0 for topic t",
        "No broker partitions consumed by consumer thread readers_b-1 for topic t",
        "end rebalancing consumer readers_b try #0",
    ]
    idle = [record.levelname for record in caplog.records if record.message.startswith("No broker partitions")]
    assert idle == ["WARNING", "WARNING"]
    assert "readers_a-0 attempting to claim partition 0" in caplog.messages
    assert "readers_a-0 successfully owned partition 0 for topic t" in caplog.messages
