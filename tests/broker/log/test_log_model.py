"""A log against a model of it, a Python list of batches, in any order of operations that Hypothesis finds. Row M1."""

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.log.inspection.running_log import deviations
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.producers.producer_state import REMEMBERED_BATCHES
from odradek.broker.turns import at_once
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import assign_offset, iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival

START_MS = 1_800_000_000_000


class Batch(NamedTuple):
    """A batch of the model: its bytes as in the log, and its records' times."""

    first_offset: int
    data: bytes
    times: tuple[int, ...]
    sequence: int

    @property
    def next_offset(self) -> int:
        return self.first_offset + len(self.times)


class LogModel(RuleBasedStateMachine):
    """`batches` is the log from its first segment on, `written` the offset up to which it may be read."""

    @initialize(
        segment_bytes=st.sampled_from([400, 700, 3000, 100_000]),
        interval=st.sampled_from([0, 100, 1000]),
        retention_bytes=st.sampled_from([-1, 500, 2000]),
        seed=st.integers(0, 999),
    )
    def open(self, segment_bytes: int, interval: int, retention_bytes: int, seed: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=interval, retention_bytes=retention_bytes, segment_ms=5000
        )
        self.disk = MemoryDisk(random.Random(seed))
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.now_ms = START_MS
        self.batches: list[Batch] = []
        self.written = 0
        self.start = 0
        self.epoch = 0
        self.sequences = [(0, 0)]
        """Up to which offset the producer came with which sequence number due, also of batches that retention took."""
        self.log = self.reopened(clean=False)

    def reopened(self, *, clean: bool) -> Log:
        return Log.open(
            self.disk,
            "/data/t-0",
            self.config,
            now_ms=self.now_ms,
            clean=clean,
            recovery_point=self.log.writer.recovery_point if hasattr(self, "log") else 0,
            log_start_offset=self.start,
        )

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.log.log_end_offset

    def forget_from(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.sequences = [item for item in self.sequences if item[0] <= offset]

    def files(self) -> dict[str, bytes]:
        names = [name for name in self.disk.list("/data/t-0") if name.endswith(("log", "index"))]
        return {name: self.disk.read_file(f"/data/t-0/{name}") for name in names}

    # ---- what is done -------------------------------------------------------------------------------------------

    @rule(
        ages=st.lists(st.integers(-300, 300), min_size=1, max_size=3),
        size=st.integers(0, 90),
        numbered=st.booleans(),
        elapsed_ms=st.integers(0, 400),
    )
    def append(self, ages: list[int], size: int, numbered: bool, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        times = tuple(self.now_ms + age for age in ages)
        sequence = self.sequences[-1][1] if numbered else -1
        producer = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence} if numbered else {}
        data = encode_batch([(time_ms, None, b"v" * size, ()) for time_ms in times], **producer)
        first = self.log.log_end_offset
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert (info.first_offset, info.last_offset, info.duplicate) == (first, first + len(times) - 1, False)
        self.batches.append(Batch(first, bytes(data), times, sequence))
        if numbered:
            self.sequences.append((first + len(times), sequence + len(times)))

    @rule(back=st.integers(1, REMEMBERED_BATCHES + 2))
    def append_again(self, back: int) -> None:
        """A repeated batch is answered with its old offsets; one that is long gone is refused."""
        numbered = [batch for batch in self.batches if batch.sequence >= 0]
        if len(numbered) < back:
            return
        batch = numbered[-back]
        end = self.log.log_end_offset
        try:
            data = bytearray(batch.data)
            assign_offset(data, 0, 0, -1)
            info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        except KafkaError as error:
            refusal = error.code
            assert refusal == ErrorCode.out_of_order_sequence_number
            assert back > 1, "the last one is never forgotten"
        else:
            assert (info.first_offset, info.duplicate) == (batch.first_offset, True)
            assert back <= REMEMBERED_BATCHES
        assert self.log.log_end_offset == end

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def write(self) -> None:
        self.log.write()
        self.written = self.log.log_end_offset

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.written = self.log.log_end_offset
        assert self.log.writer.synced_offset == self.written

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round((self.log.log_end_offset - self.start) * share)
        kept = [batch for batch in self.batches if batch.next_offset <= min(offset, self.written)]
        offset = kept[-1].next_offset if kept else self.log.first_base_offset
        if offset < self.start:
            return
        self.log.truncate_to(offset)
        assert all(each.start_offset < offset for each in self.log.epochs.entries), "an epoch without a record is left"
        self.forget_from(offset)
        self.written = min(self.written, offset)
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + round((self.written - self.start) * share)
        self.log.advance_log_start_offset(offset)
        self.start = offset

    @rule(elapsed_ms=st.sampled_from([0, 0, 10_000, 10**9]))
    def retain(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        before = self.log.segments.bases
        count = self.log.delete_old_segments(self.now_ms)
        gone = (self.log.segments.bases or [self.written])[0]
        if count:
            assert count == (before.index(gone) if gone in before else len(before))
            old = [batch for batch in self.batches if batch.first_offset < gone]
            is_old = all(time_ms < self.now_ms - self.config.retention_ms for batch in old for time_ms in batch.times)
            is_large = self.config.retention_bytes >= 0
            assert is_old or is_large or gone <= self.start
            if not is_old and gone > self.start:
                assert self.log.segments.size >= self.config.retention_bytes
        self.start = max(self.start, gone)
        self.batches = [batch for batch in self.batches if batch.first_offset >= gone]
        for path in self.log.take_deleted_files(self.now_ms + 10**6):
            self.disk.remove(path)
        self.disk.sync_directory("/data/t-0")

    @rule()
    def close_and_reopen(self) -> None:
        self.log.close()
        self.written = self.log.log_end_offset
        self.disk.kill()
        before = self.files()
        self.log = self.reopened(clean=True)
        assert self.files() == before, "after a clean end nothing is repaired"

    @rule()
    def kill_and_reopen(self) -> None:
        """Kill and reopen; written batches are there, pending ones are not."""
        self.disk.kill()
        self.forget_from(self.written)
        self.log = self.reopened(clean=False)
        assert self.log.log_end_offset == self.written

    @precondition(lambda self: self.start == self.log.first_base_offset)
    @rule()
    def cut_power_and_reopen(self) -> None:
        """Cut the power and reopen; synced batches are there, and a prefix of the others."""
        synced = self.log.writer.synced_offset
        if not synced:
            self.log.flush()
        synced, self.written = self.log.writer.synced_offset, self.log.written_offset
        self.disk.cut_power(Survival.ANY)
        self.log = self.reopened(clean=False)
        assert synced <= self.log.log_end_offset <= self.written
        self.forget_from(self.log.log_end_offset)
        self.written = self.log.log_end_offset
        self.start = self.log.log_start_offset
        known = [batch for batch in self.batches if batch.first_offset >= self.log.first_base_offset]
        assert (known[-1].next_offset if known else self.written) == self.written
        self.batches = known

    # ---- what is asked ------------------------------------------------------------------------------------------

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 100, 500, 10_000]), up_to=st.floats(0, 1))
    def read(self, share: float, max_bytes: int, up_to: float) -> None:
        offset = self.start + round((self.log.log_end_offset - self.start) * share)
        limit = self.start + round((self.written - self.start) * up_to)
        data = self.log.read(offset, max_bytes, up_to_offset=limit)
        expected = [b for b in self.batches if b.next_offset > offset and b.next_offset <= max(limit, 0)]
        found = [(position, header) for position, header in iterate_batches(data)]
        assert len(found) <= len(expected)
        for (position, header), batch in zip(found, expected, strict=False):
            assert data[position : position + header.size] == batch.data
        if expected and offset < limit:
            assert found, "at least one"
            assert len(data) <= max(max_bytes, len(expected[0].data))

    @rule(age=st.integers(-500, 3000))
    def find_offset(self, age: int) -> None:
        wanted = self.now_ms - age
        found = at_once(self.log.find_offset(wanted))
        records = [
            (time_ms, batch.first_offset + number)
            for batch in self.batches
            if batch.next_offset <= self.written
            for number, time_ms in enumerate(batch.times)
            if batch.first_offset + number >= self.start
        ]
        assert (found and found[:2]) == next((record for record in records if record[0] >= wanted), None)
        latest = at_once(self.log.find_max_timestamp())
        assert (latest and latest[0]) == max((time_ms for time_ms, _ in records), default=None)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.written_offset) == (self.start, self.written)
        assert self.log.log_end_offset == self.end
        assert self.log.writer.recovery_point <= self.log.writer.synced_offset <= self.log.written_offset
        assert bool(self.log.writer.pending.size) == (self.log.log_end_offset > self.log.written_offset)
        assert not list(deviations(self.log))

    def teardown(self) -> None:
        if hasattr(self, "log"):
            offset, seen = self.log.log_start_offset, b""
            while data := self.log.read(offset, 1 << 20):
                seen += data
                offset = [header.next_offset for _, header in iterate_batches(data)][-1]
            written = [b for b in self.batches if b.next_offset <= self.written and b.next_offset > self.start]
            assert seen == b"".join(batch.data for batch in written)


LogModel.TestCase.settings = settings(max_examples=20, stateful_step_count=40)
TestLogModel = LogModel.TestCase
