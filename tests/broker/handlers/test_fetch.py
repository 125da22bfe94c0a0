"""M1: records come out from where one asks, at once or when they come; sessions remember what one reads."""

import asyncio
import uuid
from typing import Any

import pytest

from odradek.broker.replication.partition import Partition
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from tests.world.scenes import in_world, played


@pytest.mark.parametrize("version", range(4, 19))
@played
async def test_every_version_reads(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    created = await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b"))
    await client.produce("t", world.batch(b"c"))
    topic = created.topic_id if version >= 13 else "t"
    fetched = await client.fetch(topic, 2, version=version)
    assert world.values(fetched.records) == [b"c"]
    assert (fetched.error_code, fetched.high_watermark, fetched.last_stable_offset) == (0, 3, 3)
    assert fetched.log_start_offset == (0 if version >= 5 else -1)
    assert fetched.aborted_transactions is None


@played
async def test_a_fetch_from_the_middle_of_a_batch_returns_the_whole_batch(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a", b"b", b"c"))
    assert world.values((await client.fetch("t", 2)).records) == [b"a", b"b", b"c"]
    assert not (await client.fetch("t", 3)).records


@played
async def test_an_answer_that_has_no_room_for_more_does_not_wait_for_more(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=2)
    for partition in (0, 1):
        await client.produce("t", world.batch(b"x" * 5000), partition=partition)
    began = asyncio.get_running_loop().time()
    client.send_fetch([("t", 0, 0), ("t", 1, 0)], max_bytes=8000, min_bytes=10_000, max_wait_ms=60_000)
    answer = await client.fetch_response()
    assert asyncio.get_running_loop().time() - began < 1
    sizes = [len(each.records or b"") for topic in answer.topics for each in topic.partitions]
    assert [size > 5000 for size in sizes] == [True, False]


@played
async def test_an_answer_is_not_filled_beyond_four_mebibytes_and_does_not_wait_for_more(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=9)
    for partition in range(9):
        await client.produce("t", world.batch(b"x" * 600_000), partition=partition)
    began = asyncio.get_running_loop().time()
    wanted = [("t", partition, 0) for partition in range(9)]
    client.send_fetch(wanted, max_bytes=50 << 20, min_bytes=40 << 20, max_wait_ms=60_000)
    answer = await client.fetch_response()
    assert asyncio.get_running_loop().time() - began < 1
    sizes = [len(each.records or b"") for topic in answer.topics for each in topic.partitions]
    assert sum(size > 600_000 for size in sizes) == 6


@played
async def test_at_least_one_batch_is_given_however_large(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=2)
    for partition in (0, 1):
        await client.produce("t", world.batch(b"x" * 5000), partition=partition)
    client.send_fetch([("t", 0, 0), ("t", 1, 0)], max_bytes=100, partition_max_bytes=100)
    answer = await client.fetch_response()
    sizes = [len(each.partitions[0].records or b"") for each in answer.topics] + [
        len(each.records or b"") for topic in answer.topics for each in topic.partitions[1:]
    ]
    assert sorted(sizes)[-1] > 5000
    assert sum(size > 5000 for size in sizes) == 1


@pytest.mark.parametrize("most", [0, -1, -(2**31)])
@played
async def test_a_limit_below_zero_is_as_small_as_zero(world: World, most: int) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    await client.produce("t", world.batch(b"b"))
    for limits in ({"partition_max_bytes": most}, {"max_bytes": most}, {"max_bytes": most, "min_bytes": 1}):
        client.send_fetch([("t", 0, 0)], **limits)
        (topic,) = (await client.fetch_response()).topics
        assert topic.partitions[0].error_code == 0
        assert world.values(topic.partitions[0].records) == [b"a"]


@played
async def test_offsets_outside_the_log_are_out_of_range(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    for offset in (-1, 2, 10**12):
        assert (await client.fetch("t", offset)).error_code == ErrorCode.offset_out_of_range
    assert (await client.fetch("t", 1)).error_code == 0


@played
async def test_a_fetch_with_another_leader_epoch_is_refused(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    epoch = broker.partitions.leader("t", 0).leader_epoch
    assert (await client.fetch("t", 0, leader_epoch=epoch)).error_code == 0
    assert (await client.fetch("t", 0, leader_epoch=epoch + 1)).error_code == ErrorCode.unknown_leader_epoch
    broker.partitions.leader("t", 0).leader_epoch = epoch + 1
    assert (await client.fetch("t", 0, leader_epoch=epoch)).error_code == ErrorCode.fenced_leader_epoch


@played
async def test_partitions_that_are_not_there_have_their_errors(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert (await client.fetch("t", 0, partition=7)).error_code == ErrorCode.unknown_topic_or_partition
    assert (await client.fetch("nowhere", 0)).error_code == ErrorCode.unknown_topic_or_partition
    unknown = await client.fetch(uuid.UUID(int=9), 0, version=13)
    assert unknown.error_code == ErrorCode.unknown_topic_id


@played
async def test_read_committed_has_its_own_fields(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    fetched = await client.fetch("t", 0, isolation_level=1)
    assert list(fetched.aborted_transactions) == []
    assert world.values(fetched.records) == [b"a"]


@played
async def test_a_long_poll_is_answered_by_the_append(world: World) -> None:
    await world.start()
    reader, writer = await world.client(), await world.client()
    await writer.create_topic("t")
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader.send_fetch([("t", 0, 0)], max_wait_ms=60_000)
    await world.pass_time(1)
    await writer.produce("t", world.batch(b"a"))
    answer = await reader.fetch_response()
    assert world.values(answer.topics[0].partitions[0].records) == [b"a"]
    assert 1 <= loop.time() - began < 2


@played
async def test_a_long_poll_waits_for_min_bytes(world: World) -> None:
    broker = await world.start()
    reader, writer = await world.client(), await world.client()
    await writer.create_topic("t", partitions=2)
    size = len(world.batch(b"a"))
    reader.send_fetch([("t", 0, 0), ("t", 1, 0)], max_wait_ms=60_000, min_bytes=3 * size)
    for partition in (0, 1):
        await writer.produce("t", world.batch(b"a"), partition=partition)
        await world.pass_time(1)
    assert len(broker.purgatory) == 1
    await writer.produce("t", world.batch(b"a"))
    answer = await reader.fetch_response()
    partitions = [each for topic in answer.topics for each in topic.partitions]
    assert [len(world.values(each.records)) for each in partitions] == [2, 1]
    assert len(broker.purgatory) == 0


@played
async def test_a_long_poll_ends_with_its_time_and_gives_what_there_is(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    fetched = await client.fetch("t", 0, max_wait_ms=5000, min_bytes=100_000)
    assert world.values(fetched.records) == [b"a"]
    assert 5 <= loop.time() - began < 5.1
    assert len(broker.purgatory) == 0


@played
async def test_a_client_that_goes_leaves_nothing_in_the_purgatory(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], max_wait_ms=60_000)
    await world.pass_time(1)
    assert len(broker.purgatory) == 1
    client.transport.abort()
    await world.pass_time(1)
    assert len(broker.purgatory) == 0


@played
async def test_a_produce_on_a_connection_that_polls_is_done_at_once(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    loop = asyncio.get_running_loop()
    began = loop.time()
    client.send_fetch([("t", 0, 0)], max_wait_ms=60_000)
    client.send_produce("t", world.batch(b"a"))
    assert world.values((await client.fetch_response()).topics[0].partitions[0].records) == [b"a"]
    assert (await client.produce_response()).topics[0].partitions[0].base_offset == 0
    assert loop.time() - began < 1


@played
async def test_the_deletion_of_a_topic_completes_waiting_fetches(world: World) -> None:
    await world.start()
    reader, admin = await world.client(), await world.client()
    await admin.create_topic("t")
    reader.send_fetch([("t", 0, 0)], max_wait_ms=60_000)
    await world.pass_time(1)
    await admin.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 1000}, 5)
    answer = await reader.fetch_response()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_or_partition


@played
async def test_a_fetch_session_returns_only_changed_partitions(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=3)

    async def fetch(session: tuple[int, int], *wanted: Any, **options: Any) -> Any:
        client.send_fetch(wanted, session=session, **options)
        answer = await client.fetch_response()
        found = {each.partition: world.values(each.records) for topic in answer.topics for each in topic.partitions}
        return answer, found

    answer, found = await fetch((0, 0), ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
    session_id = answer.session_id
    assert session_id > 0
    assert found == {0: [], 1: [], 2: []}
    assert (await fetch((session_id, 1)))[1] == {}
    await client.produce("t", world.batch(b"a"), partition=1)
    assert (await fetch((session_id, 2)))[1] == {1: [b"a"]}
    assert (await fetch((session_id, 3), ("t", 1, 1)))[1] == {}
    await client.produce("t", world.batch(b"b"), partition=2)
    assert (await fetch((session_id, 4), forgotten=[("t", 2)]))[1] == {}
    answer, _ = await fetch((session_id, 4))
    assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
    answer, _ = await fetch((session_id + 1, 1))
    assert answer.error_code == ErrorCode.fetch_session_id_not_found
    answer, found = await fetch((session_id, -1), ("t", 2, 0))
    assert (answer.session_id, found) == (0, {2: [b"b"]})
    assert (await fetch((session_id, 5)))[0].error_code == ErrorCode.fetch_session_id_not_found


@played
async def test_an_overtaken_fetch_returns_nothing_and_leaves_changes_to_the_next_one(world: World) -> None:
    await world.start()
    client, writer = await world.client(), await world.client()
    await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], session=(0, 0))
    session_id = (await client.fetch_response()).session_id
    client.send_fetch([], session=(session_id, 1), max_wait_ms=600_000, min_bytes=100_000)
    await writer.produce("t", world.batch(b"a"))
    client.send_fetch([("t", 0, 1)], session=(session_id, 2), max_wait_ms=600_000, min_bytes=100_000)
    assert not (await client.fetch_response()).topics
    client.send_fetch([], session=(session_id, 3))
    assert not (await client.fetch_response()).topics, "the second was overtaken too"
    ((partition,),) = [topic.partitions for topic in (await client.fetch_response()).topics]
    assert (partition.high_watermark, partition.records) == (1, b"")


@played
async def test_a_follower_gets_the_high_watermark_again_after_a_diverging_epoch(world: World) -> None:
    """It has no use for the one that comes with the place."""
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    client.send_fetch([("t", 0, 9)], session=(0, 0), last_fetched_epoch=0)
    answer = await client.fetch_response()
    assert answer.topics[0].partitions[0].diverging_epoch == (0, 1)
    client.send_fetch([("t", 0, 1)], session=(answer.session_id, 1), last_fetched_epoch=0)
    ((partition,),) = [topic.partitions for topic in (await client.fetch_response()).topics]
    assert (partition.high_watermark, partition.records) == (1, b"")


@played
async def test_when_a_long_poll_is_over_only_partitions_with_news_are_looked_into(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_into: list[int] = []
    check = Partition.check_leader_epoch

    def note(partition: Partition, leader_epoch: int) -> None:
        looked_into.append(partition.topic_partition.partition)
        check(partition, leader_epoch)

    monkeypatch.setattr(Partition, "check_leader_epoch", note)
    broker = await world.start()
    client, writer = await world.client(), await world.client()
    await client.create_topic("t", partitions=6)
    partitions = [broker.partitions.leader("t", number) for number in range(6)]
    epoch = partitions[0].leader_epoch
    client.send_fetch([("t", number, 0) for number in range(6)], session=(0, 0), leader_epoch=epoch)
    session_id = (await client.fetch_response()).session_id
    client.send_fetch([], session=(session_id, 1), max_wait_ms=5000, min_bytes=100_000)
    await world.pass_time(1)
    looked_into.clear()
    await writer.produce("t", world.batch(b"a"), partition=1)
    partitions[2].replication.high_watermark = 5
    partitions[3].log.truncate_fully_and_start_at(7, 0)
    partitions[4].leader_epoch = epoch + 1
    broker.partitions.stop_replica(partitions[5].topic_partition, delete=False)
    answer = await client.fetch_response()
    assert sorted(looked_into) == [1, 2, 3, 4]
    found = {each.partition: each.error_code for topic in answer.topics for each in topic.partitions}
    fenced, gone = ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower
    assert found == {1: 0, 2: 0, 3: ErrorCode.offset_out_of_range, 4: fenced, 5: gone}


@played
async def test_a_session_begun_with_names_refuses_topic_ids(world: World) -> None:
    await world.start()
    client = await world.client()
    created = await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], session=(0, 0))
    session_id = (await client.fetch_response()).session_id
    client.send_fetch([(created.topic_id, 0, 0)], session=(session_id, 1), version=13)
    answer = await client.fetch_response()
    assert answer.error_code == ErrorCode.fetch_session_topic_id_error


@played
async def test_stopping_answers_long_polls(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], max_wait_ms=600_000)
    await world.pass_time(1)
    await broker.stop()
    answer = await client.fetch_response()
    assert answer is not None
    assert answer.topics[0].partitions[0].error_code == 0


@played
async def test_answers_that_are_large_come_out_as_they_went_in_while_another_client_reads_none(world: World) -> None:
    await world.start()
    writer, slow, fast = await world.client(), await world.client(), await world.client()
    await writer.create_topic("t", partitions=8)
    values = [bytes([65 + partition]) * 300_000 for partition in range(8)]
    for partition, value in enumerate(values):
        await writer.produce("t", world.batch(value), partition=partition)
    slow.send_fetch([("t", partition, 0) for partition in range(8)], max_bytes=50 << 20)
    for _ in range(3):
        for partition, value in enumerate(values):
            assert world.values((await fast.fetch("t", 0, partition=partition)).records) == [value]
    answer = await slow.fetch_response()
    found = {each.partition: world.values(each.records) for topic in answer.topics for each in topic.partitions}
    assert found == {partition: [value] for partition, value in enumerate(values)}


@in_world({"queued.max.request.bytes": "2097152", "socket.request.max.bytes": "1048576"})
async def test_small_batches_fill_answers_also_when_as_much_was_read_as_may_be_unread(world: World) -> None:
    client = await world.client()
    await client.create_topic("t")
    for _ in range(20):
        await client.produce("t", world.batch(b"x" * 16_000))
    wholes = []
    for _ in range(15):  # the limit is ten times what an answer has, and half of a batch
        await world.pass_time(1)
        client.send_fetch([("t", 0, 0)], partition_max_bytes=209_000)
        (topic,) = (await client.fetch_response()).topics
        wholes.append(len(world.values(topic.partitions[0].records)))
    assert sorted(wholes)[:2] == [1, 13], "only the last answer within the limit is small"


@in_world({"queued.max.request.bytes": "2097152", "socket.request.max.bytes": "1048576"})
async def test_long_polls_of_many_partitions_leave_memory_to_the_requests_of_others(world: World) -> None:
    """A request takes as much as its decoded entries until it is answered, and a client may wait for 24 days."""
    writer, readers = await world.client(), [await world.client() for _ in range(20)]
    await writer.create_topic("t", partitions=300)
    for reader in readers:
        reader.send_fetch([("t", number, 0) for number in range(300)], max_wait_ms=2**31 - 1)
    await world.pass_time(5)
    began_s = world.now_s
    await writer.produce("t", world.batch(b"a"), partition=7)
    assert world.now_s - began_s < 1
