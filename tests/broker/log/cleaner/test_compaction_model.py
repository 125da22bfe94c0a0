"""A compacted log against a model of it, a Python dict, in any order of operations that Hypothesis finds. Row M1."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings
from odradek.broker.turns import at_once
from odradek.kernels import LIBRARY, Library
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.compacting import COMPACT, T0, Room
from tests.broker.log.scene import maintain

RETENTION_MS = 1000


class CompactionModel(RuleBasedStateMachine):
    """`written` is every record that was ever acknowledged, by offset: its key, its value and its time."""

    @initialize(
        segment_bytes=st.sampled_from([500, 1000, 100_000]),
        interval=st.sampled_from([0, 100, 4096]),
        keys=st.sampled_from([1, 20, 1000]),
        library=st.sampled_from([None, LIBRARY]),
        seed=st.integers(0, 999),
    )
    def open(self, segment_bytes: int, interval: int, keys: int, library: Library | None, seed: int) -> None:
        config = replace(
            COMPACT, segment_bytes=segment_bytes, index_interval_bytes=interval, delete_retention_ms=RETENTION_MS
        )
        disk = MemoryDisk(random.Random(seed))
        disk.make_directories("/data")
        disk.sync_directory("/")
        self.room = Room(config, disk)
        self.room.settings = CleanerSettings(
            dedupe_buffer_bytes=1,
            load_factor=keys / 1024,
            io_buffer_bytes=random.Random(seed).choice([0, 500, 10**6]),
            library=library,
        )
        self.written: dict[int, tuple[bytes, bytes | None, int]] = {}
        self.sequence = 0
        self.room.manager.checkpoints.write_all()

    # ---- what is done -------------------------------------------------------------------------------------------

    @rule(
        records=st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 40), st.integers(0, 30)), min_size=1, max_size=5),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
        is_numbered=st.booleans(),
    )
    def append(self, records: list[tuple[int, int, int]], codec: Codec, is_numbered: bool) -> None:
        room = self.room
        room.now_ms += 10
        encoded = [
            (room.now_ms - age, b"%d" % key, None if size < 0 else b"%d" % age * size, ()) for key, size, age in records
        ]
        entry = room.log.producers.entries.get(4)
        sequence = 0 if entry is None else entry.last_sequence + 1
        numbers = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence} if is_numbered else {}
        batch = encode_batch(encoded, codec=codec, **numbers)
        first = room.append_batch(bytes(batch))
        if is_numbered:
            info = room.log.append_as_leader(batch, leader_epoch=0, now_ms=room.now_ms)
            assert (info.duplicate, info.first_offset) == (True, first)
        for number, (time_ms, key, value, _) in enumerate(encoded):
            self.written[first + number] = (key, value, time_ms)

    @rule()
    def roll(self) -> None:
        self.room.roll()

    @rule(elapsed_ms=st.sampled_from([0, 0, RETENTION_MS // 2, RETENTION_MS]))
    def maintain(self, elapsed_ms: int) -> None:
        self.room.now_ms += elapsed_ms
        maintain(self.room.manager, self.room.now_ms)

    @rule(share=st.sampled_from([0.5, 1.0, 1.0]))
    def compact(self, share: float) -> None:
        """Compact; in the compacted part each key is there once, with its last value."""
        room, log = self.room, self.room.log
        room.compact(stable_offset=log.log_start_offset + round((log.log_end_offset - log.log_start_offset) * share))
        end = room.manager.cleaner.offsets.get(T0, 0)
        keys = [key for offset, key, _ in room.texts() if log.log_start_offset <= offset < end]
        assert len(keys) == len(set(keys))

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.room.log
        log.advance_log_start_offset(log.log_start_offset + round((log.written_offset - log.log_start_offset) * share))

    @rule()
    def restart(self) -> None:
        self.room.restart()

    @rule()
    def kill_and_restart(self) -> None:
        self.room.manager.checkpoints.write_all()
        self.room.restart(clean=False)

    @precondition(lambda self: self.room.log.log_start_offset <= self.room.log.writer.synced_offset)
    @rule()
    def cut_power_and_restart(self) -> None:
        room = self.room
        room.manager.checkpoints.write_all()
        synced = room.log.writer.synced_offset
        room.disk.cut_power(Survival.ANY)
        room.manager = room.opened()
        assert room.log.log_end_offset >= synced
        self.written = {offset: each for offset, each in self.written.items() if offset < room.log.log_end_offset}

    # ---- what is asked ------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "room"):
            return
        room, log = self.room, self.room.log
        records = room.records()
        found = {record.offset: (record.key, record.value, record.timestamp) for record in records}
        assert [record.offset for record in records] == sorted(found), "in order"
        headers = [header for header, _ in room.batches()]
        for offset in range(log.log_start_offset, log.written_offset):
            first = next(header for header in headers if header.last_offset >= offset)
            assert read_header(log.read(offset, 1)) == first, f"a reader at {offset} gets on"
        for offset, each in found.items():
            assert self.written[offset] == each
        last = {key: offset for offset, (key, _, _) in sorted(self.written.items())}
        for offset in last.values():
            value, time_ms = self.written[offset][1:]
            is_old_tombstone = value is None and time_ms + RETENTION_MS < room.now_ms
            assert offset in found or offset < log.log_start_offset or is_old_tombstone, f"{offset} is gone"
        for record in records:
            if record.timestamp == max(each.timestamp for each in records):
                latest = at_once(log.find_max_timestamp())
                if record.offset >= log.log_start_offset:
                    assert latest.timestamp >= record.timestamp
                break

    def teardown(self) -> None:
        if hasattr(self, "room"):
            names = self.room.names()
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


CompactionModel.TestCase.settings = settings(max_examples=20, stateful_step_count=40)
TestCompactionModel = CompactionModel.TestCase
