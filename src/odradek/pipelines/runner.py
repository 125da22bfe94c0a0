"""Runs pipelines side by side in one Spark: start, poll, restart, stop. A failed pipeline does not end the others."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from odradek.model import OdradekError
from odradek.pipelines.attempts import Attempt, AttemptFailedError, QueryAttempt
from odradek.pipelines.config.pipelines import AnyPipeline, is_url
from odradek.pipelines.errors import PipelineError, spark_errors, with_notes
from odradek.pipelines.files.sink_files import lock_checkpoint
from odradek.pipelines.progress import Figures
from odradek.pipelines.status import State, Status, details_file, write_status
from odradek.runtime import DiskLock, Runtime, system_runtime
from odradek.spark.session import deferred_interrupts, run_interruptible

POLL_SECONDS: Final = 0.25
"""The interval of polls, about the time of a batch."""
_STATUS_SECONDS: Final = 1.0
"""The shortest time between two writes of a status whose state has not changed."""

_MOST_DOUBLINGS: Final = 30
"""A greater power of two does not fit a float after days without a broker."""

_log = logging.getLogger("odradek.pipelines")

OnFailure = Callable[[str, OdradekError], None]


def log_failure(name: str, failure: OdradekError) -> None:
    """Log that a pipeline has failed and does not restart."""
    _log.error("%s failed: %s", name, with_notes(failure))


class PipelineRun:
    """A pipeline with its restarts. For one thread. `poll` does all the work, and raises no error of the pipeline.

    A failure calls `check_interrupts` first, which raises `KeyboardInterrupt` after a signal: SIGTERM for the process
    group or the control group ends Spark's JVM and workers, too, and their ends are no failures.
    """

    def __init__(
        self,
        spark: Any,
        pipeline: AnyPipeline,
        runtime: Runtime,
        attempt: Callable[[Any, AnyPipeline, Runtime], Attempt] = QueryAttempt,
        on_failure: OnFailure = log_failure,
        check_interrupts: Callable[[], None] = lambda: None,
    ) -> None:
        self.pipeline = pipeline
        self.failure: OdradekError | None = None
        """The final error, if any; a `TomlKeyError` if it is about a key of the pipeline's file."""
        self.details = ""
        """Spark's whole text of the last failure."""
        self._spark, self._runtime, self._new_attempt = spark, runtime, attempt
        self._on_failure, self._check_interrupts = on_failure, check_interrupts
        self._started_at = self._clock.monotonic()
        self._status = Status(
            name=pipeline.name,
            kind=pipeline.kind,
            state=State.RUNNING,
            # A session of Spark Connect has no context.
            spark_page=getattr(getattr(spark, "sparkContext", None), "uiWebUrl", None),
        )
        self._attempt: Attempt | None = None
        self._earlier = Figures()
        """The counts of the ended attempts."""
        self._failures_in_a_row = 0
        self._retry_at = self._written_at = 0.0
        self._lock: DiskLock | None = None
        try:
            if not is_url(pipeline.checkpoint):
                self._lock = lock_checkpoint(runtime.disk, pipeline.checkpoint)
            self._start()
        except OdradekError as error:
            self._give_up(error)
        except BaseException:
            self._close()
            raise

    @property
    def _clock(self) -> Any:
        return self._runtime.clock

    def poll(self) -> Status:
        """Update the counts, commit progress, and restart a failed query after its backoff. Return the status."""
        if not self._status.active:
            return self._status
        if self._attempt is not None:
            try:
                figures, active = self._attempt.poll()
                self._count(figures)
                if not active:
                    self._attempt = None
                    self._end(State.DONE)
            except AttemptFailedError as error:
                self._fail(error)
            except spark_errors() as error:
                # The query's state is unavailable: Spark has ended, so no other attempt can run.
                gone = AttemptFailedError.of(error, self.pipeline)
                gone.is_final = True
                self._fail(gone)
        elif self._clock.monotonic() >= self._retry_at:
            self._start()
        return self._update()

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended or is due to restart, at most `seconds`."""
        if self._attempt is not None:
            # The next `poll` raises them.
            with suppress(*spark_errors()):
                self._attempt.wait(seconds)
        else:
            pause = min(seconds, max(0.0, self._retry_at - self._clock.monotonic()))
            run_interruptible(partial(asyncio.sleep, pause))

    def stop(self) -> None:
        """Stop the query, without its unfinished batch, and commit its progress. Its errors are only logged."""
        if not self._status.active:
            return
        attempt, self._attempt = self._attempt, None
        expected: tuple[type[Exception], ...] = (AttemptFailedError, *spark_errors())
        try:
            if attempt is not None:
                attempt.stop()
                self._count(attempt.poll()[0])
        except expected as error:
            self._count(getattr(error, "figures", None))
            _log.info("%s failed while it was stopped: %s", self.pipeline.name, error)
        finally:
            # Also after another interrupt, so that no later `poll` restarts it.
            self._end(State.STOPPED)

    def _start(self) -> None:
        try:
            self._attempt = self._new_attempt(self._spark, self.pipeline, self._runtime)
            self._status = replace(self._status, state=State.RUNNING)
        except AttemptFailedError as error:
            self._fail(error)

    def _count(self, figures: Figures | None) -> None:
        if figures is None:
            return
        if figures.batches and self._failures_in_a_row:
            self._failures_in_a_row = 0
            self._status = replace(self._status, error=None)
        self._status = replace(self._status, figures=self._earlier + figures)

    def _fail(self, error: AttemptFailedError) -> None:
        self._attempt = None
        self._count(error.figures)
        self._check_interrupts()
        self._earlier = self._status.figures
        self.details = error.details
        if self._lock is not None and "\n" in self.details.strip():
            with suppress(OSError):
                self._runtime.disk.replace_file(details_file(self.pipeline), self.details.encode())
                error.failure.add_note(f"Spark's text: {details_file(self.pipeline)}")
        policy = self.pipeline.restart
        if error.is_final or self._failures_in_a_row >= policy.limit >= 0:
            self._give_up(error)
            return
        doublings = min(self._failures_in_a_row, _MOST_DOUBLINGS)
        pause = min(policy.backoff_s * 2**doublings, policy.max_backoff_s)
        self._failures_in_a_row += 1
        self._retry_at = self._clock.monotonic() + pause
        self._status = replace(
            self._status, state=State.RESTARTING, error=str(error), restarts=self._status.restarts + 1
        )
        _log.warning(
            "%s failed and restarts in %.1f s (%d%s): %s",
            self.pipeline.name,
            pause,
            self._failures_in_a_row,
            f" of {policy.limit}" if policy.limit >= 0 else "",
            error,
        )

    def _give_up(self, error: OdradekError) -> None:
        self.failure = error.failure if isinstance(error, AttemptFailedError) else error
        self._on_failure(self.pipeline.name, self.failure)
        self._end(State.FAILED, str(error))

    def _end(self, state: State, error: str | None = None) -> None:
        self._status = replace(self._status, state=state, error=error)
        self._update()
        self._close()

    def _update(self) -> Status:
        before, now = self._status, self._clock.monotonic()
        if before.active or self._lock is not None:
            self._status = replace(before, seconds=now - self._started_at)
        if self._lock is not None and (not before.active or now - self._written_at >= _STATUS_SECONDS):
            self._written_at = now
            try:
                write_status(self._runtime.disk, self.pipeline, self._status)
            except OSError as error:
                _log.warning("%s: failed to write its status: %s", self.pipeline.name, error)
        return self._status

    def _close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def run_pipelines(
    spark: Any,
    pipelines: Sequence[AnyPipeline],
    *,
    on_status: Callable[[Sequence[Status]], None] = lambda statuses: None,
    on_failure: OnFailure = log_failure,
    runtime: Runtime | None = None,
) -> list[Status]:
    """Run until all pipelines have ended. `on_status` is called about every `POLL_SECONDS`, and at the end.

    `on_failure` is called at once with a failed pipeline's name and error. Raise `PipelineError` at the end if some
    failed. All queries are stopped on return, also after Ctrl-C.
    """
    runs: list[PipelineRun] = []
    runtime = runtime or system_runtime()
    with deferred_interrupts() as check:
        try:
            for pipeline in pipelines:
                check()
                runs.append(PipelineRun(spark, pipeline, runtime, on_failure=on_failure, check_interrupts=check))
            while True:
                check()
                statuses = [run.poll() for run in runs]
                on_status(statuses)
                active = [run for run, status in zip(runs, statuses, strict=True) if status.active]
                if not active:
                    break
                active[0].wait(POLL_SECONDS)
        finally:
            for run in runs:
                _stop(run)
            on_status([run.poll() for run in runs])
    failures: dict[str, OdradekError] = {run.pipeline.name: run.failure for run in runs if run.failure is not None}
    if failures:
        details = "\n".join(run.details for run in runs if run.details)
        raise PipelineError(failures) from (RuntimeError(details) if details else None)
    return statuses


def _stop(run: PipelineRun) -> None:
    """Stop a run. A second Ctrl-C, which ends the wait for it, is only logged."""
    try:
        run.stop()
    except KeyboardInterrupt as error:
        _log.debug("%r", error)
