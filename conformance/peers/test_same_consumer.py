"""Our consumer reads the same from Apache Kafka and from our broker, also across their restarts (M12)."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.kafka_peer import KafkaBroker
from odradek.clients import (
    Admin,
    Consumer,
    LogTruncationError,
    OffsetAndMetadata,
    Producer,
    RecordDeserializationError,
)
from odradek.model import TopicPartition
from odradek.protocol.messages.fetch_session import NO_SESSION
from odradek.testing.servers.odradek_process import ServedBroker
from tests.world.scenes import played_by

pytestmark = pytest.mark.needs("kafka")

PARTITIONS = 50
WITHIN_MS = 60_000


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that all tests of the module share."""
    folder: Path = tmp_path_factory.mktemp(request.param) / "data"
    options = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    made: KafkaBroker | ServedBroker
    if request.param == "kafka":
        made = KafkaBroker(folder, options=options, heap="384M", short_lived=True)
        made.format()
    else:
        made = ServedBroker(folder, options=options)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def topic(server: Any, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, which has ten records in each partition."""
    name = request.function.__name__

    async def fill() -> None:
        async with Admin(server.bootstrap_servers) as admin:
            await admin.create_topic(name, partitions=PARTITIONS)
        async with Producer(server.bootstrap_servers) as producer:
            for number in range(PARTITIONS):
                for value in range(10):
                    await producer.send(name, b"%d" % value, partition=number)

    asyncio.run(fill())
    return name


def consumer(servers: str, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=servers, **{"auto_offset_reset": "earliest", **settings})


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


@played_by(run)
async def test_poll_and_poll_arrow_return_every_record_of_many_partitions(*, server: Any, topic: str) -> None:
    servers = server.bootstrap_servers
    for is_arrow in (False, True):
        found: list[tuple[int, int, bytes]] = []
        async with consumer(servers) as reader:
            reader.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            while len(found) < 10 * PARTITIONS:
                if is_arrow:
                    batch = await reader.poll_arrow(WITHIN_MS, columns=["partition", "offset", "value"])
                    assert batch is not None
                    found += [tuple(row.values()) for row in batch.to_pylist()]
                else:
                    found += [(each.partition, each.offset, each.value) for each in await reader.poll(WITHIN_MS)]
            metrics = reader.metrics()
        assert sorted(found) == [(number, at, b"%d" % at) for number in range(PARTITIONS) for at in range(10)]
        assert (metrics["records_consumed_total"], metrics["records_lag_max"]) == (10 * PARTITIONS, 0)


@played_by(run)
async def test_a_session_goes_on_after_idle_fetches_and_pauses(*, server: Any, topic: str) -> None:
    servers = server.bootstrap_servers
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with consumer(servers, fetch_max_wait_ms=100) as reader, Producer(servers) as producer:
        reader.assign(partitions)
        reader.seek_to_end()
        assert await reader.poll(1_000) == []
        (session,) = reader._fetcher._sessions.values()
        session_id = session.session_id
        assert session_id != NO_SESSION
        reader.pause(*partitions[:25])
        sent = [await (await producer.send(topic, b"x", partition=number)) for number in (3, 30, 49)]
        found = [*await reader.poll(WITHIN_MS), *await reader.poll(1_000)]
        assert sorted(each.partition for each in found) == [30, 49]
        reader.resume(*partitions[:25])
        assert [each.offset for each in await reader.poll(WITHIN_MS)] == [sent[0].offset]
        assert session.session_id == session_id
        session.session_id += 1
        await producer.send(topic, b"y", partition=3)
        assert [each.value for each in await reader.poll(WITHIN_MS)] == [b"y"]


@played_by(run)
async def test_a_record_that_cannot_be_deserialized_has_its_place(*, server: Any, topic: str) -> None:
    servers = server.bootstrap_servers
    async with Producer(servers) as producer:
        bad = await (await producer.send(topic, b"{", partition=7))
    async with consumer(servers, value_deserializer=json.loads) as reader:
        reader.assign([TopicPartition(topic, 7)])
        reader.seek((topic, 7), bad.offset)
        with pytest.raises(RecordDeserializationError) as caught:
            await reader.poll(WITHIN_MS)
        assert (caught.value.partition, caught.value.offset) == (TopicPartition(topic, 7), bad.offset)


@pytest.mark.parametrize("server", ["kafka"], indirect=True)
def test_a_position_of_another_history_is_found_after_a_restart(server: Any, topic: str) -> None:
    """The commit has more records of epoch 0 than the log; Kafka's restart begins epoch 1, our broker's none."""
    first = TopicPartition(topic, 0)

    async def commit() -> int:
        async with consumer(server.bootstrap_servers, group_id="g") as member:
            (end,) = (await member.end_offsets([first])).values()
            member.assign([first])
            await member.commit({first: OffsetAndMetadata(end + 15, "", 0)})
        return end

    async def scene() -> None:
        servers = server.bootstrap_servers
        async with Producer(servers) as producer:
            for value in range(40):  # offset end + 15 is in range: only the epoch gives the truncation away
                await producer.send(topic, b"new %d" % value, partition=0)
        async with consumer(servers, group_id="g", auto_offset_reset="none") as reader:
            reader.assign([first])
            with pytest.raises(LogTruncationError) as caught:
                await reader.poll(WITHIN_MS)
            assert caught.value.position == end + 15
            assert caught.value.divergence == OffsetAndMetadata(end, "", 0)
        async with consumer(servers, group_id="g") as reader:
            reader.assign([first])
            assert (await reader.poll(WITHIN_MS, max_records=1))[0].value == b"new 0"

    end = asyncio.run(commit())
    server.stop()
    server.start()
    run(scene)
