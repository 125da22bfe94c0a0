"""M1: what is produced is kept, in order, once; each thing that may not happen has Kafka's error code."""

import asyncio
import struct
import uuid
from contextlib import suppress
from typing import Any

import pytest

from odradek.broker.observing import catalog
from odradek.broker.observing.observation import observe
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.produce import ProduceTopic, encode_produce_request
from odradek.simulation.world import World
from tests.world.scenes import played


@pytest.mark.parametrize("version", range(3, 14))
@played
async def test_every_version_appends_and_returns_the_offset(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    created = await client.create_topic("t")
    topic = created.topic_id if version >= 13 else "t"
    for number in range(3):
        response = await client.produce(topic, world.batch(b"a", b"b"), version=version)
        assert (response.error_code, response.base_offset) == (0, 2 * number)
        assert response.log_append_time == -1
    records = (await client.fetch("t", 0)).records
    assert world.values(records) == [b"a", b"b"] * 3


@pytest.mark.parametrize("acks", [1, -1])
@played
async def test_pipelined_requests_are_answered_in_order(world: World, acks: int) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for number in range(50):
        client.send_produce("t", world.batch(b"%d" % number), acks=acks)
    offsets = [(await client.produce_response()).topics[0].partitions[0].base_offset for _ in range(50)]
    assert offsets == list(range(50))
    assert world.values((await client.fetch("t", 0)).records) == [b"%d" % number for number in range(50)]


@played
async def test_a_large_batch_goes_through_the_writer_thread_and_keeps_its_place(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for number in range(10):
        client.send_produce("t", world.batch(b"%d" % number * (200_000 if number % 3 else 10)))
    for number in range(10):
        assert (await client.produce_response()).topics[0].partitions[0].base_offset == number
    fetched = await client.fetch("t", 0, max_bytes=10_000_000, partition_max_bytes=10_000_000)
    assert [(value or b"")[:1] for value in world.values(fetched.records)] == [b"%d" % n for n in range(10)]


@played
async def test_without_acks_there_is_no_answer_and_the_records_are_there(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    client.send_produce("t", world.batch(b"a"), acks=0)
    client.send_produce("t", world.batch(b"b"), acks=0)
    assert (await client.produce("t", world.batch(b"c"))).base_offset == 2


@played
async def test_without_acks_an_error_costs_the_connection(world: World) -> None:
    await world.start()
    client, other = await world.client(), await world.client()
    client.send_produce("unknown", world.batch(b"a"), acks=0)
    assert await client.receive() is None
    await other.create_topic("t")


def _corrupt(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


def _old_magic(records: bytearray) -> bytearray:
    records[16] = 1
    return records


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda good: None, ErrorCode.invalid_record),
        (lambda good: b"", ErrorCode.invalid_record),
        (lambda good: good + good, ErrorCode.invalid_record),
        (_corrupt, ErrorCode.corrupt_message),
        (lambda good: good[:-3], ErrorCode.invalid_record),
        (lambda good: good[:20], ErrorCode.invalid_record),
        (_old_magic, ErrorCode.invalid_record),
    ],
    ids=["null", "empty", "two batches", "wrong crc", "cut", "cut header", "old format"],
)
@played
async def test_records_that_are_not_one_whole_batch_are_refused(world: World, spoil: Any, error: ErrorCode) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    response = await client.produce("t", spoil(world.batch(b"a")))
    assert (response.error_code, response.base_offset) == (error, -1)
    assert response.error_message
    assert (await client.produce("t", world.batch(b"b"))).base_offset == 0


@played
async def test_a_batch_above_the_topics_limit_is_too_large(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", config={"max.message.bytes": "1000"})
    assert (await client.produce("t", world.batch(b"x" * 1000))).error_code == ErrorCode.message_too_large
    assert (await client.produce("t", world.batch(b"x" * 900))).error_code == 0


@played
async def test_partitions_that_are_not_there_have_their_errors(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    unknown = ErrorCode.unknown_topic_or_partition
    assert (await client.produce("t", world.batch(b"a"), partition=1)).error_code == unknown
    assert (await client.produce("nowhere", world.batch(b"a"))).error_code == unknown
    no_id = await client.produce(uuid.UUID(int=5), world.batch(b"a"), version=13)
    assert no_id.error_code == ErrorCode.unknown_topic_id
    internal = await client.produce("__consumer_offsets", world.batch(b"a"))
    assert internal.error_code == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("acks", [2, -2, 100])
@played
async def test_acks_other_than_three_are_refused(world: World, acks: int) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert (await client.produce("t", world.batch(b"a"), acks=acks)).error_code == ErrorCode.invalid_required_acks


@played
async def test_acks_all_needs_no_more_in_sync_replicas_than_there_are_replicas(world: World) -> None:
    broker = await world.start(min_insync_replicas=2)
    client = await world.client()
    await client.create_topic("t", config={"min.insync.replicas": "3"})
    await client.create_topic("of-the-broker")
    for topic in ("t", "of-the-broker"):
        assert (await client.produce(topic, world.batch(b"a"))).error_code == 0
        assert world.values((await client.fetch(topic, 0)).records) == [b"a"]
    counted = {family.metric: family.samples for family in observe(broker)}
    assert [value for _, value in counted[catalog.UNDER_MIN_ISR]] == [0]
    assert [value for _, value in counted[catalog.AT_MIN_ISR]] == [2], "as in Kafka"


@played
async def test_zstd_needs_version_7(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    response = await client.produce("t", world.batch(b"a", codec=4), version=6)
    assert response.error_code == ErrorCode.unsupported_compression_type
    assert (await client.produce("t", world.batch(b"a", codec=4), version=7)).error_code == 0


@played
async def test_log_append_time_is_returned_and_stored(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    response = await client.produce("t", world.batch(b"a"))
    assert response.log_append_time > 0
    (max_timestamp,) = struct.unpack_from(">q", (await client.fetch("t", 0)).records, 35)
    assert max_timestamp == response.log_append_time


@played
async def test_an_idempotent_producers_repetition_is_dropped_and_a_gap_refused(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    ids = [
        await client.ask(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": 1000}, version)
        for version in range(6)
    ]
    assert [answer.error_code for answer in ids] == [0] * 6
    assert len({answer.producer_id for answer in ids}) == 6
    first = {"producer_id": ids[0].producer_id, "producer_epoch": 0}
    for _ in range(2):
        response = await client.produce("t", world.batch(b"a", b"b", base_sequence=0, **first))
        assert (response.error_code, response.base_offset) == (0, 0)
    response = await client.produce("t", world.batch(b"d", base_sequence=3, **first))
    assert response.error_code == ErrorCode.out_of_order_sequence_number
    assert (await client.produce("t", world.batch(b"c", base_sequence=2, **first))).base_offset == 2
    assert world.values((await client.fetch("t", 0)).records) == [b"a", b"b", b"c"]


@played
async def test_versions_without_record_batches_cost_the_connection(world: World) -> None:
    await world.start()
    client = await world.client()
    client.send(ApiKey.PRODUCE, bytes(20), 2)
    assert await client.receive() is None


@played
async def test_acknowledged_records_survive_a_crash_and_a_stopped_broker_needs_no_recovery(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert (await client.produce("t", world.batch(b"a"), acks=1)).error_code == 0
    broker.kill()
    broker.store.abandon()
    world.tree.expire(broker.store.session_id)
    assert await client.receive() is None
    broker = await world.start()
    client = await world.client()
    assert (await client.produce("t", world.batch(b"b"))).base_offset == 1
    await broker.stop()
    await broker.store.close()
    await world.pass_time(1)
    await world.start()
    client = await world.client()
    assert world.values((await client.fetch("t", 0)).records) == [b"a", b"b"]


@played
async def test_a_broker_stops_while_clients_go_on_producing(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    answers = []

    async def produce() -> None:
        with suppress(ConnectionResetError):
            while True:
                answers.append((await client.produce_response()).topics[0].partitions[0])
                client.send_produce("t", world.batch(b"x" * 100_000))

    for _ in range(5):
        client.send_produce("t", world.batch(b"x" * 100_000))
    producing = asyncio.create_task(produce())
    await world.pass_time(0.1)
    await broker.stop()
    await broker.store.close()
    await producing
    kept = [each.base_offset for each in answers if not each.error_code]
    assert kept == list(range(len(kept)))
    assert {each.error_code for each in answers} <= {ErrorCode.none, ErrorCode.not_leader_or_follower}
    await world.start()
    client = await world.client()
    assert (await client.fetch("t", 0)).high_watermark >= len(kept)


@pytest.mark.parametrize("version", range(3, 14))
@played
async def test_bad_records_are_named_and_the_other_partitions_are_left_alone(world: World, version: int) -> None:
    await world.start()
    client = await world.client()
    compacted = await client.create_topic("c", config={"cleanup.policy": "compact"})
    plain = await client.create_topic("p")
    topics = [
        ProduceTopic(None, made.topic_id, [(0, world.batch(b"a", b"b"))])
        if version >= 13
        else ProduceTopic(name, None, [(0, world.batch(b"a", b"b"))])
        for name, made in (("c", compacted), ("p", plain))
    ]
    pieces = encode_produce_request(version, topics, acks=-1, timeout_ms=1000)
    client.send(ApiKey.PRODUCE, b"".join(pieces), version)
    bad, good = (topic.partitions[0] for topic in (await client.produce_response()).topics)
    assert (bad.error_code, bad.base_offset) == (ErrorCode.invalid_record, -1)
    assert bad.log_start_offset == (0 if version >= 5 else -1)
    assert (good.error_code, good.base_offset, list(good.record_errors)) == (0, 0, [])
    if version >= 8:
        assert [each.batch_index for each in bad.record_errors] == [0, 1]
        assert all("key" in each.message for each in bad.record_errors)
        assert "due to 2 record errors in total" in bad.error_message


@played
async def test_the_rules_of_a_topic_change_while_it_is_written(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    changes = {"message.timestamp.before.max.ms": "1000", "compression.type": "zstd", "compression.zstd.level": "9"}
    configs = [{"name": key, "config_operation": 0, "value": value} for key, value in changes.items()]
    resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
    message = {"resources": [resource], "validate_only": False}
    assert (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, message, 1)).responses[0].error_code == 0
    await world.pass_time(1)
    old = await client.produce("t", world.batch(b"b"))
    assert (old.error_code, [each.batch_index for each in old.record_errors]) == (ErrorCode.invalid_timestamp, [0])
    now_ms = world.simulation.runtime("client").clock.now_ms()
    fresh = encode_batch([(now_ms, None, b"c", ())])
    assert (await client.produce("t", fresh)).base_offset == 1
    records = (await client.fetch("t", 1)).records
    assert read_header(records).codec == Codec.ZSTD
    assert world.values(records) == [b"c"]
