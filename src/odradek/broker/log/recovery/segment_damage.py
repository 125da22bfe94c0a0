"""Damage in segments of open logs: a reader reports a suspected segment, a check on another thread confirms the damage.

Suspicion without damage is caused by a wrong index or messages of formats 0 and 1.
"""

from collections.abc import Callable

from msgspec import Struct

from odradek.broker.log.continuity import described, discontinuity
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.segments.batch_scan import old_message, scan_file
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments
from odradek.runtime import Disk


class SuspectedSegments:
    """One log's segments under a check for damage, and the damage found.

    `on_suspected` starts a check and returns whether it did; `checked` or `check_failed` ends it.
    """

    __slots__ = ("_damaged", "_segments", "_suspected", "on_suspected")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._suspected: set[Segment] = set()
        self._damaged: tuple[Segment, DamagedFileError] | None = None
        self.on_suspected: Callable[[Segment], bool] | None = None

    def add(self, path: str) -> None:
        """Start a check of the segment with the `.log` file `path`, unless the log's damage is known."""
        if self.on_suspected is None or self.damage is not None:
            return
        for segment in self._segments:
            if segment.log.path == path and segment not in self._suspected and self.on_suspected(segment):
                self._suspected.add(segment)

    def checked(self, segment: Segment, size: int, damage: DamagedFileError | None) -> bool:
        """Record the result of a check of `size` bytes; return whether `damage` is the log's first."""
        self._suspected.discard(segment)
        if damage is None or self.damage is not None or segment not in self._segments or segment.written_size < size:
            return False
        self._damaged = segment, damage
        return True

    def check_failed(self, segment: Segment) -> None:
        self._suspected.discard(segment)

    @property
    def damage(self) -> DamagedFileError | None:
        """The known damage of the log; None once the damaged segment is deleted."""
        if self._damaged is not None and self._damaged[0] not in self._segments:
            self._damaged = None
        return None if self._damaged is None else self._damaged[1]

    @property
    def may_be_damaged(self) -> bool:
        return self.damage is not None or any(segment in self._segments for segment in self._suspected)


class DamageCheck(Struct, kw_only=True):
    """A check of the written part of a segment; `run` may be called on any thread."""

    segment: Segment
    disk: Disk
    size: int
    next_offset: int
    is_truncated: bool

    @classmethod
    def of(cls, segment: Segment) -> "DamageCheck":
        return cls(
            segment=segment,
            disk=segment.pool.disk,
            size=segment.written_size,
            next_offset=segment.next_offset,
            is_truncated=segment.is_truncated,
        )

    def run(self) -> DamagedFileError | None:
        """Return the first damage in the file, None without any or at a message of format 0 or 1. Raises `OSError`."""
        segment, path = self.segment, self.segment.log.path
        file = self.disk.open(path, read_only=True)
        lowest = segment.base_offset
        try:
            for position, header, data in scan_file(file, path, self.size):
                fault = discontinuity(header, data, next_offset=lowest, last_offset=self.next_offset - 1)
                if fault is not None:
                    return DamagedFileError(path, position, described(header, fault))
                lowest = header.next_offset
        except DamagedFileError as error:
            is_old = old_message(file, error.byte, self.size) is not None
            return None if is_old else error
        finally:
            file.close()
        return DamagedFileError(path, self.size, "has lost its end") if self.is_truncated else None
