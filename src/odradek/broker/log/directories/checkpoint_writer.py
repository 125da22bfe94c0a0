"""Writing checkpoint files on any thread, never an older plan over a newer one."""

from collections.abc import Mapping
from threading import Lock
from typing import NamedTuple

from odradek.broker.log.checkpoints.checkpoint_file import encode_offsets
from odradek.broker.log.errors import CheckpointError
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
