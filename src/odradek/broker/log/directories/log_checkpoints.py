"""Planning and writing a broker's checkpoints: recovery points, log start offsets, high watermarks, cleaner offsets."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    encode_offsets,
)
from odradek.broker.log.cleaner.log_cleaner import LogCleaner
from odradek.broker.log.directories.log_directories import LogDirectories
from odradek.broker.log.directories.log_status import LogStatuses
from odradek.broker.log.errors import CheckpointError, is_disk_failure, is_passing
from odradek.broker.log.log import Log
from odradek.broker.log.names import parent_of
from odradek.model import TopicPartition
from odradek.runtime import Disk


class CheckpointPlan(NamedTuple):
    """The content of checkpoint files by path. Later plans have higher numbers; `is_whole` plans have all files."""

    number: int
    files: Mapping[str, Mapping[TopicPartition, int]]
    is_whole: bool


class CheckpointWriter:
    """Writes plans. `planned` is the last plan's number, `written` that of the last whole plan on the disk."""

    def __init__(self, disk: Disk) -> None:
        self.planned = 0
        self.written = 0
        self._disk = disk
        self._lock = Lock()
        self._held: dict[str, bytes] = {}
        """The content of each file, which is written only when it changes."""
        self._numbers: dict[str, int] = {}
        self._is_stopped = False

    def plan(self, files: Mapping[str, Mapping[TopicPartition, int]], *, is_whole: bool) -> CheckpointPlan:
        """Return the next plan; `files` must not change later."""
        self.planned += 1
        return CheckpointPlan(self.planned, files, is_whole)

    def write(self, plan: CheckpointPlan) -> None:
        """Write changed files, each atomically and synced, except files that a later plan has written.

        Raises `CheckpointError` if a write fails.
        """
        with self._lock:
            for path, offsets in plan.files.items():
                if self._is_stopped or self._numbers.get(path, 0) > plan.number:
                    continue
                self._numbers[path] = plan.number
                data = encode_offsets(offsets)
                if self._held.get(path) != data:
                    self._held.pop(path, None)
                    try:
                        self._disk.replace_file(path, data)
                    except OSError as error:
                        raise CheckpointError(parent_of(path), path, error) from error
                    self._held[path] = data
            if plan.is_whole:
                self.written = max(self.written, plan.number)

    def stop(self) -> None:
        """Stop writing because the directories are unlocked; wait for a write under way."""
        with self._lock:
            self._is_stopped = True


class LogCheckpoints:
    """The checkpoints of one broker. Methods that plan or write raise `CheckpointError`.

    `on_disk_failure` is called with a directory whose disk has failed, and the error.
    """

    def __init__(
        self,
        disk: Disk,
        directories: LogDirectories,
        logs: Mapping[TopicPartition, Log],
        statuses: LogStatuses,
        cleaner: LogCleaner,
        on_disk_failure: Callable[[str, OSError], None],
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._logs = logs
        self._statuses = statuses
        self._cleaner = cleaner
        self._on_disk_failure = on_disk_failure
        self._writer = CheckpointWriter(disk)
        self.is_due = False
        """Whether `write_due` is scheduled."""
        self._outdated: dict[TopicPartition, int] = {}
        """The number of the last plan with entries of a former log, by partition."""

    def mark_outdated(self, partitions: Iterable[TopicPartition]) -> None:
        """Require that these partitions' entries are rewritten before the partitions are used again."""
        self._outdated.update(dict.fromkeys(partitions, self._writer.planned))

    def update_outdated(self, partition: TopicPartition) -> None:
        """Write the files if they may contain an outdated entry of `partition`."""
        if self._outdated.get(partition, -1) >= self._writer.written:
            self.write_all()
        self._outdated.pop(partition, None)

    def write_all(self) -> None:
        try:
            self.write(self.plan())
        except CheckpointError as error:
            self.write_failed(error)
            raise

    def write_due(self) -> None:
        """Write all files if this is due; a failed write is repeated with the next one."""
        if self.is_due:
            self.is_due = False
            with suppress(CheckpointError):
                self.write_all()

    def plan(self) -> CheckpointPlan:
        """Return the current content of all files. Raises `CheckpointError` only after a passing error."""
        files: dict[str, Mapping[TopicPartition, int]] = {}
        for directory in self._directories.usable:
            try:
                self._directories.check_still_there(directory)
            except OSError as error:
                if is_passing(error):
                    raise CheckpointError(directory, f"{directory}/{meta_properties.META_PROPERTIES}", error) from error
                self._on_disk_failure(directory, error)
            else:
                files |= self._contents(directory)
        return self._writer.plan(files, is_whole=True)

    def write(self, plan: CheckpointPlan) -> None:
        """Write the files of `plan`, on any thread, unless newer ones are written."""
        self._writer.write(plan)

    def write_failed(self, error: CheckpointError) -> None:
        """Take the directory offline if `error`, from `write`, means a failed disk."""
        if is_disk_failure(error.error):
            self._on_disk_failure(error.directory, error.error)

    def write_directory(self, directory: str, joining: Mapping[TopicPartition, Log] = MappingProxyType({})) -> None:
        """Write the files of one directory, also with the offsets of logs that are about to be in it."""
        self._writer.write(self._writer.plan(self._contents(directory, joining), is_whole=False))

    def _contents(
        self, directory: str, joining: Mapping[TopicPartition, Log] = MappingProxyType({})
    ) -> dict[str, Mapping[TopicPartition, int]]:
        logs = {partition: log for partition, log in self._logs.items() if parent_of(log.directory) == directory}
        logs |= joining
        points = {tp: log.writer.recovery_point for tp, log in logs.items()}
        starts = {tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > log.first_base_offset}
        marks = {tp: log.high_watermark for tp, log in logs.items()}
        cleaned = {tp: offset for tp in logs if (offset := self._cleaner.compacted_offset(tp)) is not None}
        for found in self._statuses.unopened_in(directory):
            points[found.partition] = found.recovery_point
            starts[found.partition] = found.log_start_offset
            marks[found.partition] = found.high_watermark
            if found.partition in self._cleaner.offsets:
                cleaned[found.partition] = self._cleaner.offsets[found.partition]
        for lost in self._statuses.lost.values():
            if parent_of(lost.folder) == directory:
                points[lost.partition] = max(points.get(lost.partition, 0), lost.recovery_point)
                marks[lost.partition] = max(marks.get(lost.partition, 0), lost.high_watermark)
        files = {RECOVERY_POINTS: points, LOG_START_OFFSETS: starts, HIGH_WATERMARKS: marks}
        if cleaned or self._disk.exists(f"{directory}/{CLEANER_OFFSETS}"):
            files[CLEANER_OFFSETS] = cleaned
        return {f"{directory}/{name}": offsets for name, offsets in files.items()}

    def reset(self) -> None:
        self._writer.stop()
        self._writer = CheckpointWriter(self._disk)
