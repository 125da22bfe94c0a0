"""Shared helpers of compaction tests: one compacted log on a disk in memory, and a consumer's view of it."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings, CompactionJob, LogCleaner
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.kernels import LIBRARY, Library
from odradek.model import Buffer, TopicPartition
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches
from odradek.protocol.batches.records import Record, decode_records, encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import maintain

NOW = 1_800_000_000_000
DAY_MS = 86_400_000
T0 = TopicPartition("t", 0)
COMPACT = LogConfig(
    cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, index_interval_bytes=200, file_delete_delay_ms=10
)
KeyAndValue = tuple[str, str | None]


class Room:
    """One broker's logs of topic t. `now_ms` goes where a test puts it."""

    library: Library | None = LIBRARY
    """As in `CleanerSettings`."""

    def __init__(self, config: LogConfig = COMPACT, disk: MemoryDisk | None = None) -> None:
        self.config = config
        self.disk = disk or MemoryDisk()
        self.now_ms = NOW
        self.settings = CleanerSettings(library=self.library)
        self.manager = self.opened()

    def opened(self) -> LogManager:
        manager = LogManager(
            self.disk, ["/data"], broker_id=1, entropy=random.Random(1), config_for=lambda topic: self.config
        )
        manager.open(self.now_ms)
        manager.get_or_create(T0, topic_id=None, now_ms=self.now_ms)
        return manager

    def restart(self, *, clean: bool = True) -> None:
        if clean:
            self.manager.close()
        self.disk.kill()
        self.manager = self.opened()

    @property
    def log(self) -> Log:
        return self.manager.logs[T0]

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.manager.update_config(TopicPartition("t", 0))

    def append(self, *records: KeyAndValue, **batch: Any) -> int:
        """One batch of text, at `now_ms`; its first offset."""
        encoded = [(self.now_ms, key.encode(), None if value is None else value.encode(), ()) for key, value in records]
        return self.append_batch(encode_batch(encoded, **batch))

    def append_batch(self, batch: Buffer, *, transactional: bool = True) -> int:
        info = self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms, transactional=transactional)
        self.log.write()
        return info.first_offset

    def roll(self) -> None:
        """Let what comes next be in a new segment, and sync those before it."""
        if self.log.segments[-1].size:
            self.log.roll(self.now_ms)
        maintain(self.manager, self.now_ms)

    def compact(self, *, stable_offset: int | None = None) -> int:
        """All that is due; how many compactions it took."""
        end = self.log.written_offset if stable_offset is None else stable_offset
        count = 0
        while (job := begun(self.manager.cleaner, self.now_ms, self.settings, stable_offsets={T0: end})) is not None:
            job.run()
            while self.manager.cleaner.finish_slice(job, self.now_ms):
                job.run()
            count += 1
        return count

    def batches(self) -> list[tuple[BatchHeader, Buffer]]:
        found = []
        offset = self.log.log_start_offset
        while data := self.log.read(offset, 1 << 20):
            for position, header in iterate_batches(data):
                found.append((header, data[position : position + header.size]))
                offset = header.next_offset
        return found

    def records(self) -> list[Record]:
        return [record for header, data in self.batches() if not header.is_control for record in decode_records(data)]

    def texts(self) -> list[tuple[int, str, str | None]]:
        """`(offset, key, value)` of each record that is left."""
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in self.records()
        ]

    def names(self) -> list[str]:
        return self.disk.list("/data/t-0")

    def checkpoint(self) -> str:
        self.manager.checkpoints.write_all()
        path = "/data/cleaner-offset-checkpoint"
        return self.disk.read_file(path).decode() if self.disk.exists(path) else ""


def begun(
    cleaner: LogCleaner, now_ms: int, settings: CleanerSettings, *, stable_offsets: Mapping[TopicPartition, int]
) -> CompactionJob | None:
    """Return a job for the dirtiest due log; None without one, or while `threads` jobs are under way."""
    steps = cleaner.begin_in_steps(now_ms, settings, stable_offset=stable_offsets.get)
    return next((job for job in steps if job is not None), None)


def spans(headers: Iterable[BatchHeader]) -> list[tuple[int, int, int]]:
    """`(first offset, last offset, records)` of each batch."""
    return [(header.base_offset, header.last_offset, header.record_count) for header in headers]
