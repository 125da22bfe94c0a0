"""A file system of a few megabytes for one broker: a tmpfs in its own mount namespace, removed with its last process.

No other process sees it; a test reaches its files by `view`.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

_MOUNT = 'mount -t tmpfs -o size="$1" none "$0" && echo mounted && exec cat'
"""`cat` holds the namespace until its standard input ends."""


class SmallDisk:
    """A tmpfs of `size_bytes` at `path` for those who are started with `launcher`; to be used by `with`.

    `trouble` says why there is none, where the system does not permit it.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.mkdir()
        self.path = path
        self.trouble = ""
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(path), str(size_bytes)]
        try:
            self._holder = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except FileNotFoundError:
            self.trouble = "there is no unshare"
            return
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "mounted\n":
            self.trouble = f"no file system of its own can be mounted: {self._holder.stderr.read().strip()}"

    @property
    def launcher(self) -> list[str]:
        """The prefix of a command that has to see the disk."""
        return ["nsenter", "--target", str(self._holder.pid), "--user", "--mount", "--preserve-credentials"]

    @property
    def view(self) -> Path:
        """The directory as seen from outside of the namespace."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not hasattr(self, "_holder"):
            return
        with self._holder:  # ends its standard input, which ends it
            pass
