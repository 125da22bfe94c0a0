"""The page reads messages newest first or from a position, in pieces that cursors connect, and searches them."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.clients import ConsumerRecord, CorruptRecordsError, SimpleConsumer
from odradek.model import ConfigurationError, TopicPartition
from odradek.page.messages.masking import MASKED, Masks
from odradek.page.messages.reading import Marker, Progress, Query, Unreadable, masked_record, scan
from odradek.protocol.errors import CorruptBatchError
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.world import World
from tests.world.scenes import in_world, played_by

Scene = Callable[[SimpleConsumer], Awaitable[None]]
NO_MASKS = Masks()
REASON = "a varint is cut"


def play(seed: int, scene: Scene, count: int, value: Callable[[int], bytes] = lambda number: b"v%d" % number) -> None:
    """Write messages 0 … count-1 in turn into two partitions, one a second, and play `scene`."""
    world = World(seed)

    async def scenario(_: World) -> None:
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=2)
        async with world.producer("writer") as producer:
            for number in range(count):
                await producer.send(
                    "t", value(number), b"k%d" % number, partition=number % 2, timestamp_ms=EPOCH_MS + 1000 * number
                )
        async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader")) as consumer:
            await scene(consumer)

    world.play(scenario)


class LargeMessages:
    """A consumer whose messages are all as large, and are made when they are fetched."""

    def __init__(self, *, partitions: int, count: int, size_bytes: int) -> None:
        self._partitions, self._count, self._size_bytes = partitions, count, size_bytes

    async def partitions_for_topic(self, _topic: str) -> range:
        return range(self._partitions)

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._count)

    async def fetch(self, partition: TopicPartition, offset: int, **_limits: int) -> SimpleNamespace:
        await asyncio.sleep(0)
        record = ConsumerRecord(*partition, offset, offset, b"k", b"v" * self._size_bytes, (), -1)
        return SimpleNamespace(records=(record,), markers=(), next_offset=offset + 1)


async def last(consumer: SimpleConsumer, masks: Masks = NO_MASKS, **query: Any) -> Progress:
    async for progress in scan(consumer, Query(topic="t", **query), masks):
        found = progress
    return found


def numbers(progress: Progress) -> list[int]:
    return [int(each.key[1:]) for each in progress.found]


@played_by(play, 100)
async def test_the_newest_messages_of_all_partitions_come_first(consumer: SimpleConsumer) -> None:
    assert numbers(await last(consumer, limit=5)) == [99, 98, 97, 96, 95]


@played_by(play, 100)
async def test_cursors_connect_the_pieces_without_a_gap_or_a_repetition(consumer: SimpleConsumer) -> None:
    for start, expected in (("", list(range(99, -1, -1))), ("beginning", list(range(100)))):
        read, cursor = [], ""
        for _ in range(20):
            piece = await last(consumer, start=start, cursor=cursor, limit=7)
            read += numbers(piece)
            cursor = piece.cursor
            if not cursor:
                break
        assert read == expected


@in_world()
async def test_the_newest_messages_are_those_before_the_ends_whatever_their_times(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=3)
    async with world.producer("writer") as producer:
        for number in range(90):  # two partitions tie, and the third has times of long ago
            at_ms = EPOCH_MS - 1_000_000 * (number % 3 == 2)
            await producer.send("t", b"v", b"k%d" % number, partition=number % 3, timestamp_ms=at_ms)
    async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader")) as consumer:
        first = await last(consumer, limit=9)
        assert numbers(first) == [87, 88, 84, 85, 81, 82, 89, 86, 83]
        second = await last(consumer, limit=9, cursor=first.cursor)
        assert sorted(numbers(second)) == list(range(72, 81))
        forward = await last(consumer, limit=40, start="beginning")
        assert numbers(forward)[25:31] == [0, 1, 3, 4, 6, 7], "times that tie take turns"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("10", [20, 21, 22]),
        ("-2", [96, 97, 98, 99]),
        (f"@{EPOCH_MS + 90_500}", [91, 92, 93]),
        ("end", []),
        ("1000", []),
    ],
)
@played_by(play, 100)
async def test_messages_are_read_from_a_position(consumer: SimpleConsumer, *, start: str, expected: list[int]) -> None:
    assert numbers(await last(consumer, start=start, limit=3 if len(expected) == 3 else 10)) == expected


@played_by(play, 100)
async def test_one_partition_can_be_chosen_and_an_unknown_one_is_refused(consumer: SimpleConsumer) -> None:
    assert numbers(await last(consumer, partitions=(1,), limit=2)) == [99, 97]
    with pytest.raises(ConfigurationError, match="has no partition 2: it has 2, from 0 on"):
        await last(consumer, partitions=(2,))


@played_by(play, 300)
async def test_a_search_finds_keys_and_texts_and_patterns_and_says_how_much_it_read(consumer: SimpleConsumer) -> None:
    by_key = await last(consumer, key="k7")
    assert (numbers(by_key), by_key.read, by_key.left) == ([7], 300, 0)
    assert numbers(await last(consumer, contains="v29")) == [299, 298, 297, 296, 295, 294, 293, 292, 291, 290, 29]
    assert numbers(await last(consumer, contains="^v1.$", is_pattern=True, start="beginning")) == list(range(10, 20))
    with pytest.raises(ConfigurationError, match="regular expression"):
        await last(consumer, contains="(", is_pattern=True)


@played_by(play, 300)
async def test_a_search_stops_at_its_limit_and_goes_on_at_its_cursor(consumer: SimpleConsumer) -> None:
    first = await last(consumer, contains="v2", most_read=50)
    assert first.read >= 50
    assert first.left > 0
    rest = await last(consumer, contains="v2", cursor=first.cursor)
    assert numbers(first) + numbers(rest) == [*range(299, 199, -1), *range(29, 19, -1), 2][: len(first.found) + 50]


@played_by(play, 20, lambda _: b'{"user":"ann","pin":1234}')
async def test_a_search_cannot_find_what_masks_hide(consumer: SimpleConsumer) -> None:
    masks = Masks(["pin"])
    assert numbers(await last(consumer, masks, contains="1234")) == []
    assert numbers(await last(consumer, masks, contains="ann", limit=2)) == [19, 18]
    assert numbers(await last(consumer, masks, key="k3")) == [3]


def test_masks_hide_what_headers_and_their_names_have() -> None:
    headers = (("Pin", b"1234"), ("of 4111111111111111", b"no"), ("note", b"4111111111111111"), ("user", b"ann"))
    record = ConsumerRecord("t", 0, 0, EPOCH_MS, b"k", None, headers, -1)
    shown = masked_record(record, Masks(["pin", "/[0-9]{16}/"]))
    hidden = MASKED.encode()
    assert shown.headers == (("Pin", hidden), (f"of {MASKED}", b"no"), ("note", hidden), ("user", b"ann"))
    assert masked_record(record, NO_MASKS) is record


@in_world()
async def test_a_search_cannot_find_the_headers_that_masks_hide(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t")
    async with world.producer("writer") as producer:
        await (await producer.send("t", b"v", b"k0", headers=[("pin", b"1234"), ("user", b"ann")]))
    async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader")) as consumer:
        for masks in (NO_MASKS, Masks(["pin"])):
            assert numbers(await last(consumer, masks, contains="ann")) == [0]
            assert numbers(await last(consumer, masks, contains="1234")) == ([] if masks else [0])


@pytest.mark.parametrize("query", [{}, {"contains": "v"}, {"start": "beginning"}])
def test_the_memory_of_a_scan_does_not_grow_with_the_size_of_messages(query: dict[str, str]) -> None:
    reader = LargeMessages(partitions=20, count=25, size_bytes=1 << 20)
    tracemalloc.start()
    try:
        found = asyncio.run(last(reader, limit=500, **query)).found  # type: ignore[arg-type]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 500
    assert most_bytes < 20 << 20, "each of eight readers has one message"


@in_world()
async def test_the_ends_of_transactions_are_shown_in_their_places(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t")
    async with world.producer("writer", transactional_id="writer") as producer:
        async with producer.transaction():
            await producer.send("t", b"kept")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("t", b"aborted")
                await producer.flush()
                raise ZeroDivisionError
    async with SimpleConsumer(world.servers, runtime=world.simulation.runtime("reader")) as consumer:
        entries = (await last(consumer, start="beginning")).found
        what = [each.marker.is_commit if isinstance(each, Marker) else each.value for each in entries]
        assert what == [b"kept", True, b"aborted", False]
        assert [each.offset for each in entries] == [0, 1, 2, 3]
        assert not any(isinstance(each, Marker) for each in (await last(consumer, contains="e")).found)


class SomeUnreadable(LargeMessages):
    """A consumer whose offsets 10 to 19 of each partition are in a batch that cannot be read."""

    async def fetch(self, partition: TopicPartition, offset: int, **limits: int) -> SimpleNamespace:
        if 10 <= offset < 20:
            cause = CorruptBatchError(REASON)
            raise CorruptRecordsError(partition, offset, 20, cause) from cause
        return await super().fetch(partition, offset, **limits)


@pytest.mark.parametrize("start", ["", "beginning"])
@pytest.mark.parametrize("contains", ["", "v"])
@pytest.mark.asyncio
async def test_a_batch_that_cannot_be_read_has_one_line_and_hides_no_message(start: str, contains: str) -> None:
    consumer: Any = SomeUnreadable(partitions=2, count=40, size_bytes=10)
    for limit in (500, 7):
        read, cursor = [], ""
        while True:
            piece = await last(consumer, start=start, contains=contains, cursor=cursor, limit=limit)
            read += piece.found
            if not (cursor := piece.cursor):
                break
        messages = [(each.partition, each.offset) for each in read if not isinstance(each, Unreadable)]
        expected = {(number, offset) for number in (0, 1) for offset in (*range(10), *range(20, 40))}
        assert (len(messages), set(messages)) == (60, expected)
        lines = [each for each in read if isinstance(each, Unreadable)]
        assert {(each.partition, each.last, each.reason) for each in lines} == {(0, 19, REASON), (1, 19, REASON)}
        if limit == 500:
            assert len(lines) == 2
