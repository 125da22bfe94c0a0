"""Closing a broker's logs: all are written, then synced together.

```
each log      pending batches, indexes, producers, leader epochs ─► files     several at a time in each directory
each directory                                             files ─► the disk      all directories at a time
```
Kafka syncs log by log; syncing together is faster, because the file system commits its journal once.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from odradek.broker.log.errors import describe
from odradek.broker.log.flush_job import FlushJob
from odradek.broker.log.log import Log
from odradek.broker.log.segments.open_files import FilePool
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")


class ClosedDirectory(Struct, kw_only=True):
    """The result for a directory: the flush `jobs` are done, unless there is an `error`.

    `is_whole`: no log has failed.
    """

    jobs: list[tuple[Log, FlushJob]] = field(default_factory=list)
    is_whole: bool = True
    error: Exception | None = None


def close_logs(pool: FilePool, logs: Mapping[str, Sequence[Log]], *, threads: int) -> dict[str, ClosedDirectory]:
    """Write and sync the logs of each directory, `threads` logs at a time in each."""
    closed = {directory: ClosedDirectory() for directory in logs}
    writing = [[partial(_write, directory, log) for log in those] for directory, those in logs.items()]
    for directory, log, job, is_written in pool.run_in_threads(writing, threads=threads):
        closed[directory].is_whole &= is_written
        if job is not None:
            closed[directory].jobs.append((log, job))
    syncing = [[partial(_sync, pool.disk, directory, closed[directory].jobs)] for directory in logs]
    for directory, error in pool.disk.run_in_threads(syncing, threads=1):
        closed[directory].error = error
    return closed


def _write(directory: str, log: Log) -> tuple[str, Log, FlushJob | None, bool]:
    try:
        job = log.writer.begin_close()
        if job is not None:
            job.prepare()
    except Exception as error:
        _logger.warning("%s will be recovered at the next start: %s", log.directory, describe(error))
        return directory, log, None, False
    finally:
        log.segments.close()
    return directory, log, job, True


def _sync(disk: Disk, directory: str, jobs: Sequence[tuple[Log, FlushJob]]) -> tuple[str, Exception | None]:
    try:
        disk.sync_all([path for _, job in jobs for path in job.paths])
    except Exception as error:
        return directory, error
    for _, job in jobs:
        job.error = None
    return directory, None
