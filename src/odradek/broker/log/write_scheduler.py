"""Writes appended records to the logs: one write per log and turn of the event loop, large ones on the writer thread.

```
mark ──► end of turn ──┬─ small: written at once
                       └─ large, or to be flushed: one job on the writer thread; later appends are the next job
```
Fresh pages of the page cache cost 3.6 ms per MiB, for which the event loop must not wait. When a write rolls
a segment, the finished segment is flushed in the background.

An exception of one appender does not affect the others: that appender is notified again after `RETRY_S`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from odradek.broker.counters import Histogram
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.flush_job import FlushJob
from odradek.broker.log.full_disks import FullDisks
from odradek.broker.log.log import Log
from odradek.broker.log.names import parent_of
from odradek.broker.log.pending_writes import WriteJob
from odradek.model import KafkaError
from odradek.runtime import Clock, Disk

_log = logging.getLogger("odradek.broker")
RETRY_S: Final = 1.0
"""The delay before an appender is notified again after an exception."""
_NOTIFY_FAILED: Final = "Failed to notify an appender, retrying in a second"


class Appender(Protocol):
    """A `Partition` or `Follower` that appends to its log; a log has one at a time."""

    @property
    def log(self) -> Log: ...

    def written(self, size: int) -> None:
        """Handle a write of `size` bytes, which has advanced the log's `written_offset`."""

    def failed(self, error: KafkaError) -> None:
        """Handle the loss of the appends that were not written."""


class WriteScheduler:
    """Writes for all logs of one broker; it keeps the order of appends within a log.

    `check_fence` is called before appenders are notified of a write, so that a fenced leader resigns first. `cork`
    gathers the responses that the appenders send. `when_full` is called when a disk is full for seconds, or no longer.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        cork: AbstractContextManager[None],
        check_fence: Callable[[], object],
        when_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self.flush_time = Histogram()
        """Times of flushes in ms, by writes and of finished segments."""
        self.full_disks = FullDisks(disk, clock, when_changed=when_full)
        self._loop = asyncio.get_running_loop()
        self._marked: dict[Appender, None] = {}
        self._busy: dict[Log, asyncio.Future[None]] = {}
        self._next: dict[Log, Appender] = {}
        """Appenders with records to write after the running job of their log."""
        self._between: dict[Log, Callable[[], None]] = {}
        """Work for the moment between the running job of a log and the next one."""
        self._flushes: set[asyncio.Future[None]] = set()
        self._to_notify_again: dict[Appender, None] = {}
        """Appenders to mark again after `RETRY_S`."""
        self._killed = False
        self._cork = cork
        self._check_fence = check_fence

    def mark(self, appender: Appender) -> None:
        """At the end of this turn, write what `appender` has appended, and notify it."""
        if not self._marked and not self._killed:
            self._loop.call_soon(self._end_turn)
        self._marked[appender] = None

    def refused(self, log: Log, error: KafkaError) -> None:
        """Record that an append to `log` failed, if it failed for lack of space."""
        if isinstance(error, LogStorageError) and error.is_passing:  # a permanent error has stopped the log
            self.full_disks.refused(parent_of(log.directory), str(error))

    async def drain(self) -> None:
        """Return when all appends are written or have failed, and no flush is running."""
        self._marked |= self._to_notify_again
        self._end_turn()
        while self._busy or self._flushes:
            await asyncio.wait((*self._busy.values(), *self._flushes))

    async def settle(self, log: Log) -> None:
        """Return when all appends to `log` are written or have failed."""
        while log in self._busy or log.writer.pending.size:
            busy = self._busy.get(log)
            if busy is not None:
                await asyncio.wait([busy])
            await asyncio.sleep(0)

    def between_writes(self, log: Log, find: Callable[[], Appender | None], work: Callable[[], None]) -> None:
        """Call `work`, which must not raise, when all appends are written, and before the next one: soon under load.

        `find` returns the log's appender at that moment; without one nothing is written before `work`.
        """
        if log in self._busy:
            self._between[log] = partial(self.between_writes, log, find, work)
            return
        try:
            self._check_fence()
        except Exception:
            _log.exception(_NOTIFY_FAILED)
            self._loop.call_later(RETRY_S, self.between_writes, log, find, work)
            return
        appender = find()
        if appender is None:
            work()
            return
        try:
            job = log.writer.begin_write()
        except LogStorageError as error:
            work()
            self._fail(appender, error)
            return
        if job is None:
            work()
        else:
            job.run()
            self._finish(appender, job, before_notifying=work)

    def kill(self) -> None:
        """Write nothing more, and ignore the results of the writer thread."""
        self._killed = True
        self._marked.clear()
        self._to_notify_again.clear()

    def _end_turn(self) -> None:
        marked, self._marked = self._marked, {}
        try:
            self._check_fence()
        except Exception:
            _log.exception(_NOTIFY_FAILED)
            self._try_again(*marked)
            return
        with self._cork:
            for appender in marked:
                if appender.log in self._busy:
                    self._next[appender.log] = appender
                else:
                    self._write(appender)

    def _try_again(self, *appenders: Appender) -> None:
        """Mark appenders again after `RETRY_S`."""
        if not self._to_notify_again:
            self._loop.call_later(RETRY_S, self._mark_to_notify_again)
        self._to_notify_again.update(dict.fromkeys(appenders))

    def _mark_to_notify_again(self) -> None:
        waiting, self._to_notify_again = self._to_notify_again, {}
        for appender in waiting:
            self.mark(appender)

    def _write(self, appender: Appender) -> None:
        try:
            job = appender.log.writer.begin_write()
        except LogStorageError as error:
            self._fail(appender, error)
            return
        if job is None:
            self._notify(appender, 0)
        elif not job.prefers_thread:
            job.run()
            self._finish(appender, job)
        else:
            written = partial(self._written, appender, job, self._clock.monotonic())
            future = self._busy[appender.log] = self._disk.submit(job.run)
            future.add_done_callback(written)

    def _finish(
        self,
        appender: Appender,
        job: WriteJob,
        *,
        may_notify: bool = True,
        before_notifying: Callable[[], None] = lambda: None,
    ) -> None:
        """Finish a write; an appender that is notified may append again at once."""
        try:
            appender.log.writer.finish_write(job)
        except LogStorageError as error:
            before_notifying()
            self._fail(appender, error)
        else:
            before_notifying()
            if self.full_disks:
                self.full_disks.written(parent_of(appender.log.directory))
            if may_notify:
                self._notify(appender, job.size)
            if job.rolls:
                self._flush(appender)

    def _notify(self, appender: Appender, size: int) -> None:
        try:
            appender.written(size)
        except Exception:
            _log.exception(_NOTIFY_FAILED)
            self._try_again(appender)

    def _written(self, appender: Appender, job: WriteJob, began: float, future: "asyncio.Future[None]") -> None:
        del self._busy[appender.log]
        if job.sync:
            self.flush_time.observe((self._clock.monotonic() - began) * 1000)
        if self._killed or future.cancelled():
            return
        _take_error(job, future)
        may_notify = True
        try:
            self._check_fence()
        except Exception:
            may_notify = False
            _log.exception(_NOTIFY_FAILED)
            self._try_again(appender)
        with self._cork:
            self._finish(appender, job, may_notify=may_notify)
            if (between := self._between.pop(appender.log, None)) is not None:
                between()
            following = self._next.pop(appender.log, None)
            if following is not None and may_notify:
                self._write(following)
            elif following is not None:
                self.mark(following)

    def _flush(self, appender: Appender) -> None:
        """Flush finished segments on the background thread, as Kafka does when a segment is rolled."""
        job = appender.log.writer.begin_flush()
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
            appender.log.writer.finish_flush(job)
        except LogStorageError as error:
            self._fail(appender, error)

    def _fail(self, appender: Appender, error: LogStorageError) -> None:
        self.refused(appender.log, error)
        following = self._next.pop(appender.log, appender)
        for each in {appender: None, following: None}:
            try:
                each.failed(error)
            except Exception:
                _log.exception(_NOTIFY_FAILED)
                self._try_again(each)
            if error.is_passing:
                self.mark(each)  # earlier appends may have been written, and their waiters have to be notified


def _take_error(job: WriteJob | FlushJob, future: "asyncio.Future[None]") -> None:
    """Store the exception of a job that did not run in `job.error`; raise exceptions that end the process."""
    error = future.exception()
    if isinstance(error, Exception):
        job.error = error
    elif error is not None:
        raise error
