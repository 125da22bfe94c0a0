"""Damage in a segment: what a reader notices, and what a check of the whole file says. Row M1."""

import pytest

from odradek.broker.log.errors import DamagedSegmentError
from odradek.broker.log.log import Log
from odradek.broker.log.recovery.segment_damage import DamageCheck
from odradek.broker.log.segments.segment import Segment
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, append, flip, new_log

FIRST = f"/data/t-0/{0:020d}.log"
CONFIG = {"segment_bytes": 2000, "index_interval_bytes": 300}


def written() -> tuple[MemoryDisk, Log, list[Segment]]:
    """A log of 50 batches in several segments, and the segments that are suspected from now on."""
    disk = MemoryDisk()
    log = new_log(disk, **CONFIG)
    for _ in range(50):
        append(log, NOW)
    suspected: list[Segment] = []

    def suspect(segment: Segment) -> bool:
        suspected.append(segment)
        return True

    log.set_listeners(on_suspected=suspect)
    return disk, log, suspected


def read_all(log: Log) -> int:
    """The offset up to which a reader gets that checks nothing."""
    offset = 0
    while data := log.read(offset, 500):
        offset = max(header.next_offset for _, header in iterate_batches(data))
    return offset


BYTES = {"base offset": 2, "length": 8, "magic": 16, "crc": 18, "attributes": 22, "value": 65}


@pytest.mark.parametrize("byte", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("number", [0, 7])
def test_a_damaged_batch_is_refused_and_its_segment_checked(number: int, byte: int) -> None:
    disk, log, suspected = written()
    start = log.segments[0].find(number)
    flip(disk, FIRST, start + byte)
    for _ in range(2):
        with pytest.raises(DamagedSegmentError) as caught:
            log.read(number, 1000)
        assert caught.value.code is ErrorCode.corrupt_message
    assert suspected == [log.segments[0]], "once"
    assert log.suspected.may_be_damaged
    suspicion = DamageCheck.of(suspected[0])
    damage = suspicion.run()
    assert (damage.path, damage.byte) == (FIRST, start)
    assert log.suspected.checked(suspicion.segment, suspicion.size, damage)
    assert log.suspected.damage is damage


def test_a_length_that_is_wrong_by_gigabytes_costs_no_memory() -> None:
    disk, log, _ = written()
    flip(disk, FIRST, 8, bits=0x40)
    lent: list[int] = []

    def lend(size: int) -> memoryview:
        lent.append(size)
        return memoryview(bytearray(size))

    with pytest.raises(DamagedSegmentError):
        log.read(0, 1000, lend=lend)
    assert sum(lent) < 1 << 20


def test_a_file_that_is_whole_is_not_damaged() -> None:
    _, log, _ = written()
    assert read_all(log) == 50
    for segment in log.segments:
        assert DamageCheck.of(segment).run() is None
    log.suspected.add(FIRST)
    assert log.suspected.may_be_damaged
    assert not log.suspected.checked(log.segments[0], log.segments[0].written_size, None)
    assert not log.suspected.may_be_damaged


def test_damage_in_a_segment_that_left_the_log_is_ignored() -> None:
    disk, log, _ = written()
    segment = log.segments[1]
    flip(disk, segment.log.path, 65)
    suspicion = DamageCheck.of(segment)
    damage = suspicion.run()
    log.truncate_to(segment.base_offset)
    assert damage is not None
    assert not log.suspected.checked(suspicion.segment, suspicion.size, damage)
    assert log.suspected.damage is None


def test_a_segment_whose_check_failed_can_be_checked_again() -> None:
    disk, log, suspected = written()
    flip(disk, FIRST, 65)
    log.segments.close()
    log.suspected.add(FIRST)
    disk.most_open_files = disk.open_files
    with pytest.raises(OSError, match="Too many open files"):
        DamageCheck.of(log.segments[0]).run()
    log.suspected.check_failed(log.segments[0])
    assert not log.suspected.may_be_damaged
    disk.most_open_files = None
    with pytest.raises(DamagedSegmentError):
        log.read(0, 1000)
    assert len(suspected) == 2
    assert log.suspected.may_be_damaged


def test_a_segment_without_damage_can_be_checked_again() -> None:
    disk, log, suspected = written()
    log.suspected.add(FIRST)
    log.suspected.checked(log.segments[0], log.segments[0].written_size, None)
    flip(disk, FIRST, 65)
    with pytest.raises(DamagedSegmentError):
        log.read(0, 1000)
    assert len(suspected) == 2


@pytest.mark.parametrize("is_known", [True, False], ids=["damaged", "suspected"])
def test_damage_is_forgotten_with_its_deleted_segment(is_known: bool) -> None:
    disk, log, _ = written()
    flip(disk, FIRST, 65)
    log.suspected.add(FIRST)
    if is_known:
        suspicion = DamageCheck.of(log.segments[0])
        assert log.suspected.checked(suspicion.segment, suspicion.size, suspicion.run())
        assert log.suspected.damage is not None
    log.advance_log_start_offset(log.segments[1].base_offset)
    assert log.suspected.may_be_damaged, "its file is there still"
    assert log.delete_old_segments(NOW) == 1
    assert log.suspected.damage is None
    assert not log.suspected.may_be_damaged


def test_a_follower_appends_the_batches_before_a_damaged_one() -> None:
    _, leader, _ = written()
    data = bytearray(leader.read(0, 600))
    positions = [position for position, _ in iterate_batches(data)]
    data[positions[3] + 65] ^= 1
    follower = new_log(MemoryDisk(), **CONFIG)
    assert follower.append_as_follower(data, now_ms=NOW) == positions[3]
    assert follower.log_end_offset == 3
    with pytest.raises(KafkaError) as caught:
        follower.append_as_follower(data[positions[3] :], now_ms=NOW)
    assert caught.value.code is ErrorCode.corrupt_message
    assert follower.log_end_offset == 3
