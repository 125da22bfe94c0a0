"""Appended batches that are not yet written, and the job that writes them on another thread."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from odradek.broker.log.errors import NotRunError
from odradek.broker.log.names import SNAPSHOT, offset_file
from odradek.broker.log.segments.open_files import write_file
from odradek.broker.log.segments.segment import Segment
from odradek.model import Buffer
from odradek.runtime import Disk, File
from odradek.runtime.shortages import is_out_of_descriptors

THREAD_BYTES: Final = 65_536
"""Writes of at least this size use a thread, because fresh pages cost 3.6 ms per MiB (measured)."""


class PendingWrites:
    """Batches to be written: `buffers` for the active segment, `finished` for older ones; `size` in bytes."""

    __slots__ = ("_snapshots", "buffers", "finished", "size")

    def __init__(self) -> None:
        self.size = 0
        self.buffers: list[Buffer] = []
        self.finished: list[tuple[Segment, list[Buffer]]] = []
        self._snapshots: dict[Segment, bytes] = {}

    def roll(self, old: Segment, new: Segment, snapshot: bytes) -> None:
        """Keep the pending batches for `old`; later ones go to `new`, whose first write also creates its `snapshot`."""
        if self.buffers or old in self._snapshots:  # an empty segment gets its file, too
            self.finished.append((old, self.buffers))
            self.buffers = []
        self._snapshots[new] = snapshot

    def clear(self) -> None:
        self.size = 0
        self.buffers = []
        self.finished = []
        self._snapshots = {}

    def take(self, active: Segment) -> "list[WritePart]":
        """Remove all batches and return them as parts of a job, with pinned files. Raises `OSError`."""
        parts: list[WritePart] = []
        try:
            for segment, buffers in [*self.finished, (active, self.buffers)]:
                if segment.is_created:
                    parts.append(WritePart(segment, buffers, file=segment.log.pin()))
                else:
                    parts.append(WritePart(segment, buffers, snapshot=self._snapshots.pop(segment)))
        except Exception:
            for part in parts:
                part.give_back(keep=False)
            raise
        self.clear()
        return parts


class WritePart:
    """Buffers for one segment; without a `file` the job creates it and the producer `snapshot`."""

    __slots__ = ("buffers", "file", "segment", "size", "snapshot")

    def __init__(
        self, segment: Segment, buffers: list[Buffer], *, file: File | None = None, snapshot: bytes = b""
    ) -> None:
        self.segment = segment
        self.buffers = buffers
        self.size = sum(map(len, buffers))
        self.file = file
        self.snapshot = snapshot

    def give_back(self, *, keep: bool) -> None:
        """Unpin the file. If the job created it, add it to the file pool with `keep`, else close it."""
        if self.segment.is_created:
            self.segment.log.unpin()
        elif self.file is not None and keep:
            self.segment.log.adopt(self.file)
            self.segment.is_created = True
        elif self.file is not None:
            self.file.close()


class WriteJob:
    """Writes all batches up to `end_offset`; with `sync` also syncs them, `names`, and older `.log` files (`behind`).

    `run`, on any thread, raises nothing. It sets `error`, and `failed_sync` if a sync failed for another reason than
    too few descriptors. `rolls` is whether the job creates a segment.
    """

    __slots__ = ("_disk", "behind", "end_offset", "error", "failed_sync", "names", "parts", "rolls", "size", "sync")

    def __init__(
        self, disk: Disk, parts: list[WritePart], names: Sequence[str], *, size: int, end_offset: int, sync: bool
    ) -> None:
        self._disk = disk
        self.parts = parts
        self.behind: Sequence[str] = ()
        self.rolls = any(part.file is None for part in parts)
        self.names = names
        self.size = size
        self.end_offset = end_offset
        self.sync = sync
        self.error: Exception | None = NotRunError("the write was not begun")
        self.failed_sync = False

    @property
    def prefers_thread(self) -> bool:
        """Whether `run` would block the event loop for too long."""
        return self.sync or (self.size >= THREAD_BYTES and bool(self.parts))

    def run(self) -> None:
        self.error = None
        try:
            for part in self.parts:
                file = part.file
                if file is None:
                    file = part.file = self._begin_segment(part)
                file.append(part.buffers)
                if self.sync:
                    self._sync(file.sync)
            if self.behind:
                self._sync(partial(self._disk.sync_all, self.behind))
            if self.sync and self.names:
                self._disk.sync_all(self.names)
        except Exception as error:
            self.error = error

    def _sync(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except Exception as error:
            self.failed_sync = not is_out_of_descriptors(error)
            raise

    def _begin_segment(self, part: WritePart) -> File:
        directory = part.segment.directory
        snapshot = offset_file(directory, part.segment.base_offset, SNAPSHOT)
        write_file(self._disk, snapshot, part.snapshot)
        file = self._disk.open(part.segment.log.path, create=True)
        file.truncate(0)
        return file
