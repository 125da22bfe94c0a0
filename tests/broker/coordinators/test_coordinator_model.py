"""Any order of requests, commits, failures and elections: a context's replies and state are those of its log (M6).

The context runs on a `VirtualLoop`."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.coordinators.coordinator_context import CoordinatorState
from odradek.broker.coordinators.machine import NO_PRODUCER, Producer
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import decode_records
from tests.broker.coordinators.counter_machine import Add, Await, Counters, Get, MemoryLog, TotalCodec
from tests.broker.coordinators.test_coordinator_context import Scene, play
from tests.world.scenes import played_by

KEYS = st.sampled_from("ab")
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), KEYS, st.integers(1, 9)),
    st.tuples(st.just("add in a transaction"), KEYS, st.integers(1, 9)),
    st.tuples(st.just("mark"), st.booleans()),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("await"), KEYS),
    st.tuples(st.just("write")),
    st.tuples(st.just("commit"), st.integers(0, 3)),
    st.tuples(st.just("lose")),
    st.tuples(st.just("shrink")),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("surprise")),
    st.tuples(st.just("elect")),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.5, 6.0])),
)


def totals_of(log: MemoryLog, end_offset: int) -> dict[str, int]:
    """Return what the records before an offset say, by a machine of their own."""
    machine, codec = Counters(), TotalCodec()
    for batch in log.batches:
        header = read_header(batch)
        if header.is_control and header.base_offset < end_offset:
            marker = decode_marker(batch)
            assert marker is not None
            machine.end_transaction(header.producer_id, committed=marker.type is ControlType.COMMIT)
        if header.is_control:
            continue
        for each in decode_records(memoryview(batch)):
            record = codec.decode(each.key, each.value)
            assert record is not None
            if each.offset < end_offset:
                machine.apply(record, each.offset, header.producer_id if header.is_transactional else NO_PRODUCER)
    return machine.totals


class Witness:
    """A scene, and the requests that wait in it with what they asked for."""

    def __init__(self, at: Scene) -> None:
        self.at = at
        self.asked: list[tuple[str, str, asyncio.Future[object]]] = []
        self.promised: list[tuple[str, object]] = []
        """Acknowledged additions."""

    async def perform(self, operation: tuple[Any, ...]) -> None:
        at, (name, *arguments) = self.at, operation
        if name == "add":
            self.asked.append(("add", arguments[0], at.context.submit(arguments[0], Add(arguments[1]))))
        elif name == "add in a transaction":
            request = Add(arguments[1], Producer(producer_id=7, epoch=0))
            self.asked.append(("pending", arguments[0], at.context.submit(arguments[0], request)))
        elif name == "mark" and at.partition.refusal is None:
            end_offset = at.partition.append_marker(7, committed=arguments[0])
            at.context.marker_appended(7, end_offset, committed=arguments[0])
        elif name == "mark":
            pass
        elif name == "get":
            self.asked.append(("get", arguments[0], at.context.submit(arguments[0], Get())))
        elif name == "await":
            self.asked.append(("await", arguments[0], at.context.submit(arguments[0], Await(2_000))))
        elif name == "commit":
            start, end = at.partition.high_watermark, at.partition.log.log_end_offset
            at.partition.commit(min(start + arguments[0], end) if arguments[0] else end)
        elif name == "refuse":
            at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas) if arguments[0] else None
        elif name == "surprise":
            at.partition.surprise = KafkaError(ErrorCode.message_too_large)
        elif name == "elect":
            at.partition.write()
            log, high_watermark = at.partition.log, at.partition.high_watermark
            at.context.unload()
            at.partition.resign()
            at.partition = type(at.partition)(log)
            at.partition.high_watermark = high_watermark
            at.context = at.new_context()
            at.context.start()
        elif name == "pass":
            await asyncio.sleep(arguments[0])
        else:
            getattr(at.partition, name)()
        await asyncio.sleep(0.001)
        self.check()

    def check(self) -> None:
        """Live state equals loaded state, and no reply shows what is not committed."""
        at = self.at
        if at.context.state is CoordinatorState.ACTIVE:
            assert at.machine.totals == totals_of(at.partition.log, at.partition.log.log_end_offset)
        for entry in [each for each in self.asked if each[2].done()]:
            self.asked.remove(entry)
            kind, key, future = entry
            if future.exception() is None:
                value = future.result()
                if kind == "add":
                    self.promised.append((key, value))
                elif kind == "get":
                    assert value in self.committed_values(key)
        for key, value in self.promised:
            assert value in self.committed_values(key)

    def committed_values(self, key: str) -> set[object]:
        """Return every value that a counter had in what is committed."""
        log, end = self.at.partition.log, self.at.partition.high_watermark
        return {0} | {totals_of(log, offset).get(key, 0) for offset in range(end + 1)}


@settings(max_examples=50, deadline=None)
@given(operations=st.lists(OPERATIONS, min_size=5, max_size=40))
@played_by(play)
async def test_any_interleaving_equals_its_log(at: Scene, *, operations: list[tuple[Any, ...]]) -> None:
    await at.start()
    witness = Witness(at)
    for operation in operations:
        await witness.perform(operation)
    at.partition.refusal = at.partition.surprise = None
    at.partition.commit()
    await at.until_active()
    await asyncio.sleep(10)
    witness.check()
    assert witness.asked == [], "everybody has an answer in the end"
    for key in "ab":
        assert await at.total(key) == totals_of(at.partition.log, at.partition.log.log_end_offset).get(key, 0)
