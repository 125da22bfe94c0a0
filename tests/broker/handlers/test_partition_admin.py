"""M10: more partitions, fewer records, and what a broker tells of its partitions, logs and producers."""

from typing import Any

import pytest

from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from odradek.stores.memory import MemoryTree
from tests.broker.log.scene import maintain
from tests.world.scenes import played

HIGH_WATERMARK = -1


# ---- CreatePartitions -----------------------------------------------------------------------------------------------


async def create_partitions(
    client: WireClient, *topics: tuple[Any, ...], version: int = 3, validate_only: bool = False
) -> dict[str, ErrorCode]:
    """Topics are (name, count) or (name, count, replicas of each new partition)."""
    message = {
        "topics": [
            {
                "name": topic[0],
                "count": topic[1],
                "assignments": [{"broker_ids": replicas} for replicas in topic[2]] if len(topic) == 3 else None,
            }
            for topic in topics
        ],
        "timeout": 1000,
        "validate_only": validate_only,
    }
    answer = await client.ask(ApiKey.CREATE_PARTITIONS, message, version)
    without_text = {each.error_code for each in answer.results if each.error_message is None}
    assert without_text <= {ErrorCode.none, ErrorCode.unknown_topic_or_partition}, "clients print their own"
    return {each.name: each.error_code for each in answer.results}


@pytest.mark.parametrize("version", range(4))
@played
async def test_new_partitions_take_records_when_the_answer_comes(world: World, version: int) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", 2, {"flush.ms": "5"})
    await client.produce("t", world.batch(b"a"), partition=1)
    assert await create_partitions(client, ("t", 40), version=version) == {"t": ErrorCode.none}
    assert (await client.produce("t", world.batch(b"b"), partition=39)).base_offset == 0
    assert broker.logs.get(TopicPartition("t", 39)).config.flush_ms == 5
    assert world.values((await client.fetch("t", 0, partition=1)).records) == [b"a"]
    await broker.stop()
    broker = await world.start()
    assert len(broker.image.topics["t"].partitions) == len(broker.logs) == 40


@played
async def test_each_topic_gets_its_partitions_or_an_error(world: World) -> None:
    broker, client = await world.start(), await world.client()
    for name in "abcdef":
        await client.create_topic(name, 2)
    wanted = [
        ("a", 3, [[0]]),
        ("b", 2),
        ("c", 1),
        ("d", 4, [[0]]),
        ("e", 3, [[7]]),
        ("f", 3),
        ("f", 4),
        ("gone", 3),
    ]
    expected = {
        "a": ErrorCode.none,
        "b": ErrorCode.invalid_partitions,
        "c": ErrorCode.invalid_partitions,
        "d": ErrorCode.invalid_replica_assignment,
        "e": ErrorCode.invalid_replica_assignment,
        "f": ErrorCode.invalid_request,
        "gone": ErrorCode.unknown_topic_or_partition,
    }
    assert await create_partitions(client, *wanted, validate_only=True) == expected
    assert {len(topic.partitions) for topic in broker.image.topics.values()} == {2}
    assert await create_partitions(client, *wanted) == expected
    assert {name for name, topic in broker.image.topics.items() if len(topic.partitions) == 3} == {"a"}


# ---- DeleteRecords --------------------------------------------------------------------------------------------------


async def delete_records(
    client: WireClient, topic: str, *wanted: tuple[int, int], version: int = 2
) -> list[tuple[int, int]]:
    """`(error, low watermark)` for each `(partition, offset)`."""
    partitions = [{"partition_index": number, "offset": offset} for number, offset in wanted]
    message = {"topics": [{"name": topic, "partitions": partitions}], "timeout": 1000}
    (answer,) = (await client.ask(ApiKey.DELETE_RECORDS, message, version)).topics
    return [(each.error_code, each.low_watermark) for each in answer.partitions]


@pytest.mark.parametrize("version", range(3))
@played
async def test_records_before_an_offset_are_gone_also_after_a_crash(world: World, version: int) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", 2)
    for value in (b"a", b"b", b"c"):
        await client.produce("t", world.batch(value, value))
    assert await delete_records(client, "t", (0, 3), (1, 0), version=version) == [(0, 3), (0, 0)]
    assert (await client.fetch("t", 2)).error_code == ErrorCode.offset_out_of_range
    fetched = await client.fetch("t", 3)
    assert (fetched.log_start_offset, fetched.high_watermark) == (3, 6)
    broker.kill()
    broker.store.abandon()
    world.tree.expire(broker.store.session_id)
    broker, client = await world.start(), await world.client()
    assert (await client.fetch("t", 3)).log_start_offset == 3
    assert await delete_records(client, "t", (0, 1)) == [(0, 3)], "what is gone stays gone"
    assert await delete_records(client, "t", (0, HIGH_WATERMARK)) == [(0, 6)]
    assert world.values((await client.fetch("t", 6)).records) == []
    assert (await client.produce("t", world.batch(b"d"))).base_offset == 6


@played
async def test_segments_of_deleted_records_go_when_retention_looks(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", config={"segment.bytes": "100", "retention.ms": "-1"})
    for number in range(5):
        await client.produce("t", world.batch(b"%d" % number * 30))
    log = broker.logs.get(TopicPartition("t", 0))
    assert log.segments.bases == [0, 1, 2, 3, 4]
    await delete_records(client, "t", (0, 3))
    maintain(broker.logs, broker.runtime.clock.now_ms())
    assert log.segments.bases == [3, 4]


@played
async def test_nothing_of_a_topic_that_the_metadata_does_not_know_goes(world: World) -> None:
    """Its own configuration is not known: it might have been kept for ever, or compacted."""
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", config={"segment.bytes": "100"})
    for number in range(5):
        await client.produce("t", world.batch(b"%d" % number * 30))
    await broker.stop()
    world.tree = MemoryTree()
    world.runtime.disk.remove("/data/meta.properties")
    broker = await world.start(log_retention_ms=1, log_retention_bytes=1)
    maintain(broker.logs, broker.runtime.clock.now_ms() + 10**12)
    assert broker.logs.get(TopicPartition("t", 0)).segments.bases == [0, 1, 2, 3, 4]


@played
async def test_records_that_cannot_be_deleted_have_a_reason(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.create_topic("compacted", config={"cleanup.policy": "compact"})
    await client.create_topic("both", config={"cleanup.policy": "compact,delete"})
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    await client.produce("t", world.batch(b"a"))
    assert await delete_records(client, "t", (0, 2), (0, -2), (7, 0)) == [
        (ErrorCode.offset_out_of_range, -1),
        (ErrorCode.offset_out_of_range, -1),
        (ErrorCode.unknown_topic_or_partition, -1),
    ]
    assert await delete_records(client, "compacted", (0, 0)) == [(ErrorCode.policy_violation, -1)]
    assert await delete_records(client, "both", (0, 0)) == [(ErrorCode.none, 0)]
    assert await delete_records(client, "__consumer_offsets", (0, 0)) == [(ErrorCode.invalid_topic_exception, -1)]
    assert await delete_records(client, "gone", (0, 0)) == [(ErrorCode.unknown_topic_or_partition, -1)]


# ---- OffsetForLeaderEpoch -------------------------------------------------------------------------------------------


async def ends_of_epochs(
    client: WireClient, *wanted: tuple[int, int, int], version: int = 4
) -> list[tuple[int, int, int]]:
    """`(error, epoch, end offset)` for each `(partition, current leader epoch, epoch)` of topic `t`."""
    partitions = [
        {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
        for number, current, epoch in wanted
    ]
    message = {"replica_id": -1, "topics": [{"topic": "t", "partitions": partitions}]}
    (topic,) = (await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, version)).topics
    return [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions]


@pytest.mark.parametrize("version", [2, 3, 4])
@played
async def test_an_epoch_ends_where_the_next_one_begins(world: World, version: int) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t", 2)
    partition = broker.partitions.leader("t", 0)
    for epoch in (0, 2, 5):
        partition.leader_epoch = epoch
        await client.produce("t", world.batch(b"a", b"b"))
    assert await ends_of_epochs(client, *[(0, -1, epoch) for epoch in range(7)], version=version) == [
        (0, 0, 2),
        (0, 0, 2),
        (0, 2, 4),
        (0, 2, 4),
        (0, 2, 4),
        (0, 5, 6),
        (0, -1, -1),
    ]
    assert await ends_of_epochs(client, (0, 5, 2), (0, 4, 2), (0, 6, 2), (1, 0, 0), (2, 0, 0)) == [
        (0, 2, 4),
        (ErrorCode.fenced_leader_epoch, -1, -1),
        (ErrorCode.unknown_leader_epoch, -1, -1),
        (0, 0, 0),
        (ErrorCode.unknown_topic_or_partition, -1, -1),
    ]


@played
async def test_a_leader_that_wrote_nothing_yet_ends_the_epochs_before_it(world: World) -> None:
    broker, client = await world.start(), await world.client()
    await client.create_topic("t")
    partition = broker.partitions.leader("t", 0)
    partition.leader_epoch = 2
    assert await ends_of_epochs(client, (0, -1, 1), (0, -1, 2), (0, -1, 3)) == [(0, 1, 0), (0, 2, 0), (0, -1, -1)]
    await client.produce("t", world.batch(b"a"))
    partition.leader_epoch = 5
    assert await ends_of_epochs(client, *[(0, -1, epoch) for epoch in range(-1, 7)]) == [
        (0, -1, -1),
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 1),
        (0, 2, 1),
        (0, 2, 1),
        (0, 5, 1),
        (0, -1, -1),
    ]


# ---- DescribeProducers ----------------------------------------------------------------------------------------------


@played
async def test_describe_producers_returns_the_producers_of_a_partition(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", 2)
    await client.produce("t", world.batch(b"a"))
    for sequence in (0, 2):
        records = world.batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=sequence)
        assert (await client.produce("t", records)).error_code == ErrorCode.none
    wanted = [{"name": "t", "partition_indexes": [0, 1, 2]}, {"name": "a/b", "partition_indexes": [0]}]
    known, invalid = (await client.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": wanted}, 0)).topics
    first, second, third = known.partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 3)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp == 1_700_000_000_001
    assert (second.error_code, second.active_producers) == (ErrorCode.none, ())
    assert (third.error_code, third.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
    assert invalid.partitions[0].error_code == ErrorCode.invalid_topic_exception


# ---- DescribeLogDirs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
@played
async def test_describe_log_dirs_returns_logs_by_directory_with_their_sizes(world: World, version: int) -> None:
    world.runtime.disk.capacity_bytes = 1 << 20
    broker = await world.start(log_dirs=("/one", "/two"))
    client = await world.client()
    await client.create_topic("t", 3)
    await client.create_topic("u")
    await client.produce("t", world.batch(b"a" * 100), partition=1)

    async def described(topics: Any) -> dict[str, dict[tuple[str, int], int]]:
        answer = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics}, version)
        for directory in answer.results:
            assert directory.error_code == ErrorCode.none
            if version >= 4:
                assert 0 < directory.usable_bytes < directory.total_bytes == 1 << 20
        return {
            directory.log_dir: {
                (topic.name, each.partition_index): each.partition_size
                for topic in directory.topics
                for each in topic.partitions
                if (each.offset_lag, each.is_future_key) == (0, False)
            }
            for directory in answer.results
        }

    everything = await described(None)
    assert sorted(everything) == ["/one", "/two"]
    assert sorted(map(len, everything.values())) == [2, 2]
    sizes = everything["/one"] | everything["/two"]
    assert sizes.pop(("t", 1)) == broker.logs.get(TopicPartition("t", 1)).segments.size > 100
    assert sizes == {("t", 0): 0, ("t", 2): 0, ("u", 0): 0}
    some = await described([{"topic": "u", "partitions": [0, 7]}, {"topic": "gone", "partitions": [0]}])
    assert sorted(some["/one"] | some["/two"]) == [("u", 0)]
    assert await described([]) == {"/one": {}, "/two": {}}


# ---- DescribeTopicPartitions ----------------------------------------------------------------------------------------


async def page(client: WireClient, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    """Return a page as `{topic: partitions}`, and the cursor of the next one."""
    message = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, 0)
    shown = {
        topic.name: topic.error_code or [each.partition_index for each in topic.partitions] for topic in answer.topics
    }
    following = answer.next_cursor
    return shown, None if following is None else (following.topic_name, following.partition_index)


@played
async def test_describe_topic_partitions_returns_partitions_in_pages(world: World) -> None:
    await world.start()
    client = await world.client()
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await client.create_topic(name, count)
    assert await page(client) == ({"a": [0, 1], "b": [0, 1, 2], "c": [0]}, None)
    assert await page(client, limit=2) == ({"a": [0, 1]}, ("b", 0))
    assert await page(client, limit=2, cursor=("b", 0)) == ({"b": [0, 1]}, ("b", 2))
    assert await page(client, limit=2, cursor=("b", 2)) == ({"b": [2], "c": [0]}, None)
    assert await page(client, limit=0) == ({"a": [0]}, ("a", 1)), "a page has a partition at least"
    assert await page(client, "c", "b", limit=3) == ({"b": [0, 1, 2]}, ("c", 0))
    assert await page(client, "a", "b", cursor=("c", 0)) == (dict.fromkeys("ab", ErrorCode.invalid_request), None)
    assert await page(client, "a", "b", "gone", cursor=("gone", 3)) == (
        {"gone": ErrorCode.unknown_topic_or_partition},
        None,
    )
    assert await page(client, "a", "gone", "no/name") == (
        {
            "a": [0, 1],
            "gone": ErrorCode.unknown_topic_or_partition,
            "no/name": ErrorCode.invalid_topic_exception,
        },
        None,
    )
    assert await page(client, "a", "a", cursor=("a", -1)) == ({"a": ErrorCode.invalid_request}, None)


@played
async def test_a_page_shows_the_leader_and_the_replicas_of_a_partition(world: World) -> None:
    broker, client = await world.start(), await world.client()
    created = await client.create_topic("t")
    message = {"topics": [], "response_partition_limit": 10, "cursor": None}
    (topic,) = (await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, 0)).topics
    (partition,) = topic.partitions
    assert (topic.topic_id, topic.is_internal) == (created.topic_id, False)
    assert (partition.leader_id, partition.leader_epoch) == (broker.broker_id, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((0,), (0,), ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


@played
async def test_the_controller_has_no_registration_of_its_own(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    answer = await client.ask(ApiKey.UNREGISTER_CONTROLLER, {"controller_id": broker.broker_id}, 0)
    text = "Controller ID 0 is not currently registered."
    assert (answer.error_code, answer.error_message) == (ErrorCode["controller_id_not_registered"], text)


# ---- all of them ----------------------------------------------------------------------------------------------------


@played
async def test_administrative_requests_are_served_in_every_version(world: World) -> None:
    wanted = {
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.DELETE_GROUPS: (0, 3),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.OFFSET_DELETE: (0, 0),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.UNREGISTER_BROKER: (0, 0),
        ApiKey.UNREGISTER_CONTROLLER: (0, 0),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    }
    await world.start()
    client = await world.client()
    message = {"client_software_name": "test", "client_software_version": "1"}
    answer = await client.ask(ApiKey.API_VERSIONS, message, 3)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert {key: advertised.get(key) for key in wanted} == wanted
