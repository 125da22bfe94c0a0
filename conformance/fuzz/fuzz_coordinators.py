"""Target: records of `__consumer_offsets` and `__transaction_state`, loaded into the coordinators' machines.

An input is a stream of frames, as in `fuzz_handshakes`: records as in the target `group_records`, or markers. Whatever
a log has, a new coordinator loads it, takes over, answers requests, and writes records that the next one can load.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from conformance.fuzz.fuzz_engine import Target
from conformance.fuzz.fuzz_files import group_seeds
from conformance.fuzz.fuzz_handshakes import frames_of, mutate_frames, stream_of
from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Producer
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupDescribeRequest
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.messages import DeleteGroupRequest, DescribeRequest, FetchOffsetsRequest
from odradek.broker.groups.machine.records import GroupRecordCodec
from odradek.broker.transactions.machine.messages import (
    DescribeTransactionRequest,
    EndTransactionRequest,
    InitProducerIdRequest,
)
from odradek.broker.transactions.machine.transaction import TransactionRecordCodec
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine, TransactionSettings
from odradek.metadata.image import ClusterImage
from odradek.model import KafkaError
from odradek.protocol.errors import MalformedMessageError

_PRODUCER: Final = 7
_NOW: Final = Now(1_000, 1_790_000_000_000)
_MOST_DEADLINES: Final = 12
_PAUSE_MS: Final = 3 * 86_400_000
_RECORDS: Final = [each for each in group_seeds() if each[:1] in b"gt"]
_MARKERS: Final = (b"+", b"-")
_KINDS: Final = (b"g", b"g", b"p", b"t")


class _Coordinator:
    """A machine, and the log that it writes."""

    def __init__(self, machine: Any, codec: Any) -> None:
        self.machine = machine
        self._codec = codec
        self.log: list[tuple[bytes, bytes | None, int]] = []

    def load(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Append a record and apply it, as a coordinator that loads."""
        try:
            record = self._codec.decode(key, value)
        except MalformedMessageError:
            return
        if record is not None:
            self.log.append((key, value, producer_id))
            self.machine.apply(record, len(self.log), producer_id)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """Append a marker and apply it."""
        self.log.append((b"", b"+" if committed else b"-", producer_id))
        self.machine.end_transaction(producer_id, committed=committed)

    def take_over(self) -> None:
        """Do what follows the load, up to the first deadlines; the later ones are noticed days late."""
        for result in self.machine.on_elected(ClusterImage(), _NOW):
            self.write(result)
        for turn in range(_MOST_DEADLINES):
            if (due_ms := self.machine.next_deadline_ms) is None:
                break
            now_ms = max(due_ms, _NOW.ms) + _PAUSE_MS * (turn // 4) ** 2
            now = Now(now_ms, _NOW.wall_ms + now_ms)
            if (result := self.machine.expire(now)) is not None:
                self.write(result)

    def ask(self, key: str, request: Any) -> None:
        """Serve a request, which may be refused."""
        with suppress(KafkaError):
            self.write(self.machine.handle(key, request, "client", _NOW))

    def write(self, result: CoordinatorResult[Any]) -> None:
        """Apply a result's records, as they are read again."""
        producer_id = result.producer.producer_id if result.producer is not None else NO_PRODUCER
        for record in result.records:
            key, value = self._codec.encode(record)
            before = len(self.log)
            self.load(key, value, producer_id)
            assert len(self.log) == before + 1, f"cannot be read again: {record}"

    def successor(self, machine: Any) -> "_Coordinator":
        """Return a coordinator that has loaded this one's log into a new machine."""
        other = _Coordinator(machine, self._codec)
        for key, value, producer_id in self.log:
            if key:
                other.load(key, value, producer_id)
            else:
                other.end(producer_id, committed=value == b"+")
        return other


def _groups() -> GroupCoordinatorMachine:
    return GroupCoordinatorMachine(lambda: GroupSettings(), lambda: OffsetSettings())


def _transactions() -> TransactionMachine:
    return TransactionMachine(lambda: TransactionSettings())


def check_coordinators(data: bytes) -> None:
    """Load the records of an input, and use the coordinators that have them."""
    groups = _Coordinator(_groups(), GroupRecordCodec())
    transactions = _Coordinator(_transactions(), TransactionRecordCodec())
    for frame in frames_of(data):
        kind, size, content = frame[:1], frame[1] if len(frame) > 1 else 0, frame[2:]
        if kind in _MARKERS:
            groups.end(_PRODUCER, committed=kind == b"+")
        elif kind in _KINDS:
            target = transactions if kind == b"t" else groups
            target.load(content[:size], content[size:] or None, _PRODUCER if kind == b"p" else NO_PRODUCER)
    for coordinator in (groups, transactions):
        coordinator.take_over()
    _ask_groups(groups)
    _ask_transactions(transactions)
    loaded = transactions.successor(_transactions())
    assert loaded.machine.transactions == transactions.machine.transactions
    loaded.take_over()
    groups.successor(_groups()).take_over()


def _ask_groups(groups: _Coordinator) -> None:
    for key, group in list(groups.machine.groups.by_id.items()):
        is_consumer = isinstance(group, ConsumerGroup)
        groups.ask(key, ConsumerGroupDescribeRequest() if is_consumer else DescribeRequest())
        groups.ask(key, FetchOffsetsRequest())
        groups.ask(key, DeleteGroupRequest())


def _ask_transactions(transactions: _Coordinator) -> None:
    for key, metadata in list(transactions.machine.transactions.items()):
        producer = Producer(producer_id=metadata.producer_id, epoch=metadata.producer_epoch)
        transactions.ask(key, DescribeTransactionRequest())
        transactions.ask(key, EndTransactionRequest(producer=producer, is_commit=True, transaction_version=2))
        transactions.ask(key, InitProducerIdRequest(timeout_ms=1000, new_producer_id=9))


# ---- inputs ---------------------------------------------------------------------------------------------------------


def coordinator_seeds() -> Iterator[bytes]:
    """Yield each record alone, all of them, and offsets in a transaction that is committed or aborted."""
    for record in _RECORDS:
        yield stream_of([record])
    yield stream_of(_RECORDS)
    for marker in _MARKERS:
        yield stream_of([b"p" + _RECORDS[2][1:], marker, _RECORDS[-1], marker])


def _changed(frame: bytes, chance: random.Random) -> bytes:
    """Change a few bytes, or whether a record belongs to a transaction."""
    if chance.random() < 0.1:
        return chance.choice(_KINDS) + frame[1:]
    place = chance.randrange(len(frame) + 1)
    new = chance.choice((b"", b"\x00", b"\x01", b"\xff\xff", b"\x7f\xff\xff\xff", chance.randbytes(1)))
    return frame[:place] + new + frame[place + chance.choice((0, 1, len(new), 4)) :]


def mutate_records(data: bytes, chance: random.Random) -> bytes | None:
    """Repeat, drop, replace or change a record or a marker."""
    return mutate_frames(data, chance, lambda: chance.choice((*_RECORDS, *_MARKERS)), _changed)


TARGETS = {
    "coordinators": Target(
        check=check_coordinators,
        seeds=coordinator_seeds,
        mutate=mutate_records,
        reaches={
            "odradek.broker.groups.machine.group_coordinator_machine": 0.3,
            "odradek.broker.groups.machine.offsets": 0.3,
            "odradek.broker.transactions.machine.transaction_machine": 0.3,
        },
        runs=1000,
        longest=2048,
    ),
}
