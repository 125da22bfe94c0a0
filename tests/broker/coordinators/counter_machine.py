"""A coordinator of counters, and a partition in memory whose appends, writes and commits a test controls."""

import asyncio
import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Producer, Reply
from odradek.broker.log.validation import AppendInfo
from odradek.broker.replication.partition import ACKS_ALL, Waiter
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker, encode_marker
from odradek.protocol.batches.record_batch import assign_offset, read_header
from odradek.protocol.errors import MalformedMessageError

_TOTAL = struct.Struct(">q")


class Add(NamedTuple):
    """Add to a counter; the reply is its value afterwards."""

    number: int
    producer: Producer | None = None


class Get(NamedTuple):
    """Read a counter."""


class Clear(NamedTuple):
    """Remove all counters; the reply is their number."""

    is_atomic: bool
    is_only_records: bool = False


class Await(NamedTuple):
    """Reply with the value after the next addition, or None after `patience_ms`."""

    patience_ms: int


class AddUnsafely(NamedTuple):
    """Wait in vain, and add a number whose record cannot be encoded."""


Request = Add | Get | Clear | Await | AddUnsafely


class Total(NamedTuple):
    """A counter's value; None removes it."""

    key: str
    value: int | None


class TotalCodec:
    """The bytes of totals."""

    def encode(self, record: Total) -> tuple[bytes, bytes | None]:
        return record.key.encode(), None if record.value is None else _TOTAL.pack(record.value)

    def decode(self, key: bytes | None, value: bytes | None) -> Total | None:
        if key is None:
            return None
        if value is None:
            return Total(key.decode(), None)
        if len(value) != _TOTAL.size:
            raise MalformedMessageError(f"a total has {_TOTAL.size} bytes, not {len(value)}")
        return Total(key.decode(), _TOTAL.unpack(value)[0])


class Counters:
    """A machine. Durable: totals, and those of open transactions. Not durable: who waits."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.pending: dict[int, list[Total]] = {}
        self.waiting: dict[str, list[tuple[int, object]]] = {}
        self.elected_at_ms = -1

    @property
    def next_deadline_ms(self) -> int | None:
        return min((at_ms for each in self.waiting.values() for at_ms, _ in each), default=None)

    @property
    def size_bytes(self) -> int:
        return 100 * sum(map(len, self.waiting.values()))

    def is_read(self, request: Request) -> bool:
        return isinstance(request, Get)

    def handle(self, key: str, request: Request, to: object, now: Now) -> CoordinatorResult[Total]:
        if isinstance(request, Get):
            return CoordinatorResult(key=key, replies=[Reply(to=to, value=self.totals.get(key, 0))])
        if isinstance(request, Clear):
            return CoordinatorResult(
                key=key, records=[Total(each, None) for each in self.totals],
                replies=[Reply(to=to, value=len(self.totals))],
                is_atomic=request.is_atomic, is_only_records=request.is_only_records,
            )  # fmt: skip
        if isinstance(request, Await):
            self.waiting.setdefault(key, []).append((now.ms + request.patience_ms, to))
            return CoordinatorResult(key=key)
        if isinstance(request, AddUnsafely):
            return CoordinatorResult(key=key, records=[Total(key, 2**80)], replies=[Reply(to=to, value=None)])
        value = self.totals.get(key, 0) + request.number
        replies = [Reply(to=each, value=value) for _, each in self.waiting.pop(key, [])]
        return CoordinatorResult(
            key=key, records=[Total(key, value)], replies=[Reply(to=to, value=value), *replies],
            producer=request.producer,
        )  # fmt: skip

    def expire(self, now: Now) -> CoordinatorResult[Total] | None:
        for key, waiting in self.waiting.items():
            due = [each for each in waiting if each[0] <= now.ms]
            if due:
                self.waiting[key] = [each for each in waiting if each not in due]
                return CoordinatorResult(key=key, replies=[Reply(to=to, value=None) for _, to in due])
        return None

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[CoordinatorResult[Total]]:
        self.elected_at_ms = now.ms
        return iter(())

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[CoordinatorResult[Total]]:
        for name in old.topics.keys() - new.topics.keys():
            if name in self.totals:
                yield CoordinatorResult(key=name, records=[Total(name, None)])

    def reset(self, key: str, now: Now) -> CoordinatorResult[Total]:
        self.waiting.pop(key, None)
        return CoordinatorResult(key=key)

    def apply(self, record: Total, offset: int, producer_id: int) -> None:
        if producer_id != NO_PRODUCER:
            self.pending.setdefault(producer_id, []).append(record)
        elif record.value is None:
            self.totals.pop(record.key, None)
        else:
            self.totals[record.key] = record.value

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for record in self.pending.pop(producer_id, []):
            if committed:
                self.apply(record, -1, NO_PRODUCER)


class MemoryLog:
    """Batches with their offsets."""

    def __init__(self) -> None:
        self.most_bytes = 1 << 20
        """A larger batch is refused."""
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.written_offset = 0

    def read(self, offset: int, max_bytes: int, *, up_to_offset: int) -> bytes:
        found = [each for each in self.batches if offset < read_header(each).next_offset <= up_to_offset]
        return b"".join(found[:2])  # a piece

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if read_header(each).next_offset <= offset]
        self.log_end_offset = offset


class ControlledPartition:
    """A partition in memory. Appends are pending until `write`, and uncommitted until `commit`."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.topic_partition = TopicPartition("__toys", 0)
        self.log = log or MemoryLog()
        self.high_watermark = self.log.written_offset
        self.refusal: KafkaError | None = None
        """Why appends are refused, and known to be before they are made."""
        self.surprise: KafkaError | None = None
        """The error of the next append."""
        self._waiters: list[tuple[int, int, Waiter]] = []

    @property
    def has_only_damaged_copy(self) -> bool:
        return False

    def read_error(self, error: KafkaError) -> KafkaError:
        return error

    def append_error(self) -> KafkaError | None:
        return self.refusal

    def append_records(
        self, records: memoryview, *, acks: int, now_ms: int, from_client: bool, needs_verification: bool
    ) -> AppendInfo:
        error, self.surprise = self.refusal or self.surprise, None
        if error is not None:
            raise error
        if len(records) > self.log.most_bytes:
            raise KafkaError(ErrorCode.message_too_large)
        first = self.log.log_end_offset
        self._append(bytearray(records))
        return AppendInfo(first, self.log.log_end_offset - 1, -1, 0, False)

    def _append(self, batch: bytearray) -> None:
        assign_offset(memoryview(batch), 0, self.log.log_end_offset, 0)
        self.log.batches.append(bytes(batch))
        self.log.log_end_offset = read_header(batch).next_offset

    def append_marker(self, producer_id: int, *, committed: bool) -> int:
        """Append the marker of a transaction, and return the offset behind it."""
        marker = EndTransactionMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0)
        self._append(encode_marker(marker, producer_id=producer_id, producer_epoch=0, now_ms=0))
        return self.log.log_end_offset

    def when_reached(self, offset: int, *, acks: int, waiter: Waiter) -> None:
        self._waiters.append((offset, acks, waiter))
        asyncio.get_running_loop().call_soon(self.tell)

    def write(self) -> None:
        """Everything that is appended is in the file now."""
        self.log.written_offset = self.log.log_end_offset

    def commit(self, offset: int | None = None) -> None:
        """All, or everything before `offset`, is written and committed now."""
        self.write()
        self.high_watermark = self.log.log_end_offset if offset is None else offset
        self.tell()

    def tell(self) -> None:
        """Call the waiters whose offset is reached."""
        ends = {ACKS_ALL: self.high_watermark}
        due = [each for each in self._waiters if each[0] <= ends.get(each[1], self.log.written_offset)]
        self._waiters = [each for each in self._waiters if each not in due]
        for _, _, waiter in due:
            waiter(None)

    def lose(self) -> None:
        """Lose all records that are not written."""
        self.log.truncate(self.log.written_offset)
        self._fail(KafkaError(ErrorCode.kafka_storage_error, "No space left on device"), beyond=self.log.written_offset)

    def shrink(self) -> None:
        """Too few replicas are in sync: nothing is committed until `commit`."""
        self._fail(KafkaError(ErrorCode.not_enough_replicas_after_append), beyond=self.high_watermark)

    def resign(self) -> None:
        """Another broker leads from now on."""
        self.refusal = KafkaError(ErrorCode.not_leader_or_follower)
        self._fail(self.refusal, beyond=-1)

    def _fail(self, error: KafkaError, *, beyond: int) -> None:
        due = [each for each in self._waiters if each[0] > beyond]
        self._waiters = [each for each in self._waiters if each not in due]
        for _, _, waiter in due:
            waiter(error)
