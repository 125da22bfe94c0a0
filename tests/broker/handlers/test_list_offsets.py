"""M1: the ends of a partition, and the offset of a time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.handlers import list_offsets
from odradek.broker.log.time_lookup import TURN_BATCHES
from odradek.broker.turns import Steps, at_once
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import played

NOW_MS = 1_700_000_000_000


async def ask(client: WireClient, timestamp: int, version: int = 7, replica_id: int = -1, **more: Any) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp, **more}
    message = {
        "replica_id": replica_id,
        "isolation_level": more.get("isolation_level", 0),
        "topics": [{"name": "t", "partitions": [partition]}],
        "timeout": 0,
    }
    answer = await client.ask(ApiKey.LIST_OFFSETS, message, version)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
@played
async def test_every_version_finds_both_ends_and_a_time(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for _ in range(3):
        await client.produce("t", world.batch(b"a", b"b"))
    latest, earliest = await ask(client, -1, version), await ask(client, -2, version)
    assert (latest.offset, earliest.offset) == (6, 0)
    found = await ask(client, NOW_MS + 1, version)
    assert found.offset == 1
    nothing = await ask(client, NOW_MS + 10_000, version)
    assert nothing.offset == -1
    if version >= 4:
        assert (latest.leader_epoch, earliest.leader_epoch, found.leader_epoch) == (0, 0, 0)
        assert nothing.leader_epoch == -1


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)])
@played
async def test_special_times_are_there_from_their_versions_on(
    world: World, timestamp: int, since: int, offset: int
) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b"))
    assert (await ask(client, timestamp, since)).offset == offset
    assert (await ask(client, timestamp, since - 1)).error_code == ErrorCode.unsupported_version
    assert (await ask(client, -7, 11)).error_code == ErrorCode.unsupported_version


@played
async def test_wrong_questions_have_their_errors(world: World) -> None:
    await world.start()
    client = await world.client()
    assert (await ask(client, -1)).error_code == ErrorCode.unknown_topic_or_partition
    await client.create_topic("t")
    assert (await ask(client, -1, current_leader_epoch=5)).error_code == ErrorCode.unknown_leader_epoch
    partition = {"partition_index": 0, "timestamp": -1}
    message = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": [partition] * 2}]}
    answer = await client.ask(ApiKey.LIST_OFFSETS, message, 7)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.invalid_request] * 2


@played
async def test_replicas_and_debuggers_get_uncommitted_offsets(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b"))
    broker.partitions.leader("t", 0).replication.high_watermark = 1
    assert (await ask(client, -1)).offset == 1
    assert (await ask(client, NOW_MS + 1)).offset == -1, "it is there, and not to be seen"
    assert (await ask(client, -3)).offset == -1
    for replica in (0, -2):
        assert (await ask(client, -1, replica_id=replica)).offset == 2
        assert (await ask(client, NOW_MS + 1, replica_id=replica)).offset == 1


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
)
@played
async def test_a_leader_without_a_known_high_watermark_returns_no_end_offset(
    world: World, version: int, error: ErrorCode
) -> None:
    """KIP-207."""
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b", b"c"))
    replication = broker.partitions.leader("t", 0).replication
    replication.high_watermark, replication.start_offset = 1, 2
    assert (await ask(client, -1, version)).error_code == error
    assert (await ask(client, NOW_MS + 1, version)).error_code == error, "there is a record, committed or not"
    assert (await ask(client, NOW_MS + 9, version)).error_code == error
    assert (await ask(client, NOW_MS, version)).offset == 0
    assert (await ask(client, -2, version)).offset == 0
    assert (await ask(client, -1, version, replica_id=1)).offset == 3
    replication.high_watermark = 2
    assert (await ask(client, -1, version)).offset == 2
    assert (await ask(client, NOW_MS + 9, version)).offset == -1


@played
async def test_an_empty_partition_begins_in_the_leaders_epoch_and_has_no_times(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for timestamp in (-1, -2, -4):
        answer = await ask(client, timestamp, version=8)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, 0, -1, 0)
    for timestamp in (-3, 0, NOW_MS):
        answer = await ask(client, timestamp)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, -1, -1, -1)


@played
async def test_the_latest_record_is_the_first_of_those_with_the_largest_time(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for _ in range(2):
        await client.produce("t", world.batch(b"a", b"b", b"c", codec=Codec.GZIP))
    answer = await ask(client, -3)
    assert (answer.offset, answer.timestamp, answer.leader_epoch) == (2, NOW_MS + 2, 0)
    deleted = {"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}
    await client.ask(ApiKey.DELETE_RECORDS, {"topics": [deleted], "timeout": 1000}, 2)
    answer = await ask(client, -3)
    assert (answer.offset, answer.timestamp) == (5, NOW_MS + 2)
    assert (await ask(client, 0)).offset == 3
    assert (await ask(client, -2)).offset == 3


@played
async def test_a_search_ends_when_the_broker_no_longer_leads_the_partition(world: World) -> None:
    """Between its turns the topic may be deleted, and the files of its log with it."""
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b"))
    led = [world.broker.partitions.leader("t", 0), None]
    broker: Any = SimpleNamespace(partitions=SimpleNamespace(leader=lambda *_: led[0]))
    wanted = SimpleNamespace(partition_index=0, timestamp=NOW_MS + 10_000, current_leader_epoch=-1)
    message = SimpleNamespace(replica_id=-1, topics=[SimpleNamespace(name="t", partitions=[wanted])])

    def denied(*_: Any) -> Steps[frozenset[str]]:
        yield 1
        return frozenset()

    steps = list_offsets.handle(broker, cast("Any", SimpleNamespace(api_version=7, denied=denied)), message)
    while next(steps) < TURN_BATCHES:
        pass
    del led[0]
    answer = at_once(steps)["topics"][0]["partitions"][0]
    assert answer == {"partition_index": 0, "error_code": ErrorCode.not_leader_or_follower}
