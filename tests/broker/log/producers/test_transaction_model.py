"""A log with transactions against what its batches say by the protocol's rules, in any order of operations. Row M1."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.log.inspection.running_log import deviations
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.scene import end_transaction
from tests.broker.log.transactional_writer import DIRECTORY, NOW_MS, Outcome

PRODUCERS = st.integers(1, 4)


class TransactionModel(RuleBasedStateMachine):
    """`batches` are all that were appended and not cut, by offset, also those that retention took."""

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 100_000]),
        retention_bytes=st.sampled_from([-1, 800]),
        seed=st.integers(0, 999),
    )
    def open(self, segment_bytes: int, retention_bytes: int, seed: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            retention_bytes=retention_bytes,
            file_delete_delay_ms=0,
        )
        self.disk = MemoryDisk(random.Random(seed))
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.batches: dict[int, bytes] = {}
        self.pending: dict[int, bytearray | memoryview] = {}
        self.start = 0
        self.log = self.opened(clean=False)

    def opened(self, *, clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            self.config,
            now_ms=NOW_MS,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
        )

    def settle(self) -> None:
        """Write pending batches, and take their bytes from the log."""
        self.log.write()
        self.batches |= {offset: bytes(data) for offset, data in self.pending.items()}
        self.pending.clear()
        self.log.producers.committed(self.log.written_offset)

    def cut(self, offset: int) -> None:
        self.pending.clear()
        self.batches = {each: data for each, data in self.batches.items() if each < offset}

    def outcome(self) -> Outcome:
        return Outcome(b"".join(self.batches[offset] for offset in sorted(self.batches)))

    # ---- what is done -------------------------------------------------------------------------------------------

    @rule(producer=PRODUCERS, transactional=st.booleans(), size=st.integers(0, 60))
    def append(self, producer: int, transactional: bool, size: int) -> None:
        entry = self.log.producers.entries.get(producer)
        sequence = 0 if entry is None else entry.last_sequence + 1
        batch = encode_batch(
            [(NOW_MS, None, b"v" * size, ())],
            producer_id=producer,
            producer_epoch=0 if entry is None else entry.epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        is_open = entry is not None and entry.transaction_start >= 0
        try:
            info = self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, transactional=True)
        except KafkaError as error:
            refusal = error.code
            assert (refusal, is_open, transactional) == (ErrorCode.invalid_txn_state, True, False)
        else:
            assert transactional or not is_open
            self.pending[info.first_offset] = batch

    @rule(
        producer=PRODUCERS,
        type_=st.sampled_from(ControlType),
        version=st.sampled_from([1, 2]),
        coordinator=st.integers(0, 2),
    )
    def end(self, producer: int, type_: ControlType, version: int, coordinator: int) -> None:
        """A marker of version 2 has the next epoch; a coordinator that was replaced is refused."""
        entry = self.log.producers.entries.get(producer)
        before = -1 if entry is None else entry.coordinator_epoch
        epoch = (0 if entry is None else entry.epoch) + version - 1
        end = self.log.log_end_offset
        try:
            info = end_transaction(
                self.log,
                producer,
                type_,
                producer_epoch=epoch,
                transaction_version=version,
                coordinator_epoch=coordinator,
            )
        except KafkaError as error:
            refusal = error.code
            assert refusal == ErrorCode.transaction_coordinator_fenced
            assert coordinator < before
            assert self.log.log_end_offset == end
        else:
            assert (info.first_offset, info.duplicate) == (end, False)
            self.pending[end] = self.log.writer.pending.buffers[-1]

    @rule()
    def write(self) -> None:
        self.settle()

    @rule()
    def flush(self) -> None:
        self.settle()
        self.log.flush()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        kept = [offset for offset in self.batches if offset >= self.log.log_start_offset]
        if kept:
            offset = kept[int(share * (len(kept) - 1))]
            self.log.truncate_to(offset)
            self.cut(offset)

    @rule()
    def retain(self) -> None:
        self.settle()
        self.log.flush()
        self.log.delete_old_segments(NOW_MS)
        self.start = self.log.log_start_offset
        for path in self.log.take_deleted_files(NOW_MS + 1):
            self.disk.remove(path)
        self.disk.sync_directory(DIRECTORY)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.settle()
        self.start += round((self.log.written_offset - self.start) * share)
        self.log.advance_log_start_offset(self.start)

    @rule()
    def close_and_reopen(self) -> None:
        self.settle()
        self.log.close()
        self.disk.kill()
        self.disk.replace_file("/data/.kafka_cleanshutdown", b"{}")
        findings = Verification(self.disk).partition_directory(DIRECTORY)
        assert [each for each in findings if each.path.endswith((".txnindex", ".snapshot"))] == []
        self.disk.remove("/data/.kafka_cleanshutdown")
        self.log = self.opened(clean=True)

    @rule()
    def kill_and_reopen(self) -> None:
        point = self.log.writer.recovery_point
        self.disk.kill()
        self.pending.clear()
        self.log = self.opened(clean=False, recovery_point=point)

    @rule()
    def cut_power_and_reopen(self) -> None:
        if not self.log.writer.synced_offset or self.start > self.log.writer.synced_offset:
            self.settle()
            self.log.flush()
        # Nobody promises that a snapshot outlasts what retention took; without it, what is gone is not open any more.
        self.disk.sync_all([f"{DIRECTORY}/{name}" for name in self.disk.list(DIRECTORY) if name.endswith("snapshot")])
        point, synced = self.log.writer.recovery_point, self.log.writer.synced_offset
        self.disk.cut_power(Survival.ANY)
        self.log = self.opened(clean=False, recovery_point=point)
        assert self.log.written_offset >= synced
        self.start = self.log.log_start_offset
        self.cut(self.log.written_offset)

    # ---- what is asked ------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.pending)
    @rule(first=st.floats(0, 1), last=st.floats(0, 1))
    def ask_for_a_range(self, first: float, last: float) -> None:
        end = self.log.written_offset
        start = self.start + round((end - self.start) * first)
        stop = start + round((end - start) * last)
        expected = self.outcome().aborted
        base = self.log.first_base_offset
        stable = self.log.first_unstable_offset
        stop = stop if stable is None else min(stop, stable)
        assert self.log.aborted_transactions(start, stop) == [
            each for each in expected if each.last_offset >= max(start, base) and each.first_offset < stop
        ]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log") or self.pending:
            return
        self.outcome().check(self.log)
        assert not list(deviations(self.log))
        end = 0
        for data in self.batches.values():
            for _, header in iterate_batches(data):
                end = header.next_offset
        assert self.log.log_end_offset == (end if self.batches else self.log.log_end_offset)


TransactionModel.TestCase.settings = settings(max_examples=20, stateful_step_count=40)
TestTransactionModel = TransactionModel.TestCase
