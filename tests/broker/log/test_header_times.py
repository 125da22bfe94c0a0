"""Which times of a batch's header the log believes: none may make records go earlier than Kafka lets them."""

import pytest

from odradek.broker.log.cleaner.cleanable import measure
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.turns import at_once
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import iterate_batches, read_header, verify_crc, write_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000
MINUTE = 60_000
DAY = 86_400_000


def batch(*times: int, codec: Codec = Codec.NONE, producer_id: int = -1, **header: int) -> bytearray:
    """A batch of records with these times, under a header that says something else."""
    sequence = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    data = encode_batch([(time, b"k", b"x" * 50, ()) for time in times], codec=codec, **sequence)
    write_header(data, read_header(data)._replace(**header))
    return data


def open_log(disk: MemoryDisk | None = None, **config: object) -> Log:
    settings = LogConfig(**{"validate_all": False} | config)
    return Log.open(disk or MemoryDisk(), "/data/t-0", settings, now_ms=NOW)


def append(log: Log, data: bytearray, *, now_ms: int = NOW) -> None:
    log.append_as_leader(data, leader_epoch=0, now_ms=now_ms)
    log.write()


def stored_times(log: Log) -> list[int]:
    data = log.read(0, 1 << 20)
    assert all(verify_crc(data, position, header) for position, header in iterate_batches(data))
    return [header.max_timestamp for _, header in iterate_batches(data)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_without_timestamps_are_kept_although_librdkafkas_header_says_1970(codec: Codec) -> None:
    """It sends BaseTimestamp -1 and MaxTimestamp 0; Kafka stores -1, and retention goes by the last append."""
    log = open_log(retention_ms=DAY)
    append(log, batch(-1, -1, codec=codec, max_timestamp=0))
    assert stored_times(log) == [-1]
    assert log.delete_old_segments(NOW + DAY) == 0
    assert at_once(log.find_offset(0)) is None
    assert at_once(log.find_max_timestamp()) is None
    assert log.delete_old_segments(NOW + DAY + 1) == 1


@pytest.mark.parametrize(
    "claimed",
    [-(2**63), -1, 0, 1, NOW - DAY, NOW - 11 * MINUTE],
    ids=["least", "none", "zero", "one", "a day ago", "eleven minutes ago"],
)
def test_a_header_with_a_too_early_largest_timestamp_is_corrected(claimed: int) -> None:
    log = open_log(retention_ms=MINUTE)
    append(log, batch(NOW - 5, NOW, NOW - 3, max_timestamp=claimed))
    assert stored_times(log) == [NOW]
    assert log.delete_old_segments(NOW + MINUTE) == 0
    assert at_once(log.find_offset(NOW)) == (NOW, 1, 0)


def test_a_largest_timestamp_before_the_first_one_is_corrected() -> None:
    log = open_log()
    append(log, batch(NOW - 5, NOW, max_timestamp=NOW - 6))
    assert stored_times(log) == [NOW]


def test_old_records_expire_as_in_kafka() -> None:
    log = open_log(retention_ms=DAY)
    append(log, batch(NOW - 3 * DAY, NOW - 2 * DAY))
    assert stored_times(log) == [NOW - 2 * DAY]
    assert log.delete_old_segments(NOW) == 1


def test_records_are_not_checked_for_a_recent_timestamp() -> None:
    data = batch(NOW - 9 * MINUTE, NOW - 9 * MINUTE)
    data[61:] = b"\xff" * (len(data) - 61)
    write_header(data, read_header(data))
    log = open_log()
    append(log, data)
    assert stored_times(log) == [NOW - 9 * MINUTE]


def test_a_topic_with_log_append_time_ignores_header_times() -> None:
    log = open_log(message_timestamp_type="LogAppendTime", retention_ms=DAY)
    append(log, batch(-1, max_timestamp=0))
    assert stored_times(log) == [NOW]
    assert log.delete_old_segments(NOW + DAY) == 0


def test_a_segment_that_begins_without_timestamps_is_rolled_by_its_age() -> None:
    """Not by the 55 years between 1970 and the next batch."""
    log = open_log(segment_ms=DAY)
    append(log, batch(-1, max_timestamp=0))
    append(log, batch(NOW))
    append(log, batch(NOW + 1))
    assert log.segments.bases == [0]
    append(log, batch(-1, max_timestamp=0), now_ms=NOW + DAY + 1)
    assert log.segments.bases == [0, 3]


def test_records_without_timestamps_are_no_reason_to_compact_at_once() -> None:
    log = open_log(cleanup_policy=("compact",), max_compaction_lag_ms=DAY, min_cleanable_dirty_ratio=0.99)
    append(log, batch(-1, max_timestamp=0))
    log.roll_for_compaction(NOW + 1)
    assert log.segments.bases == [0]
    log.update_config(
        LogConfig(**{name: getattr(log.config, name) for name in LogConfig.__slots__} | {"segment_ms": 1})
    )
    append(log, batch(-1), now_ms=NOW + 2)
    assert log.segments.bases == [0, 1]
    log.flush()
    assert measure(log, 0, stable_offset=2, now_ms=NOW + 3).delay_ms == 0


def stored_by_an_earlier_release(disk: MemoryDisk) -> None:
    """A log with librdkafka's header as it came."""
    log = open_log(disk)
    log.append_as_leader(batch(-1, max_timestamp=0), leader_epoch=0, now_ms=NOW, from_client=False)
    log.write()
    assert stored_times(log) == [0]
    log.close()


@pytest.mark.parametrize("clean", [False, True])
def test_a_stored_header_of_1970_is_no_timestamp(clean: bool) -> None:
    disk = MemoryDisk()
    stored_by_an_earlier_release(disk)
    log = Log.open(disk, "/data/t-0", LogConfig(retention_ms=DAY), now_ms=NOW, clean=clean)
    assert log.delete_old_segments(NOW + DAY) == 0
    append(log, batch(NOW))
    assert log.segments.bases == [0], "it is not 55 years old"


def test_a_follower_keeps_what_its_leader_stored_in_1970() -> None:
    disk = MemoryDisk()
    stored_by_an_earlier_release(disk)
    leader = Log.open(disk, "/data/t-0", LogConfig(), now_ms=NOW, clean=True)
    follower = open_log(retention_ms=DAY)
    follower.append_as_follower(leader.read(0, 1000), now_ms=NOW)
    follower.write()
    assert follower.delete_old_segments(NOW + DAY) == 0


@pytest.mark.parametrize("times", [(-1,), (NOW - 3 * DAY,)], ids=["none", "old"])
def test_a_producer_whose_records_have_no_recent_time_is_known_as_long_as_it_writes(times: tuple[int, ...]) -> None:
    """Without its state a resent batch would be appended again."""
    log = open_log(producer_id_expiration_ms=DAY, retention_ms=-1)
    append(log, batch(*times, producer_id=7))
    assert log.expire_producers(NOW + DAY) == 0
    again = log.append_as_leader(batch(*times, producer_id=7), leader_epoch=0, now_ms=NOW + DAY)
    assert again.duplicate
    assert log.expire_producers(NOW + DAY + 1) == 1


def test_a_producer_without_timestamps_is_known_after_a_restart() -> None:
    disk = MemoryDisk()
    log = open_log(disk, producer_id_expiration_ms=DAY)
    append(log, batch(-1, producer_id=7))
    log.close()
    log = Log.open(disk, "/data/t-0", log.config, now_ms=NOW + 1, clean=True)
    assert log.expire_producers(NOW + 1) == 0
    assert log.append_as_leader(batch(-1, producer_id=7), leader_epoch=0, now_ms=NOW + 2).duplicate
    assert log.expire_producers(NOW + DAY + 2) == 1
