"""Which segments retention deletes, and the files of deleted segments until they are removed.

Files are renamed to `*.deleted` and removed after `file.delete.delay.ms`, because a reader may have them open.
"""

from collections.abc import Sequence

from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import DELETED
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments
from odradek.runtime import Disk


class DelayedRemovals:
    """Paths to remove after a delay; if the wall clock is set back, the delay starts again at the latest."""

    def __init__(self) -> None:
        self._paths: list[tuple[int, int, str]] = []

    def add(self, path: str, now_ms: int, delay_ms: int) -> None:
        self._paths.append((now_ms, delay_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        waiting = [(min(since_ms, now_ms), delay_ms, path) for since_ms, delay_ms, path in self._paths]
        self._paths = [each for each in waiting if now_ms - each[0] < each[1]]
        return [path for since_ms, delay_ms, path in waiting if now_ms - since_ms >= delay_ms]


class DeletedFiles(DelayedRemovals):
    """The renamed files of deleted segments until they are removed."""

    def add_segments(self, disk: Disk, segments: Sequence[Segment], now_ms: int, delay_ms: int) -> None:
        """Rename the files of deleted segments, to be removed after `delay_ms`. Raises `OSError`."""
        for segment in segments:
            segment.close()
            for path in segment.paths:
                if disk.exists(path):
                    disk.rename(path, path + DELETED)
                    self.add(path + DELETED, now_ms, delay_ms)


def count_expired(
    segments: Segments, config: LogConfig, *, now_ms: int, committed_offset: int, log_start_offset: int
) -> int:
    """Return the number of segments to delete; the next segment, if any, has a file, which keeps the log end offset."""
    by_policy = "delete" in config.cleanup_policy
    excess = segments.size - config.retention_bytes
    count = 0
    for segment in segments:
        is_empty_end = segment is segments.active and not segment.size
        if is_empty_end or segment.next_offset > committed_offset or segment.written_size < segment.size:
            break
        too_large = by_policy and config.retention_bytes >= 0 and excess >= segment.size
        too_old = by_policy and _is_too_old(segment, config.retention_ms, now_ms)
        if not (too_large or too_old or segment.next_offset <= log_start_offset):
            break
        excess -= segment.size
        count += 1
    while 0 < count < len(segments) and not segments[count].is_created:
        count -= 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    """Return whether the latest record is too old, after confirming its indexed timestamp."""
    if retention_ms < 0 or now_ms - segment.largest_timestamp <= retention_ms:
        return False
    segment.confirm_times()
    return now_ms - segment.largest_timestamp > retention_ms
