"""The results of a verification: a `Finding` for each damaged file or note, which `cli.log` prints."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.inspection.segment_check import FileCheck
from odradek.runtime import Disk

T = TypeVar("T")


class Finding(Struct, frozen=True, kw_only=True):
    """A damaged file, or a note if not `is_damage`. The first wrong batch, entry or line begins at `byte`."""

    path: str
    byte: int | None = None
    reason: str
    is_damage: bool = True


class Totals(Struct, kw_only=True):
    """The numbers of checked logs, segments, batches, records and bytes, and of damaged files."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damaged_files: int = 0


class DirectoryState(Struct, frozen=True, kw_only=True):
    """The state of a data directory; `is_clean` after a clean shutdown.

    `holder` is the process that has locked it, None if there is none or, with a `lock_error`, unknown.
    """

    holder: str | None
    is_clean: bool
    lock_error: OSError | None = None


class LogContext(Struct, frozen=True, kw_only=True):
    """The offsets of one log in its data directory's checkpoints.

    Beyond `recovery_point` only `.log` files must be valid; the next flush or start rewrites the others. Below
    `cleaned_offset` segments may be missing after compaction.
    """

    state: DirectoryState
    recovery_point: int = 0
    cleaned_offset: int = 0
    log_start_offset: int = 0

    def is_settled(self, offset: int) -> bool:
        """Return whether all files of batches up to `offset` must be valid."""
        return self.state.is_clean or offset <= self.recovery_point


def directory_state(disk: Disk, directory: str) -> DirectoryState:
    holder = lock_error = None
    try:
        holder = disk.lock_holder(f"{directory}/{meta_properties.LOCK}")
    except OSError as error:
        lock_error = error
    is_clean = holder is None and disk.exists(f"{directory}/{meta_properties.CLEAN_SHUTDOWN}")
    return DirectoryState(holder=holder, is_clean=is_clean, lock_error=lock_error)


class Report(Struct):
    """Collects findings and totals."""

    disk: Disk
    totals: Totals = field(default_factory=Totals)
    _found: list[Finding] = field(default_factory=list)

    def take(self) -> list[Finding]:
        found, self._found = self._found, []
        return found

    def note(self, path: str, reason: str, byte: int | None = None) -> None:
        self._found.append(Finding(path=path, byte=byte, reason=reason, is_damage=False))

    def damage(self, path: str, reason: str, byte: int | None = None) -> None:
        self.totals.damaged_files += 1
        self._found.append(Finding(path=path, byte=byte, reason=reason))

    def add(self, check: FileCheck, *, is_settled: bool = True) -> None:
        """Add the result of a check; without `is_settled` damage is a note: the file will be rewritten."""
        if check.damage is not None and not is_settled:
            self.note(check.path, f"{check.damage.reason}: it will be rewritten", check.damage.byte)
        elif check.damage is not None:
            others = f"; {check.others} more things in it are wrong" if check.others else ""
            self.damage(check.path, check.damage.reason + others, check.damage.byte)
        elif check.warning is not None:
            byte, reason = check.warning
            self.note(check.path, reason, byte)

    def unreadable(self, path: str, error: OSError, state: DirectoryState) -> None:
        """Add a file that cannot be read: a note if it is missing and a broker uses the directory, otherwise damage."""
        if isinstance(error, FileNotFoundError) and state.holder is not None:
            self.note(path, "was removed by the running broker before it was read")
        else:
            self.damage(path, f"cannot be read: {error.strerror or error}")

    def read(self, path: str, state: DirectoryState, decode: Callable[[bytes, str], T]) -> T | None:
        """Return the decoded content of a small file; after an error add the damage and return None."""
        try:
            return decode(self.disk.read_file(path), path)
        except DamagedFileError as error:
            self.damage(path, error.reason, error.byte)
        except OSError as error:
            self.unreadable(path, error, state)
        return None
