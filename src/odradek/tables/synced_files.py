"""The files of a table with a `path`: each is on the disk before it is closed, and so before a snapshot lists it.

pyiceberg imports this by the name that `location` gives it. Its own files of local tables are not synced: after a power
failure a catalog, which SQLite syncs, could list files that are damaged.
"""

import io
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from odradek.runtime import system_runtime


class SyncedFileIO(PyArrowFileIO):  # type: ignore[misc]
    """Local files as pyiceberg has them, whose output is synced."""

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        return _SyncedFile(location=location, path=file._path, fs=file._filesystem, buffer_size=file._buffer_size)


def make_directories(folder: Path) -> None:
    """Make a directory and its parents; return when the new ones are on the disk."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if made:
        system_runtime().disk.sync_all([str(each.parent) for each in made])


class _SyncedFile(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - as pyiceberg calls it
        make_directories(Path(self._path).parent)
        return _SyncedStream(io.FileIO(self._path, "wb" if overwrite else "xb"), self._buffer_size)


class _SyncedStream(io.BufferedWriter):
    """A new file that is synced, with its directory, when it is closed."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            path = Path(str(self.name))
            system_runtime().disk.sync_all([str(path), str(path.parent)])
