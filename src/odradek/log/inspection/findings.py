"""The results of a verification: a `Finding` for each damaged file, and notes; `cli.log` prints them."""

from collections.abc import Callable
from typing import TypeVar

from odradek.log.checkpoints import meta_properties
from odradek.log.errors import DamagedFileError
from odradek.log.inspection.segment_check import FileCheck
from odradek.model.values import dataclass, field
from odradek.runtime import Disk

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about a file; not a damage without `is_damage`. The first wrong batch, entry or line begins at `byte`."""

    path: str
    byte: int | None = None
    reason: str
    is_damage: bool = True


@dataclass(slots=True, kw_only=True)
class Totals:
    """The numbers of things checked, and of damaged files."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damaged_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """A data directory at this moment. `is_clean` says that a clean shutdown left it.

    `holder` is the running broker that has locked it; `lock_error` is why that is unknown.
    """

    holder: str | None
    is_clean: bool
    lock_error: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The promises of a data directory's checkpoints about one log.

    From `recovery_point` on only `.log` files count; the next flush or start rewrites others. Up to `cleaned_offset`
    whole segments may be gone.
    """

    state: DirectoryState
    recovery_point: int = 0
    cleaned_offset: int = 0
    log_start_offset: int = 0

    def is_settled(self, offset: int) -> bool:
        """Return whether files up to `offset` should be complete."""
        return self.state.is_clean or offset <= self.recovery_point


def directory_state(disk: Disk, directory: str) -> DirectoryState:
    """Return the state of a data directory."""
    holder = lock_error = None
    try:
        holder = disk.lock_holder(f"{directory}/{meta_properties.LOCK}")
    except OSError as error:
        lock_error = error
    is_clean = holder is None and disk.exists(f"{directory}/{meta_properties.CLEAN_SHUTDOWN}")
    return DirectoryState(holder=holder, is_clean=is_clean, lock_error=lock_error)


@dataclass(slots=True)
class Report:
    """Collects findings."""

    disk: Disk
    totals: Totals = field(default_factory=Totals)
    _found: list[Finding] = field(default_factory=list)

    def take(self) -> list[Finding]:
        """Return the findings since the last call."""
        found, self._found = self._found, []
        return found

    def note(self, path: str, reason: str, byte: int | None = None) -> None:
        """Add a note."""
        self._found.append(Finding(path=path, byte=byte, reason=reason, is_damage=False))

    def damage(self, path: str, reason: str, byte: int | None = None) -> None:
        """Add a damaged file; call it once for each."""
        self.totals.damaged_files += 1
        self._found.append(Finding(path=path, byte=byte, reason=reason))

    def add(self, check: FileCheck, *, is_settled: bool = True) -> None:
        """Add the result of a check, if any; without `is_settled`, the file will be rewritten."""
        if check.damage is not None and not is_settled:
            self.note(check.path, f"{check.damage.reason}: it will be rewritten", check.damage.byte)
        elif check.damage is not None:
            others = f"; {check.others} more things in it are wrong" if check.others else ""
            self.damage(check.path, check.damage.reason + others, check.damage.byte)
        elif check.warning is not None:
            byte, reason = check.warning
            self.note(check.path, reason, byte)

    def unreadable(self, path: str, error: OSError, state: DirectoryState) -> None:
        """Add a file that could not be read, unless a running broker has just removed it."""
        if isinstance(error, FileNotFoundError) and state.holder is not None:
            self.note(path, "went while the directory was read")
        else:
            self.damage(path, f"cannot be read: {error.strerror or error}")

    def read(self, path: str, state: DirectoryState, decode: Callable[[bytes, str], T]) -> T | None:
        """Return the content of a small file, or None, after adding why it cannot be read."""
        try:
            return decode(self.disk.read_file(path), path)
        except DamagedFileError as error:
            self.damage(path, error.reason, error.byte)
        except OSError as error:
            self.unreadable(path, error, state)
        return None
