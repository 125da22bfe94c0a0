"""How far a log is synced, and the flush job that syncs more on another thread."""

from collections.abc import Sequence

from odradek.broker.log.checkpoints import leader_epoch_cache
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.errors import NotRunError
from odradek.broker.log.names import SNAPSHOT, TEMPORARY, offset_file, parent_of
from odradek.broker.log.segments.open_files import write_file
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments
from odradek.runtime import Disk
from odradek.runtime.shortages import is_out_of_descriptors


class Durability:
    """How far one log is synced; at most one flush job is under way.

    Batches below `synced_offset` and indexes below `recovery_point` are synced. The next job also syncs
    `unsynced_paths`: changed directories, and files outside segments.
    """

    __slots__ = (
        "_closed_at",
        "_directory",
        "_disk",
        "_job",
        "last_flush_ms",
        "recovery_point",
        "synced_offset",
        "unsynced_paths",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        closed_at: int | None,
        synced_offset: int,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        """`closed_at` is the log end offset of a clean shutdown, or None."""
        self._disk = disk
        self._directory = directory
        self._job: FlushJob | None = None
        self._closed_at = closed_at
        self.unsynced_paths = set() if closed_at is not None else {directory, parent_of(directory)}
        self.synced_offset = synced_offset
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms

    @property
    def is_flushing(self) -> bool:
        return self._job is not None

    def is_untouched(self, end_offset: int) -> bool:
        """Return whether nothing has changed since a clean shutdown."""
        return self._closed_at == end_offset and not self.unsynced_paths

    def begin(
        self, segments: Segments, epochs: LeaderEpochs, *, written_offset: int, include_active: bool
    ) -> "FlushJob | None":
        """Return a job, None if no segment needs a sync. Raises `OSError` if index entries cannot be written."""
        assert self._job is None, "one at a time"
        self._job = _make_flush_job(
            self._disk,
            segments,
            epochs,
            [self._directory, *self.unsynced_paths],
            recovery_point=self.recovery_point,
            written_offset=written_offset,
            include_active=include_active,
        )
        if self._job is not None:
            self.unsynced_paths.clear()
        return self._job

    def begin_close(self, segments: Segments, epochs: LeaderEpochs, *, end_offset: int) -> "FlushJob | None":
        """Return a job that syncs everything for a clean shutdown, None if the log has no file. Raises `OSError`."""
        self._job = _make_flush_job(
            self._disk,
            segments,
            epochs,
            [offset_file(self._directory, end_offset, SNAPSHOT), self._directory, *self.unsynced_paths],
            recovery_point=min(self.recovery_point, segments.active.base_offset) - 1,
            written_offset=end_offset,
            include_active=True,
            is_last=True,
        )
        if self._job is not None:
            self._job.recovery_point = self._job.synced_offset = end_offset
        return self._job

    def finish(self, job: "FlushJob") -> Exception | None:
        """Record the synced offsets; return the job's error.

        After a truncation record nothing, and return only a failed sync's error.
        """
        if job.error is not None:
            job.give_back_epochs()
        if self._job is not job:
            return job.error if job.failed_sync else None
        self._job = None
        if job.error is not None:
            self.unsynced_paths.update(job.names)
        if job.error is None:
            self.synced_offset = max(self.synced_offset, job.synced_offset)
            self.recovery_point = max(self.recovery_point, job.recovery_point)
        return job.error

    def truncate(self, offset: int, active: Segment) -> None:
        """Record that the log ends at `offset`, in `active`."""
        self._job = self._closed_at = None
        self.unsynced_paths.update((self._directory, parent_of(self._directory)))
        self.synced_offset = min(self.synced_offset, offset)
        self.recovery_point = min(self.recovery_point, active.base_offset)

    def abandon(self) -> None:
        """Ignore the job that is under way."""
        self._job = None


class FlushJob:
    """Syncs segments with indexes and snapshots, the leader epochs, and the paths in `names`.

    `run`, on any thread, raises nothing. It sets `error`, and `failed_sync` if a sync failed for another reason than
    too few descriptors. On success the log is synced up to `synced_offset`.
    """

    __slots__ = (
        "_disk",
        "_encoded_epochs",
        "_epochs",
        "_epochs_path",
        "error",
        "failed_sync",
        "names",
        "paths",
        "recovery_point",
        "synced_offset",
    )

    def __init__(
        self,
        disk: Disk,
        segments: Sequence[Segment],
        epochs: LeaderEpochs,
        names: Sequence[str],
        *,
        synced_offset: int,
        recovery_point: int,
    ) -> None:
        directory = segments[0].directory
        self._disk = disk
        self.synced_offset = synced_offset
        self.recovery_point = recovery_point
        self._epochs = epochs
        self._encoded_epochs = epochs.encode() if epochs.is_dirty else None
        self._epochs_path = f"{directory}/{leader_epoch_cache.FILE_NAME}"
        self.error: Exception | None = NotRunError("the sync was not begun")
        self.failed_sync = False
        self.names = names
        self.paths = [
            path
            for segment in segments
            for path in (*segment.paths, offset_file(directory, segment.base_offset, SNAPSHOT))
        ]
        self.paths += [self._epochs_path, *sorted(names)]
        epochs.is_dirty = False

    def run(self) -> None:
        """Sync everything; files that retention has removed are skipped."""
        try:
            self.prepare()
        except Exception as error:
            self.error = error
            return
        try:
            self._disk.sync_all(self.paths)
        except Exception as error:
            self.error, self.failed_sync = error, not is_out_of_descriptors(error)
        else:
            self.error = None

    def prepare(self) -> None:
        """Write the leader epoch file, without syncing. Raises `OSError`."""
        if self._encoded_epochs is not None:
            write_file(self._disk, self._epochs_path + TEMPORARY, self._encoded_epochs)
            self._disk.rename(self._epochs_path + TEMPORARY, self._epochs_path)

    def give_back_epochs(self) -> None:
        """Mark the leader epochs as dirty again after a failed job."""
        if self._encoded_epochs is not None:
            self._epochs.is_dirty = True


def _make_flush_job(
    disk: Disk,
    segments: Segments,
    epochs: LeaderEpochs,
    names: Sequence[str],
    *,
    recovery_point: int,
    written_offset: int,
    include_active: bool,
    is_last: bool = False,
) -> FlushJob | None:
    """Return a job for the segments that end beyond `recovery_point`, None without any.

    Writes index entries that are still in memory to files. With `is_last` closes the files of all but the active
    segment. Raises `OSError` if a write fails.
    """
    active = segments.active
    unsynced: list[Segment] = []
    for segment in segments if include_active else segments[:-1]:
        is_whole = segment.written_size == segment.size
        if segment.is_created and segment.next_offset > recovery_point and (is_whole or include_active):
            segment.flush_indexes()
            if is_last and segment is not active:
                segment.close()
            unsynced.append(segment)
        if not is_whole:
            break
    if not unsynced:
        return None
    last = unsynced[-1]
    is_finished = last is not active and last.written_size == last.size
    return FlushJob(
        disk,
        unsynced,
        epochs,
        names,
        synced_offset=min(last.next_offset, written_offset),
        recovery_point=last.next_offset if is_finished else last.base_offset,
    )
