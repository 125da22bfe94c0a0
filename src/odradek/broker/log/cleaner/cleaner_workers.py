"""Runs the log cleaner: slices of compaction on the disk's background thread, with pauses that limit its I/O.

Each of `log.cleaner.threads` workers compacts the dirtiest log that needs it, or waits `log.cleaner.backoff.ms` if
none does. All workers share one background thread with flushes and deletions.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings, CompactionJob, LogCleaner, Throttle
from odradek.broker.turns import cooperatively_by_time
from odradek.config.broker import BrokerConfig
from odradek.model import TopicPartition
from odradek.runtime import Runtime

_logger = logging.getLogger("odradek.broker")


class CleanerWorkers:
    """The workers of one broker. `config()` is the current configuration.

    `stable_offset(partition)` is its log's last stable offset, from which on nothing is compacted; None without a log.
    """

    def __init__(
        self,
        cleaner: LogCleaner,
        runtime: Runtime,
        *,
        config: Callable[[], BrokerConfig],
        stable_offset: Callable[[TopicPartition], int | None],
    ) -> None:
        self._cleaner = cleaner
        self._runtime = runtime
        self._config = config
        self._stable_offset = stable_offset
        self._choosing = asyncio.Lock()
        self._throttle = Throttle()
        self._workers: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the workers, unless `log.cleaner.enable=false`."""
        if self._config().log_cleaner_enable:
            self._add_worker(0)

    def _add_worker(self, number: int) -> None:
        worker = asyncio.get_running_loop().create_task(self._work(number), name=f"log cleaner {number}")
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, number: int) -> None:
        while number < self._config().log_cleaner_threads:
            if number + 1 == len(self._workers) < self._config().log_cleaner_threads:
                self._add_worker(number + 1)
            config = self._config()
            job = None
            try:
                job = await self._choose(CleanerSettings.of(config))
                if job is not None:
                    await self._compact(job)
            except Exception as error:
                # Other logs still have to be compacted.
                _logger.exception("Unexpected error in the log cleaner")
                if job is not None:
                    self._cleaner.give_up(job, error, self._runtime.clock.now_ms())
                job = None
            if job is None:
                # A back-off of 0 is allowed, but other tasks must run in between.
                await asyncio.sleep(max(config.log_cleaner_backoff_ms, 1) / 1000)

    async def _choose(self, settings: CleanerSettings) -> CompactionJob | None:
        """Return the next job, or None. Other tasks run in between, because measuring all logs takes long."""
        clock = self._runtime.clock
        async with self._choosing:
            steps = self._cleaner.begin_in_steps(clock.now_ms(), settings, stable_offset=self._stable_offset)
            async for job in cooperatively_by_time(steps, clock.monotonic):
                if job is not None:
                    return job
            return None

    async def _compact(self, job: CompactionJob) -> None:
        clock = self._runtime.clock
        while True:
            await asyncio.shield(self._runtime.disk.submit(job.run, background=True))
            if not self._cleaner.finish_slice(job, clock.now_ms()):
                return
            rate = self._config().log_cleaner_io_max_bytes_per_second
            await asyncio.sleep(self._throttle.wait_s(job.slice_bytes, rate, clock.monotonic()))

    async def stop(self) -> None:
        """Stop the workers, and drop the jobs in progress, whose logs stay unchanged."""
        jobs = self._cleaner.stop()
        workers = tuple(self._workers)
        self.kill()
        await asyncio.gather(*workers, return_exceptions=True)
        for job in jobs:
            # Runs after the slice in progress, which uses the same thread.
            await self._runtime.disk.submit(job.compaction.discard, background=True)

    def kill(self) -> None:
        """Stop without waiting for the background thread."""
        for worker in tuple(self._workers):
            worker.cancel()
