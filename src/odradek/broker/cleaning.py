"""Runs compaction beside everything else: slices on the disk's background thread, with pauses that limit its I/O.

Each of `log.cleaner.threads` workers takes the dirtiest log that is due, and waits `log.cleaner.backoff.ms` if there is
none. Its slices and those of others take turns on the one background thread, with syncs and removals between them.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek.broker.turns import in_short_turns
from odradek.config import BrokerConfig
from odradek.log.cleaner.log_cleaner import CleanerSettings, CompactionJob, LogCleaner, Throttle
from odradek.model import TopicPartition
from odradek.runtime import Runtime

_logger = logging.getLogger("odradek.broker")


class Cleaning:
    """One broker's. `config` is asked for what holds now; `stable_offset` for a log's last stable offset, if known."""

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
        """Compact from now on, until `stop`; nothing happens with `log.cleaner.enable=false`."""
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
                # The logs that this is not about are still to be compacted, and to be deleted from.
                _logger.exception("the log cleaner met an error of this program")
                if job is not None:
                    self._cleaner.give_up(job, error, self._runtime.clock.now_ms())
                job = None
            if job is None:
                # 0 is allowed, and all others should have a turn.
                await asyncio.sleep(max(config.log_cleaner_backoff_ms, 1) / 1000)

    async def _choose(self, settings: CleanerSettings) -> CompactionJob | None:
        """The next job, if there is one. To measure all logs takes long: others have their turn meanwhile."""
        clock = self._runtime.clock
        async with self._choosing:
            steps = self._cleaner.begin_in_steps(clock.now_ms(), settings, stable_offset=self._stable_offset)
            async for job in in_short_turns(steps, clock.monotonic):
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
        """Compact no more; what is under way comes to nothing, and the logs are as they were."""
        jobs = self._cleaner.stop()
        workers = tuple(self._workers)
        self.kill()
        await asyncio.gather(*workers, return_exceptions=True)
        for job in jobs:
            # After the slice that is running.
            await self._runtime.disk.submit(job.compaction.discard, background=True)

    def kill(self) -> None:
        """Take no notice of what the background thread still does."""
        for worker in tuple(self._workers):
            worker.cancel()
