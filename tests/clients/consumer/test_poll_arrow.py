"""`poll_arrow`: records of all partitions as one Arrow batch, with positions as exact as `poll`'s (M12)."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from odradek import columns
from odradek.clients import Consumer
from odradek.columns import COLUMNS
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.clients.scenarios import T0, T1, T2, create, fill, play, values
from tests.world.scenes import played_by


@pytest.fixture
def world(seed: int) -> World:
    return World(seed)


async def rows(consumer: Consumer, **options: Any) -> list[dict[str, Any]]:
    batch = await consumer.poll_arrow(10_000, **options)
    assert batch is not None
    return list(batch.to_pylist())


@played_by(play, partitions=3, count=60)
async def test_one_batch_has_the_records_of_all_partitions_and_topics(world: World) -> None:
    await create(world, "u", partitions=2)
    await fill(world, 40, topic="u")
    async with world.consumer("reader", "t", "u") as consumer:
        await consumer.poll(10_000, max_records=1)
        await asyncio.sleep(1)
        found = await rows(consumer)
        counts = Counter((row["topic"], row["partition"]) for row in found)
        assert counts == {("t", 0): 19, ("t", 1): 20, ("t", 2): 20, ("u", 0): 20, ("u", 1): 20}
        for topic, partition in counts:
            some = [row for row in found if (row["topic"], row["partition"]) == (topic, partition)]
            assert [row["offset"] for row in some] == list(range(20 - len(some), 20))
            assert [int(row["value"]) % (3 if topic == "t" else 2) for row in some] == [partition] * len(some)
            assert await consumer.position((topic, partition)) == 20
        assert set(found[0]) == set(COLUMNS)


@played_by(play, partitions=3)
async def test_chosen_columns_up_to_a_limit_of_bytes(world: World) -> None:
    """Some batch is returned, however small the limit is; the limit does not lose a record."""
    await fill(world, 300, batch_size=200)
    async with world.consumer("reader", "t") as consumer:
        small = await rows(consumer, columns=["value", "partition"], max_bytes=1)
        assert {*small[0]} == {"value", "partition"}
        assert 0 < len(small) < 30
        found = small
        while len(found) < 300:
            batch = await rows(consumer, columns=["value"], max_bytes=1_000)
            assert len(batch) < 100
            found += batch
        assert sorted(int(row["value"]) for row in found) == list(range(300))


@played_by(play, partitions=3, count=60)
async def test_polls_of_both_kinds_share_the_positions_and_paused_partitions_stay_out(world: World) -> None:
    async with world.consumer("reader") as consumer:
        consumer.assign([T0, T1, T2])
        consumer.pause(T1)
        found = values(await consumer.poll(10_000, max_records=5))
        while len(found) < 40:
            found += [int(row["value"]) for row in await rows(consumer)]
        assert not any(value % 3 == 1 for value in found)
        assert await consumer.poll_arrow(1_000) is None
        consumer.resume(T1)
        while len(found) < 60:
            found += values(await consumer.poll(10_000, max_records=7))
            if len(found) < 60:
                found += [int(row["value"]) for row in await rows(consumer, max_bytes=1)]
        assert sorted(found) == list(range(60))


ABORT = (0, b"\0\0\0\0", b"\0\0\0\0\0\0", ())


def fetched(number: int, batch: bytes, **more: Any) -> FetchedPartition:
    return FetchedPartition(number, high_watermark=100, last_stable_offset=100, records=batch, **more)


def three(value: bytes, *, base_offset: int = 0, **more: Any) -> bytes:
    """Three records with this value."""
    return bytes(encode_batch([(0, None, value, ())] * 3, base_offset=base_offset, **more))


def scripted(
    simulation: Simulation, broker: Any, partitions: list[FetchedPartition], scene: Any, **settings: Any
) -> None:
    """A consumer of partitions 0 to 2, whose first fetch has `partitions`; fetches from other offsets find nothing."""

    async def main() -> None:
        await broker.start()
        broker.topics = {"t": {0: 0, 1: 0, 2: 0}}

        def answer(request: Any) -> Any:
            wanted = {
                each.partition: each.fetch_offset for topic in request.message.topics for each in topic.partitions
            }
            found = [each for each in partitions if wanted.get(each.partition) == 0]
            return broker_answer(request, found) if found else None

        broker.answers[ApiKey.FETCH] = answer
        runtime = simulation.runtime("reader")
        given = {"check_crcs": False, **settings}
        async with Consumer(bootstrap_servers=broker.address, runtime=runtime, **given) as consumer:
            consumer.assign([T0, T1, T2])
            for each in (T0, T1, T2):
                consumer.seek(each, 0)
            await scene(consumer)

    broker_answer = settings.pop("answer_fetch")
    simulation.run(main())


def test_a_corrupt_batch_is_an_error_of_its_partition_alone(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    corrupt = bytearray(three(b"bad"))
    corrupt[61] = 0x7F  # the length of the first record
    partitions = [fetched(0, three(b"a")), fetched(1, bytes(corrupt)), fetched(2, three(b"c"))]

    async def scene(consumer: Consumer) -> None:
        found: list[bytes] = []
        errors: list[KafkaError] = []
        while len(found) < 6 or not errors:
            try:
                found += [row["value"] for row in await rows(consumer)]
            except KafkaError as error:
                errors.append(error)
        assert sorted(found) == [b"a"] * 3 + [b"c"] * 3
        assert errors[0].code is ErrorCode.corrupt_message
        assert "partition t-1" in str(errors[0])
        assert [await consumer.position(each) for each in (T0, T1, T2)] == [3, 0, 3]
        with pytest.raises(KafkaError, match="partition t-1"):
            await rows(consumer)
        consumer.seek(T1, 3)
        assert await consumer.poll_arrow(1_000) is None

    scripted(simulation, broker, partitions, scene, answer_fetch=answer_fetch)


def test_aborted_transactions_are_left_out(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    batches = [
        three(b"aborted", producer_id=9, is_transactional=True),
        three(b"kept", base_offset=3),
        bytes(encode_batch([ABORT], base_offset=6, producer_id=9, is_transactional=True, is_control=True)),
        three(b"later", base_offset=7, producer_id=9, is_transactional=True),
    ]
    partitions = [fetched(0, b"".join(batches), aborted_transactions=[(9, 0)]), fetched(1, three(b"other"))]

    async def scene(consumer: Consumer) -> None:
        found = await rows(consumer)
        assert Counter(row["value"] for row in found) == {b"kept": 3, b"later": 3, b"other": 3}
        assert [row["offset"] for row in found if row["partition"] == 0] == [3, 4, 5, 7, 8, 9]
        assert [await consumer.position(each) for each in (T0, T1)] == [10, 3]

    scripted(simulation, broker, partitions, scene, isolation_level="read_committed", answer_fetch=answer_fetch)


def test_a_decode_that_fails_for_want_of_memory_loses_no_record(
    simulation: Simulation, broker: Any, answer_fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [KafkaError(ErrorCode.corrupt_message), MemoryError()]
    decode = columns.decode_partitions

    def decode_later(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return decode(*arguments, **options)

    monkeypatch.setattr(columns, "decode_partitions", decode_later)

    async def scene(consumer: Consumer) -> None:
        with pytest.raises(MemoryError):
            await rows(consumer)
        found = await rows(consumer)
        assert Counter(row["value"] for row in found) == {b"one": 3, b"two": 3}

    partitions = [fetched(0, three(b"one")), fetched(1, three(b"two"))]
    scripted(simulation, broker, partitions, scene, answer_fetch=answer_fetch)
