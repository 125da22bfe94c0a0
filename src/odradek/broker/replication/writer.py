"""Gathers the appends of one turn of the event loop into one write per log, and moves large ones off the loop.

```
mark ──► end of turn ──┬─ small: written at once
                       └─ large, or to be synced: one job on the writer thread; what is appended meanwhile is the next
```
A fresh page of the page cache costs 3.6 ms per MiB here (DESIGN 3): the loop must not wait for that. A write that
begins a segment has ended another, which is synced then, in the background.

An error that one appender meets costs no other one anything. The log says what has failed with it; an appender that
could not be told so, or that its records are written, is told `RETRY_S` later.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from odradek.broker.replication.full_disks import FullDisks
from odradek.log.durability import FlushJob
from odradek.log.errors import LogStorageError
from odradek.log.log import Log
from odradek.log.names import parent_of
from odradek.log.pending_writes import WriteJob
from odradek.metrics.counters import Histogram
from odradek.model import KafkaError
from odradek.runtime import Clock, Disk

_log = logging.getLogger("odradek.broker")
RETRY_S: Final = 1.0
"""Also how often an error that does not pass is logged."""
_UNTOLD: Final = "the writer met an error, and tries again in a second"


class Appender(Protocol):
    """Who appends to a log: its leader, or a follower. Of one log there is one at a time."""

    @property
    def log(self) -> Log:
        """What it appends to."""

    def written(self, size: int) -> None:
        """The log's `written_offset` has moved past `size` more bytes."""

    def failed(self, error: KafkaError) -> None:
        """What was appended and not written is lost."""


class Writer:
    """One per broker; its order of writes within a log is the order of appends.

    `check_fence` is called before an appender learns that its records are written: a fenced leader resigns first.
    `cork` is held while appenders are notified, so that the responses that they send are gathered.
    """

    def __init__(
        self, disk: Disk, clock: Clock, *, cork: AbstractContextManager[None], check_fence: Callable[[], object]
    ) -> None:
        self._disk = disk
        self._clock = clock
        self.flush_time = Histogram()
        """How long syncs took, of writes and of finished segments."""
        self.full_disks = FullDisks(clock)
        self._loop = asyncio.get_running_loop()
        self._marked: dict[Appender, None] = {}
        self._busy: dict[Log, asyncio.Future[None]] = {}
        self._next: dict[Log, Appender] = {}
        """Of the logs that are busy, those that are to be looked at again: whoever appends now is told."""
        self._flushes: set[asyncio.Future[None]] = set()
        self._untold: dict[Appender, None] = {}
        """Those who are marked again after `RETRY_S`."""
        self._killed = False
        self._cork = cork
        self._check_fence = check_fence

    def mark(self, appender: Appender) -> None:
        """`appender` has something to write, or somebody to tell, at the end of this turn."""
        if not self._marked and not self._killed:
            self._loop.call_soon(self._end_turn)
        self._marked[appender] = None

    async def drain(self) -> None:
        """Return when everything that was appended is written, or has failed, and no sync is under way."""
        self._marked |= self._untold
        self._end_turn()
        while self._busy or self._flushes:
            await asyncio.wait((*self._busy.values(), *self._flushes))

    async def settle(self, log: Log) -> None:
        """Return when all that was appended to `log` is written, or has failed."""
        while log in self._busy or log.pending_bytes:
            busy = self._busy.get(log)
            if busy is not None:
                await asyncio.wait([busy])
            await asyncio.sleep(0)

    def kill(self) -> None:
        """Write nothing more, and take no notice of what the writer thread still does."""
        self._killed = True
        self._marked.clear()
        self._untold.clear()

    def _end_turn(self) -> None:
        marked, self._marked = self._marked, {}
        try:
            self._check_fence()
        except Exception:
            _log.exception(_UNTOLD)
            self._try_again(*marked)
            return
        with self._cork:
            for appender in marked:
                if appender.log in self._busy:
                    self._next[appender.log] = appender
                else:
                    self._write(appender)

    def _try_again(self, *appenders: Appender) -> None:
        """Mark these again after a while: an error of this program, or a lack of memory, came between."""
        if not self._untold:
            self._loop.call_later(RETRY_S, self._mark_untold)
        self._untold.update(dict.fromkeys(appenders))

    def _mark_untold(self) -> None:
        untold, self._untold = self._untold, {}
        for appender in untold:
            self.mark(appender)

    def _write(self, appender: Appender) -> None:
        try:
            job = appender.log.begin_write()
        except LogStorageError as error:
            self._fail(appender, error)
            return
        if job is None:
            self._tell(appender, 0)
        elif not job.prefers_thread:
            job.run()
            self._finish(appender, job)
        else:
            written = partial(self._written, appender, job, self._clock.monotonic())
            future = self._busy[appender.log] = self._disk.submit(job.run)
            future.add_done_callback(written)

    def _finish(self, appender: Appender, job: WriteJob, *, may_tell: bool = True) -> None:
        try:
            appender.log.finish_write(job)
        except LogStorageError as error:
            self._fail(appender, error)
        else:
            if self.full_disks:
                self.full_disks.written(parent_of(appender.log.directory))
            if may_tell:
                self._tell(appender, job.size)
            if job.rolls:
                self._flush(appender)

    def _tell(self, appender: Appender, size: int) -> None:
        try:
            appender.written(size)
        except Exception:
            _log.exception(_UNTOLD)
            self._try_again(appender)

    def _written(self, appender: Appender, job: WriteJob, began: float, future: "asyncio.Future[None]") -> None:
        del self._busy[appender.log]
        if job.sync:
            self.flush_time.observe((self._clock.monotonic() - began) * 1000)
        if self._killed or future.cancelled():
            return
        _take_error(job, future)
        may_tell = True
        try:
            self._check_fence()
        except Exception:
            may_tell = False
            _log.exception(_UNTOLD)
            self._try_again(appender)
        with self._cork:
            self._finish(appender, job, may_tell=may_tell)
            following = self._next.pop(appender.log, None)
            if following is not None and may_tell:
                self._write(following)
            elif following is not None:
                self.mark(following)

    def _flush(self, appender: Appender) -> None:
        """Sync what the log has finished, on the background thread, as Kafka does when a segment ends."""
        job = appender.log.begin_flush()
        if job is not None:
            flushed = partial(self._flushed, appender, job, self._clock.monotonic())
            future = self._disk.submit(job.run, background=True)
            self._flushes.add(future)
            future.add_done_callback(flushed)

    def _flushed(self, appender: Appender, job: FlushJob, began: float, future: "asyncio.Future[None]") -> None:
        self._flushes.discard(future)
        self.flush_time.observe((self._clock.monotonic() - began) * 1000)
        if self._killed or future.cancelled():
            return
        _take_error(job, future)
        try:
            appender.log.finish_flush(job)
        except LogStorageError as error:
            self._fail(appender, error)

    def _fail(self, appender: Appender, error: LogStorageError) -> None:
        if error.is_passing:  # of another, the log has said that it stopped
            self.full_disks.refused(parent_of(appender.log.directory), str(error))
        following = self._next.pop(appender.log, appender)
        for each in {appender: None, following: None}:
            try:
                each.failed(error)
            except Exception:
                _log.exception(_UNTOLD)
                self._try_again(each)
            if error.is_passing:
                self.mark(each)  # somebody may wait for what was written before, and nothing else would tell


def _take_error(job: WriteJob | FlushJob, future: "asyncio.Future[None]") -> None:
    """Let the job have the error of the thread that it was for, if it did not run. Raises what ends a process."""
    error = future.exception()
    if isinstance(error, Exception):
        job.error = error
    elif error is not None:
        raise error
