"""The job that syncs a log's segments, indexes, snapshots and leader epochs on another thread."""

from collections.abc import Sequence

from odradek.broker.log.checkpoints import leader_epoch_cache
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.errors import NotRunError
from odradek.broker.log.names import SNAPSHOT, TEMPORARY, offset_file
from odradek.broker.log.segments.open_files import write_file
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments
from odradek.runtime import Disk
from odradek.runtime.shortages import is_out_of_descriptors


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
        if self._encoded_epochs is not None:
            self._epochs.is_dirty = True


def make_flush_job(
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
