"""Copies logs that move between this broker's data directories, and swaps them when they have caught up (KIP-113).

One task copies all moving logs in turn, a piece of each, within the rate of
`replica.alter.log.dirs.io.max.bytes.per.second`; pieces are written on the background thread. The log serves all the
while. Before the swap the copy is synced; what is appended meanwhile, at most `_LAST_BYTES`, is copied and synced in
the turn of the swap, between two writes of the log. An error ends the move, and the log stays where it is; a move is
tried again only after a shortage of descriptors, memory or threads.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.broker.log.directories.directory_loading import remove_tree
from odradek.broker.log.directories.future_logs import FutureLog
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import LogStorageError, is_passing
from odradek.broker.log.log import Log
from odradek.broker.log.write_scheduler import Appender, WriteScheduler
from odradek.broker.replication.machine.future_replica import Action, Extent, next_step
from odradek.broker.security.quotas.replication_quotas import ReplicationQuotaManager
from odradek.model import KafkaError, StorageError, TopicPartition
from odradek.model.probes import probe
from odradek.protocol.batches.record_batch import read_header
from odradek.runtime import Runtime
from odradek.runtime.shortages import NO_ROOM

_log = logging.getLogger("odradek.broker")
_PIECE_BYTES: Final = 256 * 1024
"""The bytes of a read: a larger one would hold the event loop for too long."""
_LAST_BYTES: Final = 4 * 1024 * 1024
"""The limit of what is synced in the turn of the swap."""
_SHORTEST_S: Final = 0.001
_RETRY_S: Final = 5.0
"""The pause of all moves after a shortage of descriptors, memory or threads."""
_POLL_S: Final = 0.1
"""The pause when no copy has anything to do, and the longest one for the rate: then deleted logs are noticed."""


class ReplicaAlterLogDirsManager:
    """The moves of one broker's logs. `appender(partition)` returns what leads or follows it here, if any."""

    def __init__(
        self,
        logs: LogManager,
        runtime: Runtime,
        quota: ReplicationQuotaManager,
        write_scheduler: WriteScheduler,
        *,
        appender: Callable[[TopicPartition], Appender | None],
    ) -> None:
        self._logs = logs
        self._futures = logs.futures
        self._runtime = runtime
        self._quota = quota
        self._write_scheduler = write_scheduler
        self._appender = appender
        self._began = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._job: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Copy the logs that move now and later, until `stop`."""
        self._futures.on_change = self._began.set
        self._began.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="log directories")

    async def stop(self) -> None:
        """Stop copying. The moves begin anew at the next start."""
        self.kill()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._job is not None and not self._job.done():
            await asyncio.wait([self._job])

    def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            if not self._futures:
                self._began.clear()
                await self._began.wait()
            has_worked, wait_s = False, 0.0
            for key, future in tuple(self._futures.items()):
                if (wait_s := self._quota.throttle_time_s()) > 0:
                    await asyncio.sleep(min(max(wait_s, _SHORTEST_S), _POLL_S))
                    break
                try:
                    has_worked |= await self._step(key, future)
                except (OSError, KafkaError, StorageError) as error:
                    if _is_retried(error):
                        _log.warning("%s does not move at the moment, will retry: %s", key, error)
                        await asyncio.sleep(_RETRY_S)
                    else:
                        await self._give_up(key, future, error)
                except Exception as error:
                    _log.exception("Unexpected error while %s moves", key)
                    await self._give_up(key, future, error)
            await asyncio.sleep(0 if has_worked or wait_s > 0 else _POLL_S)

    async def _give_up(self, key: TopicPartition, future: FutureLog, error: Exception) -> None:
        """End a move; its copy is removed at once, since others may need the room."""
        if self._futures.get(key) is not future:
            return
        probe("replication: a move between directories ends with an error")
        log = self._logs.get(key)
        where = "" if log is None else f", and stays in {log.directory}"
        _log.error("%s does not move to another directory%s, until it is asked for again: %s", key, where, error)
        future.log.abandon()
        await self._in_background(partial(remove_tree, self._runtime.disk, future.log.directory))
        if self._futures.get(key) is future:
            self._futures.drop(key, self._runtime.clock.now_ms())

    async def _step(self, key: TopicPartition, future: FutureLog) -> bool:
        """Do what a copy needs next; return whether anything could be done."""
        log, copy, now_ms = future.source, future.log, self._runtime.clock.now_ms()
        if self._futures.get(key) is not future:
            return True
        if self._logs.get(key) is not log:  # it was deleted, or renamed
            self._futures.drop(key, now_ms)
            return True
        for each in (log, copy):
            if each.failure is not None:
                raise StorageError(each.failure)
        size = advance(future, now_ms)
        if size is None:
            return await self._swap(key, future)
        self._quota.record(size)
        await self._write(copy)
        return True

    async def _write(self, copy: Log) -> None:
        job = copy.writer.begin_write()
        if job is not None:
            await self._in_background(job.run)
            copy.writer.finish_write(job)

    async def _in_background(self, run: Callable[[], None]) -> None:
        """Do a job on the background thread, and wait for its end. It keeps its error, which is not raised here."""
        self._job = self._runtime.disk.submit(run, background=True)
        await asyncio.wait([self._job])
        self._job.exception()

    async def _swap(self, key: TopicPartition, future: FutureLog) -> bool:
        """Sync the copy, then swap it with its log; return False if that was not possible yet."""
        copy = future.log
        if self._find_appender(key, future) is None:
            return False
        flush = copy.writer.begin_flush(include_active=True)
        if flush is not None:
            await self._in_background(flush.run)
            copy.writer.finish_flush(flush)
        if self._unsynced(copy) > _LAST_BYTES:  # the flush has failed, for lack of something
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        find, swap = partial(self._find_appender, key, future), partial(self._swap_now, key, future, done)
        self._write_scheduler.between_writes(future.source, find, swap)
        return await done

    def _find_appender(self, key: TopicPartition, future: FutureLog) -> Appender | None:
        """Return what leads or follows a log that moves; None without one, or if the move has ended."""
        if self._futures.get(key) is not future or self._logs.get(key) is not future.source:
            return None
        appender = self._appender(key)
        return appender if appender is not None and appender.log is future.source else None

    @staticmethod
    def _unsynced(copy: Log) -> int:
        return copy.size_between(max(copy.writer.synced_offset, copy.first_base_offset), copy.log_end_offset)

    def _swap_now(self, key: TopicPartition, future: FutureLog, done: "asyncio.Future[bool]") -> None:
        """Copy the rest of the log, at most `_LAST_BYTES`, and swap, unless the move has ended or appends wait."""
        log, copy, now_ms = future.source, future.log, self._runtime.clock.now_ms()
        if done.done():
            return
        try:
            may_swap = self._find_appender(key, future) is not None and log.writer.is_settled
            left, is_swapped = _LAST_BYTES, False
            while may_swap and not is_swapped and left > 0:
                size = advance(future, now_ms)
                if size is None:
                    self._logs.swap(key, now_ms)
                    is_swapped = True
                else:
                    left -= size
                    self._quota.record(size)
                    copy.write()
            done.set_result(is_swapped or left < _LAST_BYTES)
        except Exception as error:
            done.set_exception(error)


def _is_retried(error: Exception) -> bool:
    """Return whether a move is tried again after `error`: a passing shortage, but not of disk space."""
    cause = error.__cause__ or error
    if isinstance(cause, OSError) and cause.errno in NO_ROOM:
        return False
    return error.is_passing if isinstance(error, LogStorageError) else is_passing(error)


def advance(future: FutureLog, now_ms: int, most_bytes: int = _PIECE_BYTES) -> int | None:
    """Do what a copy needs next, without writing it; return the bytes appended, None if it has all of its log."""
    log, copy = future.source, future.log
    action, offset = next_step(
        Extent(log.log_start_offset, log.written_offset),
        Extent(copy.first_base_offset, copy.log_end_offset),
        future.truncate_to,
    )
    future.truncate_to = None
    if action is Action.COPY:
        return _append(log, copy, now_ms, most_bytes) or None  # the batches before the end may have been truncated
    if action is Action.SWAP:
        return None
    probe("replication: the copy of a log that moves is truncated")
    if action is Action.TRUNCATE:
        copy.truncate_to(offset)
    else:
        copy.truncate_fully_and_start_at(offset, now_ms)
    return 0


def _append(log: Log, copy: Log, now_ms: int, most_bytes: int) -> int:
    records = log.read(copy.log_end_offset, most_bytes)
    if not records:
        return 0
    first = read_header(records).base_offset
    if not copy.segments.size and first < copy.log_end_offset:
        copy.truncate_fully_and_start_at(first, now_ms)  # the log's first batch may begin before its start offset
    return copy.append_as_follower(records, now_ms=now_ms)
