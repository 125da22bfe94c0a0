"""The records that compaction keeps, rule by rule, as Kafka's cleaner does. Row M1."""

import pytest
from msgspec.structs import replace

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings
from odradek.broker.turns import at_once
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.records import encode_batch
from tests.broker.log.compacting import COMPACT, DAY_MS, NOW, T0, Room, begun, spans
from tests.broker.log.scene import end_transaction, maintain

pytestmark = pytest.mark.usefixtures("way")

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def test_the_last_value_of_each_key_survives_with_its_offset_and_order() -> None:
    room = Room()
    room.append(("a", "1"), ("b", "1"), ("a", "2"))
    room.append(("c", "1"))
    room.append(("b", "2"), ("d", "1"))
    room.roll()
    room.append(("a", "3"))
    assert room.compact() == 1
    assert room.texts() == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "d", "1"), (6, "a", "3")]
    assert room.log.log_start_offset == 0
    assert room.log.log_end_offset == 7


def test_files_of_an_interrupted_compaction_are_removed_before_a_swap() -> None:
    """A crash during a swap is told from one before it by what is still `.cleaned` at or below its offset."""
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    left = f"{room.log.directory}/{0:020d}.log.cleaned"
    room.disk.replace_file(left.replace("log.cleaned", "txnindex.cleaned"), b"")
    room.disk.replace_file(left.replace(f"{0:020d}", f"{1:020d}"), b"rubbish")
    assert room.compact() == 1
    assert not [name for name in room.disk.list(room.log.directory) if name.endswith(".cleaned")]
    assert room.texts() == [(1, "a", "2")]


def test_the_active_segment_is_never_compacted() -> None:
    room = Room()
    room.append(("a", "1"))
    room.append(("a", "2"))
    assert room.compact() == 0
    assert [text[0] for text in room.texts()] == [0, 1]


def test_records_behind_the_last_stable_offset_are_not_compacted() -> None:
    """At or beyond the high watermark, or the first record of an open transaction."""
    room = Room()
    for value in "123":
        room.append(("a", value), ("b", value))
        room.roll()
    assert room.compact(stable_offset=3) == 1
    assert [text[0] for text in room.texts()] == [0, 1, 2, 3, 4, 5], "one segment is stable, and nothing is twice in it"
    assert room.compact(stable_offset=4) == 1
    assert [text[0] for text in room.texts()] == [2, 3, 4, 5]
    assert room.compact(stable_offset=5) == 0


def test_unsynced_segments_are_not_compacted() -> None:
    """Recovery cuts a log where something is wrong behind the recovery point: there, all must be as it was written."""
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.log.roll(NOW)
    room.append(("b", "1"))
    assert room.compact() == 0
    maintain(room.manager, NOW)
    assert room.compact() == 1


def test_a_log_is_not_compacted_before_enough_of_it_is_dirty() -> None:
    room = Room(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    room.append(*[(f"{key}", "1") for key in range(10)])
    room.roll()
    assert room.compact() == 1
    room.append(*[(f"{key}", "2") for key in range(4)])
    room.roll()
    assert room.compact() == 0
    room.append(*[(f"{key}", "3") for key in range(8)])
    room.roll()
    assert room.compact() == 1
    assert len(room.texts()) == 10


def test_records_younger_than_the_minimum_lag_are_not_compacted() -> None:
    room = Room(replace(COMPACT, min_compaction_lag_ms=1000))
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.now_ms += 500
    room.append(("a", "3"), ("a", "4"))
    room.roll()
    room.append(("b", "1"))
    assert room.compact() == 0
    room.now_ms += 500
    assert room.compact() == 1
    assert [text[0] for text in room.texts()] == [1, 2, 3, 4], "the second segment is younger"
    room.now_ms += 500
    assert room.compact() == 1
    assert [text[0] for text in room.texts()] == [3, 4]


def test_records_older_than_the_maximum_lag_are_compacted_without_appends() -> None:
    room = Room(replace(COMPACT, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0))
    room.append(("a", "1"), ("a", "2"))
    assert room.compact() == 0
    room.now_ms += 1001
    assert room.compact() == 0, "the segment is rolled, and not synced yet"
    assert room.manager.cleaner.stats.max_delay_ms == 0
    maintain(room.manager, room.now_ms)
    assert room.compact() == 1
    assert room.texts() == [(1, "a", "2")]
    assert room.append(("b", "1")) == 2


def test_a_segment_of_a_compacted_log_is_rolled_by_the_greatest_lag() -> None:
    room = Room(replace(COMPACT, max_compaction_lag_ms=1000))
    room.append(("a", "1"))
    room.now_ms += 1000
    room.append(("a", "2"))
    assert room.log.segments.bases == [0]
    room.now_ms += 1
    room.append(("a", "3"))
    assert room.log.segments.bases == [0, 2]


def test_a_tombstone_is_removed_after_its_delete_horizon() -> None:
    room = Room(replace(COMPACT, delete_retention_ms=DAY_MS, min_cleanable_dirty_ratio=0.0))
    room.append(("a", "1"), ("b", "1"), ("a", None))
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(1, "b", "1"), (2, "a", None)]
    (header, _), *_ = room.batches()
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + DAY_MS)
    assert {record.timestamp for record in room.records()} == {NOW}, "times stay what they are"
    room.now_ms += DAY_MS - 1
    room.append(("c", "1"))
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert room.batches()[0][0].base_timestamp == NOW + DAY_MS, "the horizon is set once"
    room.now_ms += 1
    room.append(("c", "2"))
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(1, "b", "1"), (4, "c", "2")]


def test_a_tombstone_with_unlimited_retention_is_kept() -> None:
    room = Room(replace(COMPACT, delete_retention_ms=(1 << 63) - 1))
    room.append(("a", "1"), ("b", "1"), ("a", None))
    room.append(("c", "1"), ("c", None), codec=Codec.GZIP)
    for value in "123":
        room.append(("d", value))
        room.roll()
        assert room.compact() == 1
        room.now_ms += 1000 * 365 * DAY_MS
        assert [text for text in room.texts() if text[1] in "ac"] == [(2, "a", None), (4, "c", None)]
        assert {record.timestamp for record in room.records() if record.value is None} == {NOW}


def test_a_header_keeps_its_offsets_and_its_producer() -> None:
    room = Room()
    producer = {"producer_id": 7, "producer_epoch": 2}
    room.append(("a", "1"), ("b", "1"), ("a", "2"), base_sequence=0, **producer)
    room.append(("b", "2"), base_sequence=3, **producer)
    room.append(("x", "1"), ("x", "2"), base_sequence=4, **producer)
    room.roll()
    assert room.compact() == 1
    headers = [header for header, _ in room.batches()]
    assert spans(headers) == [(0, 2, 1), (3, 3, 1), (4, 5, 1)]
    assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in headers] == [
        (7, 2, 0),
        (7, 2, 3),
        (7, 2, 4),
    ]


def test_the_last_batch_of_a_producer_is_kept_without_its_records() -> None:
    room = Room()
    producer = {"producer_id": 7, "producer_epoch": 0}
    room.append(("a", "1"), base_sequence=0, **producer)
    room.append(("a", "2"), ("a", "3"), base_sequence=1, **producer)
    room.append(("a", "4"), ("b", "1"))
    room.roll()
    room.append(("c", "1"))
    assert room.compact() == 1
    assert spans(header for header, _ in room.batches()) == [(1, 2, 0), (3, 4, 2), (5, 5, 1)]
    room.manager.close()
    for name in [name for name in room.names() if name.endswith(".snapshot")]:
        room.disk.remove(f"/data/t-0/{name}")
    room.manager = room.opened()
    last = room.log.producers.entries[7].batches[-1]
    assert (last.first_sequence, last.last_sequence, last.last_offset) == (1, 2, 2)
    room.append(("a", "5"), base_sequence=3, **producer)


def test_batches_of_an_expired_producer_are_removed() -> None:
    room = Room(replace(COMPACT, producer_id_expiration_ms=1000))
    room.append(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    room.append(("a", "2"), ("b", "1"))
    room.now_ms += 2000
    room.roll()
    assert room.compact() == 1
    assert spans(header for header, _ in room.batches()) == [(1, 2, 2)]


def test_the_last_batch_of_a_segment_is_kept_for_its_end_offset() -> None:
    room = Room()
    room.append(("a", "1"))
    room.append(("b", "1"))
    room.roll()
    room.append(("a", "2"), ("b", "2"))
    room.roll()
    room.reconfigure(replace(COMPACT, segment_bytes=1))
    assert room.compact() == 1
    assert spans(header for header, _ in room.batches()) == [(1, 1, 0), (2, 3, 2)]
    assert room.log.segments.bases == [0, 2, 4]
    room.reconfigure(COMPACT)
    room.append(("c", "1"))
    room.append(("c", "2"))
    room.roll()
    room.now_ms += 1
    assert room.compact() == 1
    assert spans(header for header, _ in room.batches()) == [(2, 3, 2), (5, 5, 1)]
    assert room.log.segments.bases == [0, 6], "small neighbours become one"


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_is_compressed_again_with_its_codec(codec: Codec) -> None:
    room = Room()
    room.append(("a", "1" * 200), ("b", "2" * 200), ("a", "3" * 200), codec=codec)
    room.append(("c", "4" * 200), codec=codec)
    room.roll()
    assert room.compact() == 1
    assert [(offset, (value or "")[0]) for offset, _, value in room.texts()] == [(1, "2"), (2, "3"), (3, "4")]
    assert {header.codec for header, _ in room.batches()} == {codec}


def test_batches_that_stay_whole_stay_byte_for_byte() -> None:
    room = Room()
    room.append(("a", "1"), ("b", "1"), codec=Codec.ZSTD)
    room.append(("a", "2"))
    room.append(("c", "2"), codec=Codec.GZIP)
    room.roll()
    before = dict(room.batches())
    room.append(("d", "1"))
    assert room.compact() == 1
    assert [before[header] == data for header, data in room.batches() if header in before] == [True, True]


def test_an_append_time_stays() -> None:
    room = Room(replace(COMPACT, message_timestamp_type="LogAppendTime"))
    room.append(("a", "1"), ("b", "1"), ("a", None))
    room.roll()
    assert room.compact() == 1
    assert [record.timestamp for record in room.records()] == [NOW, NOW]
    assert room.batches()[0][0].is_log_append_time


def transaction(room: Room, outcome: ControlType, *records: tuple[str, str], producer_id: int = 7) -> None:
    entry = room.log.producers.entries.get(producer_id)
    sequence = 0 if entry is None else entry.last_sequence + 1
    room.append(*records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    mark(room, outcome, producer_id)


def mark(room: Room, outcome: ControlType, producer_id: int = 7) -> None:
    end_transaction(room.log, producer_id, outcome, now_ms=room.now_ms)
    room.log.write()


def test_an_aborted_record_is_removed_and_does_not_replace_others() -> None:
    room = Room()
    room.append(("a", "1"))
    transaction(room, ABORT, ("a", "2"), ("b", "2"))
    room.append(("c", "1"))
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(0, "a", "1"), (4, "c", "1")]


def test_a_marker_is_removed_after_its_records_and_its_delete_horizon() -> None:
    room = Room(replace(COMPACT, delete_retention_ms=DAY_MS, min_cleanable_dirty_ratio=0.0))
    transaction(room, COMMIT, ("a", "1"))
    transaction(room, COMMIT, ("b", "1"))
    room.append(("z", "1"))
    room.roll()
    room.compact()
    assert spans(header for header, _ in room.batches()) == [(0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)]
    transaction(room, COMMIT, ("a", "2"))
    room.roll()
    room.compact()
    assert [header.base_offset for header, _ in room.batches()] == [1, 2, 3, 4, 5, 6]
    room.append(("y", "1"))
    room.roll()
    room.compact()
    found = {header.base_offset: header for header, _ in room.batches()}
    assert sorted(found) == [1, 2, 3, 4, 5, 6, 7], "the first marker belongs to nothing any more"
    assert found[1].has_delete_horizon
    assert found[1].base_timestamp == NOW + DAY_MS
    assert not found[3].has_delete_horizon
    room.now_ms += DAY_MS
    room.append(("z", "2"))
    room.roll()
    room.compact()
    assert sorted(header.base_offset for header, _ in room.batches()) == [2, 3, 5, 6, 7, 8]


def test_records_committed_after_an_abort_replace_earlier_ones() -> None:
    """Its old transaction ended before the part whose keys are noted."""
    room = Room()
    room.append(("a", "1"))
    transaction(room, ABORT, ("b", "never"))
    transaction(room, COMMIT, ("a", "2"))
    room.roll()
    assert room.compact() == 1
    transaction(room, COMMIT, ("a", "3"))
    room.roll()
    assert room.compact() == 1
    assert [(key, value) for _, key, value in room.texts()] == [("a", "3")]


def test_an_aborted_transaction_stays_in_the_index_as_long_as_a_batch_of_it_is_there() -> None:
    room = Room(replace(COMPACT, delete_retention_ms=0, min_cleanable_dirty_ratio=0.0))
    transaction(room, ABORT, ("a", "1"))
    room.append(("z", "1"))
    room.roll()
    room.compact()
    assert spans(header for header, _ in room.batches()) == [(0, 0, 0), (1, 1, 1), (2, 2, 1)]
    assert [each[:3] for each in room.log.aborted_transactions(0, 3)] == [(7, 0, 1)]
    transaction(room, COMMIT, ("b", "1"))
    room.roll()
    room.compact()
    assert 0 not in {header.base_offset for header, _ in room.batches()}, "another batch has the sequence now"
    room.append(("y", "1"))
    room.roll()
    room.compact()
    room.append(("y", "2"))
    room.roll()
    room.compact()
    assert sorted(header.base_offset for header, _ in room.batches()) == [2, 3, 4, 6]
    assert room.log.aborted_transactions(0, 7) == []
    room.restart(clean=False)
    assert room.log.log_end_offset == 7
    assert room.log.producers.entries[7].transaction_start == -1


def test_the_marker_of_a_producer_without_records_stays_for_its_epoch() -> None:
    room = Room(replace(COMPACT, delete_retention_ms=0, min_cleanable_dirty_ratio=0.0))
    mark(room, COMMIT)
    room.append(("a", "1"))
    room.roll()
    for value in "234":
        room.compact()
        room.append(("a", value))
        room.roll()
    assert room.batches()[0][0].is_control
    assert room.log.producers.entries[7].epoch == 0


def test_retention_deletes_segments_of_a_compact_and_delete_topic() -> None:
    room = Room(replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000))
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.now_ms += 900
    room.append(("b", "1"), ("b", "2"))
    room.roll()
    assert room.compact() == 1
    assert [text[0] for text in room.texts()] == [1, 3]
    assert room.log.segments.bases == [0, 4]
    room.now_ms += 1001
    room.append(("d", "1"))
    maintain(room.manager, room.now_ms)
    assert room.texts() == [(4, "d", "1")]
    room.reconfigure(replace(COMPACT, retention_ms=1))
    room.append(("c", "1"))
    room.roll()
    room.now_ms += 1000
    maintain(room.manager, room.now_ms)
    assert len(room.texts()) == 2, "with compact alone, age means nothing"


def test_cleaned_segments_keep_their_largest_timestamp() -> None:
    room = Room(replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000))
    room.append_batch(encode_batch([(NOW, b"a", b"1", ()), (NOW + 5, b"a", b"2", ())]))
    room.roll()
    room.append_batch(encode_batch([(NOW + 100, b"b", b"1", ()), (NOW + 50, b"b", b"2", ())]))
    room.roll()
    room.compact()
    assert room.log.segments[0].largest_timestamp == NOW + 50, "of what is left"


def test_keys_that_do_not_fit_into_the_map_are_compacted_next_time() -> None:
    room = Room()
    room.settings = CleanerSettings(library=room.library, dedupe_buffer_bytes=1, load_factor=0.02)
    values = [[(f"{key}", f"{value}") for key in range(30)] for value in range(3)]
    for each in values:
        room.append(*each)
    room.roll()
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 90})
    job.run()
    while room.manager.cleaner.finish_slice(job, NOW):
        job.run()
    assert room.manager.cleaner.offsets[T0] == 20, "that many keys are in the smallest map"
    assert len(room.texts()) == 90
    room.reconfigure(replace(COMPACT, min_cleanable_dirty_ratio=0.0))
    assert room.compact() >= 3
    assert room.texts() == [(60 + key, f"{key}", "2") for key in range(30)]


def test_a_compaction_is_done_in_slices_and_limited_in_what_it_reads_and_writes() -> None:
    room = Room()
    for value in range(50):
        room.append(("a", f"{value}" * 100), (f"{value}", "x" * 100))
    room.roll()
    settings = CleanerSettings(io_buffer_bytes=2000, io_bytes_per_second=8000)
    job = begun(room.manager.cleaner, NOW, settings, stable_offsets={T0: 100})
    sizes = []
    job.run()
    while room.manager.cleaner.finish_slice(job, NOW):
        sizes.append(job.slice_bytes)
        job.run()
    stats = job.compaction.stats
    assert sum(sizes) >= stats.indexed_bytes + stats.read_bytes + stats.written_bytes
    assert max(sizes) < 2 * 8000 / 4 + 2000
    assert len(sizes) > 8


def test_readers_of_a_replaced_segment_continue() -> None:
    room = Room()
    for value in range(6):
        room.append(("a", f"{value}"), ("b", f"{value}"))
    room.roll()
    assert room.log.read(3, 1), "its descriptor is open"
    assert room.compact() == 1
    data = room.log.read(3, 1 << 20)
    assert data[:8] == (10).to_bytes(8, "big"), "the next batch that is left"
    deleted = [name for name in room.names() if name.endswith(".deleted")]
    assert len(deleted) == 3
    room.now_ms += 10
    maintain(room.manager, room.now_ms)
    assert not [name for name in room.names() if name.endswith((".deleted", ".cleaned", ".swap"))]


def test_times_and_offsets_are_found_in_a_compacted_log() -> None:
    room = Room()
    for value in range(100):
        room.now_ms += 1
        room.append(("a" if value % 2 else f"{value}", "x" * 50))
    room.roll()
    room.compact()
    expected = [record.offset for record in room.records()]
    assert expected == [*range(0, 100, 2), 99]
    for offset in range(100):
        found = at_once(room.log.find_offset(NOW + 1 + offset))
        assert found.offset == min(each for each in expected if each >= offset)
        first = next(iter(room.log.read(offset, 1)), None)
        assert first is not None
    latest = at_once(room.log.find_max_timestamp())
    assert latest.offset == 99
    assert len(room.log.segments[0].offset_index.entries) > 10


def test_a_removed_record_is_not_the_latest() -> None:
    room = Room()
    room.append_batch(encode_batch([(NOW + 500, b"a", b"1", ())]))
    room.append_batch(encode_batch([(NOW + 100, b"b", b"1", ())]))
    room.append_batch(encode_batch([(NOW + 900, b"b", b"2", ())], producer_id=1, producer_epoch=0, base_sequence=0))
    room.append_batch(encode_batch([(NOW + 200, b"b", b"3", ())]))
    room.roll()
    room.compact()
    latest = at_once(room.log.find_max_timestamp())
    assert (latest.timestamp, latest.offset) == (NOW + 500, 0), "the batch of 900 has no record any more"
    assert at_once(room.log.find_offset(NOW + 501)) is None
