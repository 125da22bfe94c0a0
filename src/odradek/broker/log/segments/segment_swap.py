"""Replacing segments by a compacted one, so that after a crash either the old ones or the new one exist.

```
step                                                               after a crash
1  N.log.cleaned, N.index.cleaned …   are written and synced       they are removed
2  each is renamed to *.swap                                       .cleaned and .swap files are removed
3  the old segments' files are renamed to *.deleted                the rest of them are removed, 4 is done
4  each *.swap gets its final name                                 4 is completed
```
Kafka uses the same names and steps, so either broker recovers the other's files. The old files of step 3 have base
offsets from N to the new segment's end. The disk must keep the order of renames, as journaling file systems do.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import (
    CLEANED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_file,
    parse_offset_file,
)
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.segment import Segment
from odradek.runtime import Disk

_KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)


class Source(NamedTuple):
    """A synced segment to compact; sizes in bytes. The next segment begins at `next_offset`."""

    base_offset: int
    next_offset: int
    path: str
    size: int
    index_bytes: int
    time_index_bytes: int
    last_append_ms: int


class CleanedSegment(NamedTuple):
    """A compacted segment, synced under `.cleaned` names, that will replace `sources`."""

    sources: Sequence[Source]


def swap(disk: Disk, directory: str, base_offset: int, remove_old_segments: Callable[[], None]) -> None:
    """Do steps 2 to 4 above; `remove_old_segments` is step 3. After an `OSError` the log needs recovery."""
    paths = [path for kind in _KINDS if disk.exists((path := offset_file(directory, base_offset, kind)) + CLEANED)]
    for path in reversed(paths):
        disk.rename(path + CLEANED, path + SWAP)
    remove_old_segments()
    for path in paths:
        disk.rename(path + SWAP, path)


def complete_swaps(pool: FilePool, directory: str, config: LogConfig) -> None:
    """Finish or undo swaps that a crash interrupted. Raises `OSError`."""
    disk = pool.disk
    names = disk.list(directory)
    unfinished = [parsed[0] for name in names if (parsed := _parse(name, CLEANED))]
    swaps = [name for name in names if _parse(name, SWAP)]
    for name in [*swaps, *(name for name in names if name.endswith(CLEANED))]:
        parsed = _parse(name, SWAP)
        if parsed is None or (unfinished and parsed[0] >= min(unfinished)):
            disk.remove(f"{directory}/{name}")
    kept = [parsed for name in swaps if disk.exists(f"{directory}/{name}") and (parsed := _parse(name, SWAP))]
    for base_offset, kind in kept:
        if kind == LOG:
            _remove_covered(pool, directory, base_offset, config)
    for base_offset, kind in sorted(kept, key=lambda each: (each[0], _KINDS.index(each[1]))):
        path = offset_file(directory, base_offset, kind)
        disk.rename(path + SWAP, path)


def _parse(name: str, suffix: str) -> tuple[int, str] | None:
    parsed = parse_offset_file(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return parsed if parsed is not None and parsed[1] in _KINDS else None


def _remove_covered(pool: FilePool, directory: str, base_offset: int, config: LogConfig) -> None:
    segment = Segment.open(pool, directory, base_offset, config, now_ms=0, suffix=SWAP)
    segment.load_end()
    end = max(segment.next_offset, base_offset + 1)
    segment.close()
    for name in pool.disk.list(directory):
        parsed = parse_offset_file(name)
        if parsed is not None and parsed[1] in _KINDS and base_offset <= parsed[0] < end:
            pool.disk.remove(f"{directory}/{name}")
