"""Readers of a log with gaps, at every offset, after every slice of its compaction, on this machine's disk. Row M1."""

import logging
import random
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings, CompactionJob
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.broker.turns import at_once
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker, encode_marker
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, read_header, write_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.runtime import SystemDisk
from tests.broker.log.compacting import COMPACT, NOW, T0, begun
from tests.broker.log.scene import new_manager

CONFIG = replace(COMPACT, segment_bytes=400, index_interval_bytes=60)
Rows = dict[int, tuple[bytes, bytes, int]]
"""Records by offset: key, value and time."""


class Model:
    """A leader's batches, with gaps between their offsets, and what compaction has left of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records: Rows = {}
        self.aborted: set[int] = set()
        self.transactions: list[AbortedTransaction] = []
        self.open: dict[int, list[int]] = {}  # the offsets of a producer's open transaction
        self.sequences = {7: 0, 8: 0}
        self.end = 0

    def batch(self) -> bytearray:
        producer = self.random.choice([-1, 7, 8])
        if producer in self.open and self.random.random() < 0.5:
            return self.marker(producer, self.random.choice([ControlType.ABORT, ControlType.COMMIT]))
        rows = [self._row() for _ in range(self.random.choice([1, 2]))]
        offsets = range(self.end, self.end + len(rows))
        self.records.update(zip(offsets, rows, strict=True))
        encoded = [(time_ms, key, value, ()) for key, value, time_ms in rows]
        if producer < 0:
            return self._placed(encode_batch(encoded))
        sequence = self.sequences[producer]
        self.sequences[producer] += len(rows)
        self.open.setdefault(producer, []).extend(offsets)
        numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        return self._placed(encode_batch(encoded, is_transactional=True, **numbers))

    def marker(self, producer: int, kind: ControlType) -> bytearray:
        offsets = self.open.pop(producer)
        if kind is ControlType.ABORT:
            self.aborted.update(offsets)
            stable = min([self.end + 1, *(other[0] for other in self.open.values())])
            self.transactions.append(AbortedTransaction(producer, offsets[0], self.end, stable))
        marker = EndTransactionMarker(kind, 0)
        return self._placed(encode_marker(marker, producer_id=producer, producer_epoch=0, now_ms=self._row()[2]))

    def leave_gap(self) -> None:
        self.end += self.random.choice([0, 0, 1, 3])

    def compact(self, start: int, end: int, indexed: int, having_batches: set[int]) -> None:
        """Remove from `start` to `end` what later records with the same keys before `indexed` replace."""
        last = {key: at for at, (key, _, _) in sorted(self.records.items()) if at < indexed and at not in self.aborted}
        for at in [at for at in self.records if start <= at < end]:
            if at in self.aborted or (at < indexed and last[self.records[at][0]] != at):
                del self.records[at]
        gone = {last for _, _, last, _ in self.transactions if start <= last < end} - having_batches
        self.transactions = [each for each in self.transactions if each.last_offset not in gone]

    def _row(self) -> tuple[bytes, bytes, int]:
        draw = self.random.randrange
        return b"k%d" % draw(6), b"v" * draw(30), NOW - draw(500)

    def _placed(self, batch: bytearray) -> bytearray:
        write_header(batch, read_header(batch)._replace(base_offset=self.end, partition_leader_epoch=0))
        self.end = read_header(batch).next_offset
        return batch


class Readers:
    """Readers of a log as Kafka may have left it in `folder`: its segments begin and end with gaps."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.model = folder / "t-0", Model(seed)
        self.walks: list[tuple[int, Rows]] = []
        """Readers that read one batch after each slice: their positions, and the records that they have seen."""
        self.folder.mkdir(parents=True)
        for _ in range(12):
            self.model.leave_gap()
            path = self.folder / f"{self.model.end:020d}.log"
            for _ in range(self.model.random.choice([1, 2, 3])):
                self.model.leave_gap()
                with path.open("ab") as file:
                    file.write(self.model.batch())
        self.open()

    def open(self) -> None:
        # Recovery allows gaps where the log has been compacted.
        (self.folder.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {self.model.end}\n")
        self.manager = new_manager(SystemDisk(), str(self.folder.parent), config=CONFIG)
        self.manager.open(NOW)
        self.log = self.manager.logs[T0]
        self.manager.cleaner.offsets.clear()
        self.commit()

    def commit(self) -> None:
        self.log.flush()
        self.log.producers.committed(self.log.written_offset)

    def append(self) -> None:
        for _ in range(12):
            self.model.leave_gap()
            self.log.append_as_follower(self.model.batch(), now_ms=NOW)
        for producer in list(self.model.open):
            self.log.append_as_follower(self.model.marker(producer, ControlType.ABORT), now_ms=NOW)
        self.commit()

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """Return what is in the files, without the code under test."""
        data = b"".join(path.read_bytes() for path in sorted(self.folder.glob("*.log")))
        return [(header, data[position : position + header.size]) for position, header in iterate_batches(data)]

    def check(self, *, limits: bool = True) -> None:
        """Read from every offset; with `limits` also up to every one."""
        log, model, batches, end = self.log, self.model, self.batches(), self.model.end
        assert (log.high_watermark, log.log_end_offset) == (end, end)
        whole = b"".join(data for _, data in batches)
        lasts = [header.last_offset for header, _ in batches]
        positions = [sum(header.size for header, _ in batches[:number]) for number in range(len(batches) + 1)]
        for offset in range(log.log_start_offset, end + 1):
            number = bisect_left(lasts, offset)
            position = positions[number]
            for size, limit in [(1, end), (130, end), *((9999, each) for each in range(offset, end + 1) if limits)]:
                data = bytes(log.read(offset, size, up_to_offset=limit))
                limit_position = positions[bisect_left(lasts, limit)]
                where = f"a read of {size} bytes from {offset} up to {limit}"
                assert whole[:limit_position].startswith(data, position) or not data, where
                least = batches[number][0].size if position < limit_position else 0
                assert least <= len(data) <= max(size, least), where
            assert log.aborted_transactions(offset, end) == [t for t in model.transactions if t[2] >= offset]
        assert rows(batches) == model.records
        assert {entry.batches[-1].last_offset for entry in log.producers.entries.values()} <= set(lasts)
        times = [(each.timestamp, each.offset) for _, data in batches for each in decode_records(data)]
        for time_ms, _ in times:
            found = at_once(log.find_offset(time_ms))
            assert found[:2] == next(each for each in times if each[0] >= time_ms)

    def walk_on(self) -> None:
        for number, (offset, seen) in enumerate(self.walks):
            if data := self.log.read(offset, 1):
                ((_, header),) = iterate_batches(data)
                self.walks[number] = header.next_offset, seen | rows([(header, bytes(data))])

    def slices(self, settings: CleanerSettings) -> Iterator[CompactionJob]:
        """Compact; yield after each slice, during which searches by time go on."""
        cleaner, model, unstable = self.manager.cleaner, self.model, self.log.first_unstable_offset
        job = begun(cleaner, NOW, settings, stable_offsets={T0: model.end if unstable is None else unstable})
        written = [(header.producer_id, header.base_offset) for header, _ in self.batches()]
        having_batches = {t[2] for t in model.transactions if any(p == t[0] and t[1] <= o < t[2] for p, o in written)}
        is_more = True
        while is_more:
            job.run()
            before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
            searches = [self.log.find_offset(NOW - ago) for ago in range(0, 500, 50)]
            for search in searches:
                next(search, None)
            is_more = cleaner.finish_slice(job, NOW)
            for search in searches:
                at_once(search)
            if job.cleaned is not None:
                bases, end = [each.base_offset for each in job.cleaned.sources], job.cleaned.sources[-1].next_offset
                model.compact(bases[0], end, job.compaction.next_dirty_offset, having_batches)
                self.check_files(before, [f"{base:020d}" for base in bases])
            yield job

    def check_files(self, before: dict[str, bytes], replaced: list[str]) -> None:
        """Readers may have old files open, which stay for now; producers have a snapshot where a segment begins."""
        after = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        for name in before:
            stem, _, kind = name.partition(".")
            if stem in replaced and kind in ("log", "index", "timeindex", "txnindex"):
                assert after[f"{name}.deleted"] == before[name]
            if kind == "snapshot":
                assert (name in after) == (stem not in replaced[1:])
        old, new = b"".join(before[f"{stem}.log"] for stem in replaced), after[f"{replaced[0]}.log"]
        ends = [[header.last_offset for _, header in iterate_batches(data)][-1] for data in (old, new)]
        assert ends[0] == ends[1], "recovery allows no gap that a crash may have left"
        assert self.log.take_deleted_files(NOW) == []


def rows(batches: list[tuple[BatchHeader, bytes]]) -> Rows:
    records = [each for header, data in batches if not header.is_control for each in decode_records(data)]
    return {each.offset: (each.key or b"", each.value or b"", each.timestamp) for each in records}


@pytest.mark.parametrize(("seed", "keys"), [(0, 1000), (1, 3)])
def test_readers_at_every_offset_get_on_after_every_slice(
    tmp_path: Path, seed: int, keys: int, caplog: pytest.LogCaptureFixture
) -> None:
    readers, swaps = Readers(tmp_path / "data", seed), 0
    few = {"dedupe_buffer_bytes": 1, "io_buffer_bytes": 600, "io_bytes_per_second": 1}
    settings = CleanerSettings(load_factor=keys / 1024, **few)
    readers.check()
    readers.manager.close()
    readers.open()
    caplog.clear()
    for _ in range(3):
        for job in readers.slices(settings):
            swaps += job.cleaned is not None
            readers.walks.append((readers.log.log_start_offset, {}))
            readers.walk_on()
            readers.check(limits=job.cleaned is not None)
        readers.append()
    assert swaps > 6
    for _ in range(readers.model.end):
        readers.walk_on()
    assert all(
        end == readers.model.end and readers.model.records.items() <= seen.items() for end, seen in readers.walks
    )
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
