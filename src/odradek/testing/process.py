"""`odradek serve` in a process of its own, for tests that kill it: a crash that no library call can imitate."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.testing.server_process import AnnouncingProcess

_SCRIPT: Final = str(Path(sys.executable).with_name("odradek"))


class ServedBroker(AnnouncingProcess):
    """A broker over `data_dir`, started by `with` or `start`; what it prints goes to `data_dir`'s neighbour, `*.err`.

    It takes a free port when it first starts and keeps it when it starts again. `open_files` is what the system lets it
    open, `metadata` the URL of its tree, by default a file in `data_dir`. `launcher` comes before the command, and must
    become it (as `nsenter` does): it is the process that is killed. `arguments` are more of `odradek serve`'s.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        open_files: int | None = None,
        metadata: str | None = None,
        launcher: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.errors = data_dir.with_name(f"{data_dir.name}.err")
        rest = list(arguments)
        if metadata is not None:
            rest += ["--metadata", metadata]
        for key, value in (options or {}).items():
            rest += ["-o", f"{key}={value}"]
        super().__init__("odradek serve", rest, prefix="ready: ", log=self.errors)
        self._open_files = open_files
        self._listen = listen
        self._launcher = list(launcher)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, once it has been started."""
        return self.announced

    def _command(self) -> Sequence[str]:
        listen = self.announced or self._listen
        serve = [_SCRIPT, "serve", "--listen", listen, "--data-dir", str(self.data_dir), *self._arguments]
        command = [*self._launcher, *serve]
        if self._open_files is None:
            return command
        return ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self._open_files), *command]
