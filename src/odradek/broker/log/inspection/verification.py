"""Verification that a log's files are valid and agree with each other (`odradek log verify`).

```
.log                     CRC of every batch, sizes, codecs, rising offsets and leader epochs; with `records`, records
.index .timeindex        every entry against its batch
.txnindex                every entry against the batches of its transaction, and every aborted transaction
.snapshot                its format; no offset at or beyond that in its name
leader-epoch-checkpoint  its format, and the epoch of every batch
the segments             no gap between two, except by compaction
a data directory         its checkpoints: no offset is beyond its log
```
Nothing is changed or locked. While a broker runs, an incomplete end and removed files are notes, not damage. Errors
beyond the recovery point are also notes, except in `.log` files: the next start rewrites the other files.
"""

from collections.abc import Callable, Iterator, Mapping

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offset_lines,
)
from odradek.broker.log.inspection.file_contents import OFFSET_CHECKPOINTS, partition_directories
from odradek.broker.log.inspection.findings import (
    DirectoryState,
    Finding,
    LogContext,
    Report,
    Totals,
    directory_state,
)
from odradek.broker.log.inspection.partition_check import PartitionCheck
from odradek.broker.log.inspection.segment_check import FileCheck
from odradek.broker.log.names import parse_folder
from odradek.model import TopicPartition
from odradek.runtime import Disk

Lines = list[tuple[int, TopicPartition, int]]


class Verification:
    """The verification of one or several directories, with totals.

    With `records`, records are decoded, too. `advance` is called with each batch's size.
    """

    def __init__(
        self, disk: Disk, *, records: bool = False, advance: Callable[[int], object] = lambda _count: None
    ) -> None:
        self._report = Report(disk)
        self._records = records
        self._advance = advance
        self.totals = self._report.totals

    def data_directory(self, directory: str) -> Iterator[Finding]:
        """Check the logs and checkpoints of a data directory. Raises `OSError`."""
        report, disk = self._report, self._report.disk
        state = directory_state(disk, directory)
        self._report_state(directory, state)
        checkpoints = self._read_checkpoints(directory, state)
        self._check_identity(directory, state)
        if disk.is_directory(path := f"{directory}/{meta_properties.CLEAN_SHUTDOWN}"):
            report.damage(path, "is a directory: no broker starts")
        yield from report.take()
        ends: dict[TopicPartition, int | None] = {}
        contexts = _contexts(state, checkpoints)
        for folder in partition_directories(disk, directory):
            partition = parse_folder(folder.rpartition("/")[2])
            assert partition is not None
            check = self._partition(folder, contexts(partition))
            yield from check.run()
            ends[partition] = check.end_offset
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
            self._check_ends(f"{directory}/{name}", checkpoints.get(name, []), ends)
        yield from report.take()

    def partition_directory(self, directory: str) -> Iterator[Finding]:
        """Check one partition's log, and the checkpoints of its data directory. Raises `OSError`."""
        disk = self._report.disk
        parent, _, name = disk.absolute(directory).rstrip("/").rpartition("/")
        state = directory_state(disk, parent)
        self._report_state(directory, state)
        checkpoints = self._read_checkpoints(parent, state)
        yield from self._report.take()
        yield from self._partition(directory, _contexts(state, checkpoints)(parse_folder(name))).run()

    def _partition(self, directory: str, context: LogContext) -> PartitionCheck:
        return PartitionCheck(self._report, directory, context, records=self._records, advance=self._advance)

    def _report_state(self, directory: str, state: DirectoryState) -> None:
        if state.lock_error is not None:
            reason = state.lock_error.strerror or state.lock_error
            path = f"{directory}/{meta_properties.LOCK}"
            self._report.damage(path, f"cannot be read: {reason}; whether a broker runs here is not known")
        if state.holder is not None:
            self._report.note(directory, f"is in use by {state.holder}; what comes in meanwhile is not looked at")
        elif not state.is_clean:
            self._report.note(directory, "was not closed by its broker; the next start recovers it")

    def _check_identity(self, directory: str, state: DirectoryState) -> None:
        path = f"{directory}/{meta_properties.META_PROPERTIES}"
        if not self._report.disk.exists(path):
            if partition_directories(self._report.disk, directory):
                self._report.damage(path, "is missing")
            return
        found = self._report.read(path, state, meta_properties.decode_meta_properties)
        if found is not None and (found.broker_id is None or found.cluster_id is None):
            self._report.damage(path, "does not say whose directory it is: node.id or cluster.id is missing", 0)

    def _read_checkpoints(self, directory: str, state: DirectoryState) -> dict[str, Lines]:
        found = {}
        for name in OFFSET_CHECKPOINTS:
            path = f"{directory}/{name}"
            if self._report.disk.exists(path):
                lines = self._report.read(path, state, decode_offset_lines)
                if lines is not None:
                    found[name] = lines
        return found

    def _check_ends(self, path: str, lines: Lines, ends: dict[TopicPartition, int | None]) -> None:
        check = FileCheck(path)
        for byte, partition, offset in lines:
            end = ends.get(partition)
            if end is not None and offset > end:
                check.fail(byte, f"has offset {offset} for {partition}, which ends at {end}")
        self._report.add(check)


def _contexts(state: DirectoryState, checkpoints: Mapping[str, Lines]) -> Callable[[TopicPartition | None], LogContext]:
    points, cleaned, starts = (
        _offsets_in(checkpoints.get(name)) for name in (RECOVERY_POINTS, CLEANER_OFFSETS, LOG_START_OFFSETS)
    )
    return lambda partition: LogContext(
        state=state,
        recovery_point=points.get(partition, 0),
        cleaned_offset=cleaned.get(partition, 0),
        log_start_offset=starts.get(partition, 0),
    )


def _offsets_in(lines: Lines | None) -> dict[TopicPartition | None, int]:
    return {partition: offset for _, partition, offset in lines or ()}


__all__ = ["Finding", "Totals", "Verification"]
