"""The lines about what a client waits for, which commands show after two seconds."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from odradek.clients import Producer
from odradek.clients.cluster import NoBrokerError, open_cluster
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.world.scenes import in_world


@pytest.fixture(name="lines")
def fixture_lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, "odradek.broker"), caplog.at_level(logging.INFO, "odradek.clients.waiting"):
        yield caplog


def test_a_server_that_does_not_answer_is_named_once(lines: pytest.LogCaptureFixture) -> None:
    simulation = Simulation(0)

    async def main() -> None:
        await simulation.runtime("web").network.listen(asyncio.Protocol, "web", 80)
        with pytest.raises(NoBrokerError):
            async with open_cluster("web:80", runtime=simulation.runtime("client"), default_api_timeout_ms=25_000):
                pass

    simulation.run(main())
    assert lines.messages[0] == "waiting for an answer of web:80"
    assert sum("waiting for" in line for line in lines.messages) == 1


@in_world(seed=0)
async def test_a_late_response_and_an_error_that_lasts_are_named_once(
    world: World, lines: pytest.LogCaptureFixture
) -> None:
    async def load() -> None:
        raise KafkaError(ErrorCode.coordinator_load_in_progress, "group g is loading")

    async with open_cluster(world.servers, runtime=world.simulation.runtime("client")) as cluster:
        with pytest.raises(KafkaError):
            await retrying(cluster, load, timeout_ms=8_000)
        (line,) = lines.messages
        assert line.startswith("group g is loading; trying again for ")
        connection = await cluster.connections.least_loaded()
        world.simulation.network.partition(["client"], ["broker"])
        asking = asyncio.create_task(connection.request(ApiKey.LIST_GROUPS, {"states_filter": []}))
        await asyncio.sleep(6)
        world.simulation.network.heal()
        asking.cancel()
    assert lines.messages[1:].count("broker broker:9092 has not answered LIST_GROUPS yet") == 1


def test_a_topic_that_is_not_created_is_named_once(lines: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        settings = {"max_block_ms": 8_000, "allow_auto_create_topics": False}
        async with Producer(world.servers, runtime=world.simulation.runtime("client"), **settings) as producer:
            with pytest.raises(KafkaError):
                await producer.send("nosuch", b"x")

    World(0).play(scene)
    assert [line for line in lines.messages if "nosuch" in line] == lines.messages[:1]
    assert lines.messages[0].endswith("; trying again")


def test_a_producer_without_memory_says_for_what_it_waits(lines: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        await world.create_topic("t", 1)
        settings = {"max_block_ms": 5_000, "buffer_memory": 10, "linger_ms": 0}
        async with Producer(world.servers, runtime=world.simulation.runtime("client"), **settings) as producer:
            await (await producer.send("t", b"x"))
            world.simulation.network.partition(["client"], ["broker"])
            await producer.send("t", b"x" * 100)
            with pytest.raises(UnavailableError):
                await producer.send("t", b"x" * 100)
            world.simulation.network.heal()

    World(0).play(scene)
    assert sum(line.startswith("waiting for room for a record: ") for line in lines.messages) == 1
    assert sum("has not answered PRODUCE yet" in line for line in lines.messages) == 1
