"""What a broker's logs have for a background thread: syncs of finished segments, and files that nobody wants."""

from collections.abc import Callable

from odradek.log.durability import FlushJob
from odradek.log.log import Log
from odradek.runtime import Disk


class MaintenanceJob:
    """Made by `LogManager.begin_maintenance`; `run` on any thread touches no log. `errors` has what was not removed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.flushes: list[tuple[Log, FlushJob]] = []
        self.files: list[str] = []
        self.folders: list[str] = []
        self.errors: list[tuple[str, OSError]] = []
        self.monotonic: Callable[[], float] = lambda: 0.0
        self.flush_times_ms: list[float] = []
        """How long each flush took, by `monotonic`, which whoever wants to know sets."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing for a thread to do."""
        return not (self.flushes or self.files or self.folders)

    def run(self) -> None:
        """Sync and remove. What cannot be removed is removed at the next start."""
        for _, flush in self.flushes:
            began = self.monotonic()
            flush.run()
            self.flush_times_ms.append((self.monotonic() - began) * 1000)
        for path in self.files:
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.errors.append((path, error))
        for path in self.folders:
            try:
                remove_tree(self._disk, path)
            except OSError as error:
                self.errors.append((path, error))


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and the files in it; ignored if it is not there. Raises `OSError`."""
    if not disk.exists(path):
        return
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)
