"""The log lines by which an operator follows topics, elections, and brokers that leave."""

import asyncio
import re

import pytest

from odradek.metadata.new_topic import NewTopic
from odradek.testing import World


def lines(caplog: pytest.LogCaptureFixture, pattern: str) -> list[tuple[str, str]]:
    """Return level and text of the matching lines, of all brokers, and forget all lines."""
    found = [(each.levelname, each.getMessage()) for each in caplog.records if re.search(pattern, each.getMessage())]
    caplog.clear()
    return found


def test_a_killed_broker_is_a_warning_of_each_survivor_and_one_that_shut_down_is_not(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    departure = "has left the cluster|^Elected leaders|more partitions"

    async def scene(world: World) -> None:
        for number in range(3):
            await world.start(number)
        topic = NewTopic(name="t", assignment={0: (1, 0, 2), 1: (2, 0, 1)}, config={"retention.ms": "9"})
        await world.broker.create_topics([topic, NewTopic(name="u", assignment={0: (2,)})])
        created = [
            ("INFO", "Created topic t with 2 partitions, replication factor 3, configuration {'retention.ms': '9'}"),
            ("INFO", "Created topic u with 1 partitions, replication factor 1, configuration {}"),
        ]
        assert lines(caplog, "topic|more partitions") == created
        await world.kill(2)
        await asyncio.sleep(1)
        gone = (
            "Broker 2 has left the cluster without a controlled shutdown: its process ended, or its session with the "
            "metadata tree did. It led 2 partitions and was in the ISR of 3; the controller elects in-sync replicas. "
            "See the log of broker 2, and start it again"
        )
        elected = (
            "Elected leaders of 1 partitions (t-1 on broker 0); the ISR of 1 others changed. "
            "1 partitions have no leader until a member of their ISR returns: u-0"
        )
        expected = [("WARNING", gone)] * 2 + [("WARNING", elected), ("INFO", "Broker 0 leads 1 more partitions: t-1")]
        assert sorted(lines(caplog, departure)) == sorted(expected)
        await world.stop(1)
        await asyncio.sleep(1)
        assert ("INFO", "Broker 1 has left the cluster; it was in no ISR") in lines(caplog, departure)
        await world.broker.controller.delete_topics(["t"])
        assert lines(caplog, "opic") == [("INFO", "Deleted topic t")]

    with caplog.at_level("INFO"):
        World(seed, brokers=3).run(scene)


def test_partitions_that_no_other_broker_can_lead_do_not_make_a_shutdown_uncontrolled(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(world: World) -> None:
        for number in range(3):
            await world.start(number)
        placed = {"alone": {0: (1,), 1: (1,)}, "pair": {0: (1, 2), 1: (2, 1)}, "shared": {0: (1, 0), 1: (0, 1)}}
        topics = [NewTopic(name=name, assignment=assignment) for name, assignment in placed.items()]
        await world.broker.create_topics(topics)
        await world.stop(2)
        await asyncio.sleep(1)
        assert (
            lines(caplog, "has left the cluster") == [("INFO", "Broker 2 has left the cluster; it was in no ISR")] * 2
        )
        await world.stop(1)
        await asyncio.sleep(1)
        stayed = (
            "Broker 1 has left the cluster. 4 of its partitions have no other live replica, and no leader until one "
            "returns: start broker 1 again"
        )
        assert lines(caplog, "has left the cluster") == [("WARNING", stayed)]

    with caplog.at_level("INFO"):
        World(seed, brokers=3).run(scene)
