"""A crash at any single change that a scripted life with compaction makes to the disk, and what the next start finds.

Row M1 and SPEC 12: the last value of each key that was acknowledged under its durability mode is there, and nothing
that was never written. Several segments become one, one becomes another, a batch is left empty, a transaction is
aborted, and a new compaction finds what an earlier one began. A run tries an eighth of the changes, and
`ODRADEK_SEEDS=2` all of them, with two states that a power cut may leave.
"""

from functools import partial

import pytest
from msgspec.structs import replace

from odradek.broker.log.inspection.findings import Finding
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.compacting import COMPACT, NOW, T0, Room
from tests.broker.log.crash_matrix import check_crashes, whole
from tests.broker.log.scene import contents, end_transaction, maintain
from tests.world.sampling import crash_points, seeds

pytestmark = pytest.mark.long

CONFIG = replace(COMPACT, segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=5)
PRODUCER = {"producer_id": 3, "producer_epoch": 0}


class Life:
    """The script. It goes on until the power is cut."""

    def __init__(self, disk: MemoryDisk, config: LogConfig) -> None:
        self.disk = disk
        self.config = config
        self.history: dict[int, tuple[bytes, bytes | None]] = {}
        """The records given to the log, by offset, without aborted ones."""
        self.written = self.synced = 0
        self.sequence = 0
        self.room: Room

    def run(self) -> None:
        room = self.room = Room(self.config, self.disk)
        self.append(12)
        self.maintain()
        room.compact()
        self.maintain()
        self.append(9)
        self.abort()
        self.append(6)
        self.maintain()
        room.compact()
        self.append(3)
        self.maintain()
        room.manager.close()
        self.synced = self.written
        room.manager = room.opened()
        self.append(8)
        self.maintain()
        room.compact()
        self.maintain()
        room.manager.kill()

    def append(self, count: int) -> None:
        log = self.room.log
        for _ in range(count):
            number = log.log_end_offset
            key, value = b"%d" % (number * 7 % 5), None if number % 11 == 10 else b"%d" % number * 25
            unique = b"u%d" % number
            data = encode_batch([(NOW + number, key, value, ()), (NOW + number, unique, b"", ())][: 1 + number % 2])
            if number % 3 == 0:
                data = encode_batch([(NOW + number, key, value, ())], base_sequence=self.sequence, **PRODUCER)
                self.sequence += 1
            self.history[number] = (key, value)
            if number % 2 and number % 3:
                self.history[number + 1] = (unique, b"")
            log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
            log.write()
            self.written = log.written_offset
            if self.config.flush_group:
                self.synced = self.written

    def abort(self) -> None:
        """A transaction that comes to nothing, across a segment's end."""
        log = self.room.log
        for sequence in range(2):
            records = [(NOW, b"0", b"never" * 50, ())]
            data = encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=True)
            log.append_as_leader(data, leader_epoch=0, now_ms=NOW, transactional=True)
        end_transaction(log, 9)
        log.write()
        self.written = log.written_offset
        if self.config.flush_group:
            self.synced = self.written

    def maintain(self) -> None:
        self.room.now_ms += 10
        maintain(self.room.manager, self.room.now_ms)
        self.synced = max(self.synced, self.room.log.writer.synced_offset)


def served(log: Log) -> dict[int, tuple[bytes, bytes | None]]:
    """Return the records that a read-committed consumer gets."""
    found: dict[int, tuple[bytes, bytes | None]] = {}
    aborted = log.aborted_transactions(0, log.log_end_offset)
    for offset, data in contents(log).items():
        header = read_header(data)
        is_aborted = header.is_transactional and any(
            each.producer_id == header.producer_id and each.first_offset <= offset <= each.last_offset
            for each in aborted
        )
        if not (header.is_control or is_aborted):
            for record in decode_records(data):
                assert record.key is not None
                found[record.offset] = (record.key, record.value)
    return found


def check(life: Life, *, is_synced_only: bool) -> None:
    """Start again, compare with what was promised, compact and go on, and start once more."""
    disk = life.disk
    if not is_synced_only:
        damage = [each for each in verified(disk) if each.is_damage and "ends with" not in each.reason]
        assert damage == [], "of a process that died, only the last write may be cut"
    room = Room(life.config, disk)
    log = room.log
    floor = life.synced if is_synced_only else life.written
    assert log.log_end_offset >= floor, f"lost {log.log_end_offset} to {floor}"
    assert not [name for name in room.names() if name.endswith((".cleaned", ".swap"))]
    life.history = {offset: pair for offset, pair in life.history.items() if offset < log.log_end_offset}
    if log.first_unstable_offset is not None:
        end_transaction(log, 9)  # as its coordinator does
        log.write()
    agree(life, log)
    for before, after in zip(log.segments, log.segments[1:], strict=False):
        assert before.next_offset == after.base_offset
    entry = log.producers.entries.get(PRODUCER["producer_id"])
    sequence = 0 if entry is None else entry.last_sequence + 1
    life.history[log.log_end_offset] = (b"1", b"again")
    data = encode_batch([(NOW, b"1", b"again", ())], base_sequence=sequence, **PRODUCER)
    log.append_as_leader(bytes(data), leader_epoch=5, now_ms=NOW)
    assert log.append_as_leader(data, leader_epoch=5, now_ms=NOW).duplicate
    log.write()
    room.roll()
    room.compact()
    left = agree(life, log)
    assert len({key for key, _ in left.values()}) == len(left), "each key once"
    room.restart()
    assert served(room.log) == left
    assert room.manager.cleaner.offsets[T0] == room.log.log_end_offset
    room.manager.close()
    assert verified(disk) == [], "the verification, which shares no code with it, finds nothing"
    room = Room(life.config, disk)
    room.manager.kill()


def verified(disk: MemoryDisk) -> list[Finding]:
    """Return the findings of `odradek log verify`."""
    return list(Verification(disk, records=True).data_directory("/data")) if disk.exists("/data") else []


def agree(life: Life, log: Log) -> dict[int, tuple[bytes, bytes | None]]:
    found = served(log)
    for offset, pair in found.items():
        assert life.history.get(offset) == pair, f"something else is at {offset}"
    last = {key: offset for offset, (key, _) in sorted(life.history.items()) if offset < log.log_end_offset}
    assert set(last.values()) <= found.keys(), "the last value of a key is gone"
    return found


WORST = "power cut, anything may happen"
"""The plain way writes the same files at the same moments, and is left to this one."""
CASES = {
    "killed": (CONFIG, None),
    "power cut, everything unsynced lost": (CONFIG, Survival.LOSE),
    WORST: (CONFIG, Survival.ANY),
    "power cut with group flush": (replace(CONFIG, flush_group=True), Survival.ANY),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("way", "case"), [*(("compiled", case) for case in CASES), ("plain", WORST)], indirect=["way"])
def test_a_crash_at_any_change_leaves_the_last_value_of_each_key(case: str, seed: int) -> None:
    config, survival = CASES[case]
    new_life = partial(Life, config=config)
    life = whole(new_life)
    points = crash_points(life.disk.operations, seed, every=8)
    assert len(served(Room(config, life.disk).log)) < len(life.history) * 0.8, "compaction is a part of the script"
    states = seeds(1) if survival is Survival.ANY else range(1)
    check_crashes(new_life, survival, partial(check, is_synced_only=survival is not None), points, states)
