"""Reads messages of a topic from the newest backwards or from a position forwards, and searches them.

A scan reads chunks of all partitions, merges them, keeps the messages that match, and yields its progress after each
chunk. Forward, it merges by time. Backward, it takes the last message of every partition, then each one before it, and
so on, because the times of producers may tie or be wrong; what it has found is then shown by time. It ends at `limit`
messages, at `most_read` messages read, or where the partitions end. Its cursor is the address of the next messages:
`partition:offset,…`. Messages above `_LARGE_BYTES` are shortened as they are read, so the memory of a scan does not
depend on the size of messages.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

import click
import msgspec
from msgspec import Struct

from odradek.clients import ConsumerRecord, CorruptRecordsError, SimpleConsumer
from odradek.clients.leader_fetch import OffsetOutOfRangeError
from odradek.clients.simple_consumer import TransactionMarker
from odradek.model import ConfigurationError, TopicPartition
from odradek.model.texts import several_lines
from odradek.page.messages.decoding import GUESS, Decoded, decode
from odradek.page.messages.masking import MASKED, Masks, compiled
from odradek.runtime.threads import Worker
from odradek.texts.offset_specs import END, Position, position

MOST_LIMIT: Final = 500
_FIRST_STEP: Final = 25
_FIRST_CHUNK: Final = 2_500
"""Limit of the offsets that the first chunk covers, over all partitions."""
_MOST_STEP: Final = 5_000
"""Limits of the offsets of one partition that a chunk covers."""
_CHUNK_BYTES: Final = 8 << 20
"""The target size of a chunk, over all partitions."""
_FETCH_BYTES: Final = 1 << 20
_LARGE_BYTES: Final = 8 << 10
_LINE_CHARACTERS: Final = 300
_DUMPED_BYTES: Final = slice(10, 57)
"""The place of the bytes in the first row of a dump."""
_READERS: Final = 8
"""Partitions that are read at the same time."""


class Marker(NamedTuple):
    """A transaction's end, in the place of a message."""

    topic: str
    partition: int
    marker: TransactionMarker

    @property
    def offset(self) -> int:
        return self.marker.offset

    @property
    def timestamp(self) -> int:
        """The marker's time in ms."""
        return self.marker.timestamp


class Unreadable(NamedTuple):
    """A batch that cannot be read, in the place of its messages."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """The time of the message before it in its chunk, which decides on its place in a list; it is not shown."""
    last: int
    """Its last offset; `offset` if the batch's header cannot be read either."""
    reason: str


class Shortened(Struct, frozen=True, kw_only=True):
    """The place of a large message; a subclass adds the parts that are shown."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Entry = ConsumerRecord | Marker | Shortened | Unreadable
Matches = Callable[[ConsumerRecord], bool]


class _Read(NamedTuple):
    """A message, marker or unreadable batch of a chunk; `entry` is None if it does not match."""

    partition: TopicPartition
    offset: int
    timestamp: int
    size_bytes: int
    entry: Entry | None
    rank: int = 0
    """The number of the partition's messages that the scan reads before it."""


Keep = Callable[[TopicPartition, ConsumerRecord | TransactionMarker | Unreadable], _Read]

_ORDERS: Final[Mapping[int, Callable[[_Read], tuple[int, int]]]] = {
    -1: lambda each: (each.rank, -each.timestamp),
    1: lambda each: (each.timestamp, each.rank),
}
"""The order in which a scan reads backward and forward."""


def place_of(record: ConsumerRecord) -> Shortened:
    """Return the place of a large message, without the message."""
    return Shortened(topic=record.topic, partition=record.partition, offset=record.offset, timestamp=record.timestamp)


class Query(Struct, frozen=True, kw_only=True):
    """The messages that are wanted: those that match all of `key`, and `contains` as text or as RE2's pattern."""

    topic: str
    partitions: tuple[int, ...] = ()
    """All if empty."""
    start: str = ""
    """A POSITION of `offset_specs`; the newest messages if it is empty."""
    cursor: str = ""
    key: str | None = None
    contains: str = ""
    is_pattern: bool = False
    limit: int = 50
    most_read: int = 100_000

    @property
    def is_search(self) -> bool:
        """Whether messages are left out that do not match."""
        return self.key is not None or bool(self.contains)

    @property
    def is_backward(self) -> bool:
        """Whether the newest messages come first."""
        return not self.start


class Progress(Struct, frozen=True, kw_only=True):
    """The messages that a scan has found, and how much it has read."""

    found: Sequence[Entry]
    """Without markers in a search."""
    read: int
    read_bytes: int
    left: int
    """The offsets that are not yet read."""
    cursor: str
    is_done: bool
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    """The first and the end offset of each partition."""


async def scan(
    consumer: SimpleConsumer,
    query: Query,
    masks: Masks,
    shorten: Callable[[ConsumerRecord], Shortened] = place_of,
    *,
    reading: asyncio.Semaphore | None = None,
    worker: Worker | None = None,
) -> AsyncIterator[Progress]:
    """Yield the progress after each chunk, with large messages as `shorten` returns them.

    `reading` limits the chunks that are read at the same time; `worker` compares, masks and shortens their messages.

    Raises `ConfigurationError` for a wrong query.
    """
    known = await consumer.partitions_for_topic(query.topic)
    partitions = [TopicPartition(query.topic, number) for number in _wanted(query, known)]
    starts, ends = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
    places = await _places(consumer, query, starts, ends)
    direction = -1 if query.is_backward else 1
    limits = starts if query.is_backward else ends
    kept = _keeper(query, _matcher(query, masks), shorten, limits)
    found: list[_Read] = []
    ranks = Counter[TopicPartition]()
    read = read_bytes = 0
    step = max(1, min(_FIRST_STEP, _FIRST_CHUNK // max(len(partitions), 1)))

    def progress(*, is_done: bool) -> Progress:
        left = sum(abs(limits[each] - place) for each, place in places.items())
        return Progress(
            found=_by_time(found) if query.is_backward else tuple(each.entry for each in found if each.entry),
            read=read,
            read_bytes=read_bytes,
            left=left,
            cursor=",".join(f"{each.partition}:{place}" for each, place in places.items()) if left else "",
            is_done=is_done,
            starts={each.partition: offset for each, offset in starts.items()},
            ends={each.partition: offset for each, offset in ends.items()},
        )

    while True:
        unread = [each for each in partitions if places[each] != limits[each]]
        if not unread or len(found) >= query.limit or read >= query.most_read:
            yield progress(is_done=True)
            return
        ranges = {each: _range(places[each], limits[each], step, direction) for each in unread}
        async with reading or nullcontext():
            chunks = await _read(consumer, ranges, kept, worker)
        in_order = [
            [each._replace(rank=rank) for rank, each in enumerate(chunk[::direction], ranks[partition])]
            for partition, chunk in chunks.items()
        ]
        ranks.update({partition: len(chunk) for partition, chunk in chunks.items()})
        chunk_read = chunk_bytes = 0
        for each in heapq.merge(*in_order, key=_ORDERS[direction]):
            places[each.partition] = each.offset if query.is_backward else each.offset + 1
            chunk_read += 1
            chunk_bytes += each.size_bytes
            if each.entry is not None:
                found.append(each)
                if len(found) == query.limit:
                    break
        else:
            for partition, (first, end) in ranges.items():
                places[partition] = first if query.is_backward else end
        read, read_bytes = read + chunk_read, read_bytes + chunk_bytes
        step = _next_step(step, len(unread), chunk_read, chunk_bytes)
        yield progress(is_done=False)


def _keeper(
    query: Query, matches: Matches, shorten: Callable[[ConsumerRecord], Shortened], limits: Mapping[TopicPartition, int]
) -> Keep:
    """Return the function that makes what a scan keeps of a message, a marker or an unreadable batch."""
    unreadable: set[tuple[TopicPartition, int]] = set()

    def kept(partition: TopicPartition, each: ConsumerRecord | TransactionMarker | Unreadable) -> _Read:
        if isinstance(each, Unreadable):  # chunks may divide a batch, which has one line
            is_known = (partition, each.last) in unreadable
            unreadable.add((partition, each.last))
            offset = each.offset if query.is_backward else min(each.last, limits[partition] - 1)
            return _Read(partition, offset, each.timestamp, 0, None if is_known else each)
        if isinstance(each, TransactionMarker):
            marker = None if query.is_search else Marker(*partition, each)
            return _Read(partition, each.offset, each.timestamp, 0, marker)
        size = record_bytes(each)
        found = None if not matches(each) else each if size <= _LARGE_BYTES else shorten(each)
        return _Read(partition, each.offset, each.timestamp, size, found)

    return kept


def _by_time(found: Iterable[_Read]) -> tuple[Entry, ...]:
    """Return the entries of `found`, the newest first; those of one partition stay in the order of their offsets."""
    partitions: dict[TopicPartition, list[_Read]] = {}
    for each in found:
        partitions.setdefault(each.partition, []).append(each)
    merged = heapq.merge(*partitions.values(), key=lambda each: (-each.timestamp, each.rank))
    return tuple(each.entry for each in merged if each.entry is not None)


def _next_step(step: int, partitions: int, records: int, size_bytes: int) -> int:
    """Return the number of offsets of the next chunk, so that it has about `_CHUNK_BYTES`; gaps are passed quickly."""
    if not records:
        return min(step * 8, 1 << 40)
    each = max(size_bytes // records, 1)
    return max(1, min(_CHUNK_BYTES // each // partitions, step * 8, _MOST_STEP))


def _range(place: int, limit: int, step: int, direction: int) -> tuple[int, int]:
    return (max(place - step, limit), place) if direction < 0 else (place, min(place + step, limit))


async def _read(
    consumer: SimpleConsumer,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    kept: Keep,
    worker: Worker | None,
) -> dict[TopicPartition, list[_Read]]:
    slots = asyncio.Semaphore(_READERS)

    async def read(partition: TopicPartition, first: int, end: int) -> list[_Read]:
        entries: list[_Read] = []
        async with slots:
            while first < end:
                try:
                    fetched = await consumer.fetch(partition, first, max_bytes=_FETCH_BYTES, max_wait_ms=0)
                except OffsetOutOfRangeError:  # retention has deleted them meanwhile
                    first = max((await consumer.beginning_offsets([partition]))[partition], first + 1)
                    continue
                except CorruptRecordsError as error:
                    last = error.offset if error.next_offset is None else error.next_offset - 1
                    timestamp = entries[-1].timestamp if entries else 0
                    reason = str(error.__cause__ or error)
                    entries.append(kept(partition, Unreadable(*partition, error.offset, timestamp, last, reason)))
                    if error.next_offset is None:
                        break
                    first = error.next_offset
                    continue

                def keep(records: Sequence[ConsumerRecord] = fetched.records) -> list[_Read]:
                    return [kept(partition, each) for each in records if each.offset < end]

                entries += keep() if worker is None else await worker.submit(keep)
                if fetched.markers:
                    entries += (kept(partition, each) for each in fetched.markers if each.offset < end)
                    entries.sort(key=lambda each: each.offset)
                if fetched.next_offset <= first:
                    break
                first = fetched.next_offset
        return entries

    chunks = await asyncio.gather(*(read(each, *ends) for each, ends in ranges.items()))
    return dict(zip(ranges, chunks, strict=True))


def check_partition(topic: str, partition: int, known: Sequence[int]) -> None:
    """Raise `ConfigurationError` if a topic of the partitions `known` has no such partition."""
    if partition not in known:
        raise ConfigurationError(f"the topic {topic} has no partition {partition}: it has {len(known)}, from 0 on")


def _wanted(query: Query, known: Sequence[int]) -> Sequence[int]:
    for number in query.partitions:
        check_partition(query.topic, number, known)
    return query.partitions or known


async def _places(
    consumer: SimpleConsumer, query: Query, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of each partition where the scan begins: backward ends are exclusive."""
    if query.cursor:
        given = _cursor(query.cursor)
        wanted = {each: given.get(each.partition, ends[each] if query.is_backward else starts[each]) for each in ends}
    else:
        wanted = dict(await _offsets(consumer, _position(query.start) if query.start else END, starts, ends))
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}


async def _offsets(
    consumer: SimpleConsumer,
    place: Position,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    if place.kind == "time":
        found = await consumer.offsets_for_times(dict.fromkeys(ends, place.value))
        return {each: ends[each] if at is None else at.offset for each, at in found.items()}
    if place.kind == "last":
        return {each: end - place.value for each, end in ends.items()}
    if place.kind == "offset":
        return dict.fromkeys(ends, place.value)
    return starts if place.kind == "beginning" else ends


def _position(text: str) -> Position:
    try:
        return position(text)
    except click.UsageError as error:
        raise ConfigurationError(error.message) from None


def _cursor(text: str) -> dict[int, int]:
    pairs = [each.partition(":") for each in text.split(",")]
    if not all(
        number.isdecimal() and offset.isdecimal() and len(number) < 11 and len(offset) < 20
        for number, _, offset in pairs
    ):
        raise ConfigurationError(f"the cursor {text[:40]!r} is not partition:offset,…")
    return {int(number): int(offset) for number, _, offset in pairs}


def _matcher(query: Query, masks: Masks) -> Matches:
    """Return the function that decides on a message. With masks, it compares masked texts, so that it tells no more."""
    if not query.is_search:
        return lambda _: True
    pattern = compiled(query.contains) if query.is_pattern else None
    needle = query.contains.encode()
    key = None if query.key is None else query.key.encode()

    def contains(data: bytes) -> bool:
        return pattern.search(data) is not None if pattern is not None else needle in data

    def matches(record: ConsumerRecord) -> bool:
        if key is not None:
            is_equal = _masked(record, "key", masks) == query.key if masks else record.key == key
            if not is_equal:
                return False
        return not query.contains or any(contains(each) for each in _texts(record, masks))

    return matches


def _texts(record: ConsumerRecord, masks: Masks) -> list[bytes]:
    masked = masked_record(record, masks)
    headers = [part for name, value in masked.headers for part in (name.encode(), value)]
    return [each for each in (masked.key, masked.value, *headers) if each is not None]


def masked_record(record: ConsumerRecord, masks: Masks) -> ConsumerRecord:
    """Return the record with masked texts of its key, value and headers; the record itself without masks."""
    if not masks:
        return record
    key, value = (
        None if text is None else text.encode() for text in (_masked(record, part, masks) for part in ("key", "value"))
    )
    masked = (masks.header(name, header_text(data)) for name, data in record.headers)
    return record._replace(key=key, value=value, headers=tuple((name, text.encode()) for name, text in masked))


def _masked(record: ConsumerRecord, part: str, masks: Masks) -> str | None:
    data: bytes | None = getattr(record, part)
    if data is None:
        return None
    return MASKED if masks.needs_schema(f"{record.topic}.{part}") else text_of(shown(data, GUESS, masks))


def shown(
    data: bytes | None,
    name: str,
    masks: Masks,
    schemas: Mapping[str, Any] | None = None,
    *,
    most: int | None = None,
) -> Decoded:
    """Return a key or value as the page shows it. With masks, only formats that know fields may be chosen.

    `most` is that of `decode`, except with masks, which need the whole.
    """
    if not masks:
        return decode(data, name, schemas, most=most)
    return masks.apply(decode(data, GUESS if name in {"text", "hex"} else name, schemas))


def text_of(decoded: Decoded) -> str:
    if not decoded.has_tree:
        return decoded.text
    return msgspec.json.encode(decoded.tree).decode()


def line_of(decoded: Decoded) -> str:
    """Return the beginning of a key or value in one line; of a dump, its first bytes."""
    text = text_of(decoded)
    if decoded.format == "hex":
        text = text[_DUMPED_BYTES] or text
    return several_lines(" ".join(text[:_LINE_CHARACTERS].split()))


def header_text(value: bytes | None) -> str:
    return "" if value is None else several_lines(value.decode(errors="replace"))


def record_bytes(record: ConsumerRecord) -> int:
    """Return the size of a message's key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
