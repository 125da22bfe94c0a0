"""What a verification finds, and how it is collected: a `Finding` for each file that is wrong, and notes."""

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
    """Something about a file. `byte` is where the first batch, entry or line begins that is wrong.

    Without `is_damage` it is to be known, and nothing is wrong.
    """

    path: str
    byte: int | None = None
    reason: str
    is_damage: bool = True


@dataclass(slots=True, kw_only=True)
class Totals:
    """What was looked at, and how many files are damaged."""

    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    damaged_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """A data directory at this moment.

    `holder` is the running broker whose it is, as its lock says; `lock_error` is why that cannot be read. `is_clean`:
    none runs, and the last one has closed everything, so that every file should be complete.
    """

    holder: str | None
    is_clean: bool
    lock_error: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a data directory says of one of its logs.

    From `recovery_point` on, nothing was promised to be on the disk but what is in the `.log` files: the next start, or
    the next flush of the broker that runs, writes the rest anew. Up to `cleaned_offset`, compaction may have taken
    whole segments. What is below `log_start_offset` is deleted, though its bytes may still be there.
    """

    state: DirectoryState
    recovery_point: int = 0
    cleaned_offset: int = 0
    log_start_offset: int = 0

    def is_settled(self, offset: int) -> bool:
        """Whether what belongs to the log up to `offset` should be on the disk and right."""
        return self.state.is_clean or offset <= self.recovery_point


def directory_state(disk: Disk, directory: str) -> DirectoryState:
    """How the data directory was left."""
    holder = lock_error = None
    try:
        holder = disk.lock_holder(f"{directory}/{meta_properties.LOCK}")
    except OSError as error:
        lock_error = error
    is_clean = holder is None and disk.exists(f"{directory}/{meta_properties.CLEAN_SHUTDOWN}")
    return DirectoryState(holder=holder, is_clean=is_clean, lock_error=lock_error)


@dataclass(slots=True)
class Report:
    """Collects findings until somebody takes them."""

    disk: Disk
    totals: Totals = field(default_factory=Totals)
    _found: list[Finding] = field(default_factory=list)

    def take(self) -> list[Finding]:
        """What was found since this was last asked."""
        found, self._found = self._found, []
        return found

    def note(self, path: str, reason: str, byte: int | None = None) -> None:
        """Something that whoever reads this should know."""
        self._found.append(Finding(path=path, byte=byte, reason=reason, is_damage=False))

    def damage(self, path: str, reason: str, byte: int | None = None) -> None:
        """A file is wrong; to be said once for each."""
        self.totals.damaged_files += 1
        self._found.append(Finding(path=path, byte=byte, reason=reason))

    def add(self, check: FileCheck, *, is_settled: bool = True) -> None:
        """What a check found, if it found anything; without `is_settled` the file is about to be written anew."""
        if check.damage is not None and not is_settled:
            self.note(check.path, f"{check.damage.reason}: it is to be written anew", check.damage.byte)
        elif check.damage is not None:
            others = f"; {check.others} more things in it are wrong" if check.others else ""
            self.damage(check.path, check.damage.reason + others, check.damage.byte)
        elif check.oddity is not None:
            byte, reason = check.oddity
            self.note(check.path, reason, byte)

    def unreadable(self, path: str, error: OSError, state: DirectoryState) -> None:
        """A file could not be read, perhaps because a broker that runs has just removed it."""
        if isinstance(error, FileNotFoundError) and state.holder is not None:
            self.note(path, "went while the directory was read")
        else:
            self.damage(path, f"cannot be read: {error.strerror or error}")

    def read(self, path: str, state: DirectoryState, decode: Callable[[bytes, str], T]) -> T | None:
        """What is in a small file, or None, once it is said what is wrong with it."""
        try:
            return decode(self.disk.read_file(path), path)
        except DamagedFileError as error:
            self.damage(path, error.reason, error.byte)
        except OSError as error:
            self.unreadable(path, error, state)
        return None
