"""Runs pipelines side by side in one Spark: start, poll, commit progress, stop."""

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek.model import OdradekError
from odradek.model.values import dataclass
from odradek.pipelines.config import AnyPipeline, MirrorPipeline, QueryPipeline
from odradek.pipelines.mirror import MirrorTopics
from odradek.pipelines.progress import Figures, GroupProgress, add_reports, offsets_of
from odradek.pipelines.queries import start_mirror, start_query
from odradek.pipelines.sink_files import lock_checkpoint, prepare_directory
from odradek.runtime import DiskLock, Runtime, system_runtime
from odradek.spark.session import deferred_interrupts

POLL_SECONDS: Final = 0.25
"""The interval of polls; a batch takes about as long."""
_TOPICS_SECONDS: Final = 5.0
"""The interval at which a mirror looks for new topics."""

_OUR_ERROR: Final = re.compile(r"^(?:[\w.]*\.)?odradek\.[\w.]+: (.+)$", re.MULTILINE)

_log = logging.getLogger("odradek.pipelines")


class PipelineError(OdradekError):
    """A pipeline failed; the text begins with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a pipeline. `seconds` counts from its start to its end or now."""

    name: str
    kind: str
    figures: Figures
    seconds: float
    active: bool


class PipelineRun:
    """A started pipeline. For one thread."""

    def __init__(self, spark: Any, pipeline: AnyPipeline, runtime: Runtime) -> None:
        self.pipeline = pipeline
        self._clock = clock = runtime.clock
        self._started_at = clock.monotonic()
        self._ended_at: float | None = None
        self._figures, self._last_batch = Figures(), -1
        self._topics: MirrorTopics | None = None
        self._topics_at = self._started_at
        self._progress = GroupProgress(pipeline.source.bootstrap_servers, pipeline.source.kafka, pipeline.group)
        self._lock: DiskLock | None = None
        try:
            self._lock = lock_checkpoint(runtime.disk, str(pipeline.checkpoint))
            if isinstance(pipeline, MirrorPipeline):
                self._topics = MirrorTopics(pipeline)
                self._topics.ensure()
                self._query = start_mirror(spark, pipeline)
            else:
                _prepare_sink(pipeline, runtime)
                self._query = start_query(spark, pipeline)
        except BaseException:
            self._close()
            raise

    def poll(self) -> Status:
        """Update the counts and commit progress. Raise `PipelineError` once if the query has failed."""
        active = self._ended_at is None and bool(self._query.isActive)
        if self._ended_at is None:
            # Read after `isActive`, so that the last report of an ended query is included.
            reports = self._query.recentProgress
            before = self._figures
            self._figures, self._last_batch = add_reports(self._figures, reports, after_batch=self._last_batch)
            if self._figures.dead_letters and not before.dead_letters and isinstance(self.pipeline, QueryPipeline):
                _log.warning(
                    "%s: some values are not JSON objects of their stream's fields; these records are in %s",
                    self.pipeline.name,
                    self.pipeline.dead_letters,
                )
            if reports:
                self._progress.commit(offsets_of(reports[-1]))
            if active:
                self._look_for_topics()
            else:
                self._end()
        now = self._clock.monotonic() if self._ended_at is None else self._ended_at
        return Status(
            name=self.pipeline.name,
            kind=self.pipeline.kind,
            figures=self._figures,
            seconds=now - self._started_at,
            active=active,
        )

    def wait(self, seconds: float) -> None:
        """Return when the query has ended, or after `seconds`."""
        from pyspark.errors import StreamingQueryException

        if self._ended_at is None and self._query.isActive:
            # The next `poll` raises the failure and closes the run.
            with contextlib.suppress(StreamingQueryException):
                self._query.awaitTermination(seconds)

    def stop(self) -> None:
        """Stop the query between two commits of batches, and commit its progress."""
        if self._ended_at is not None:
            return
        try:
            self._query.stop()
            self.poll()
        finally:
            if self._ended_at is None:
                self._ended_at = self._clock.monotonic()
                self._close()

    def _look_for_topics(self) -> None:
        if self._topics is not None and self._clock.monotonic() - self._topics_at >= _TOPICS_SECONDS:
            self._topics_at = self._clock.monotonic()
            self._topics.ensure()

    def _end(self) -> None:
        self._ended_at = self._clock.monotonic()
        self._close()
        failure = self._query.exception()
        if failure is not None:
            raise PipelineError(f"{self.pipeline.name}: {sentence_of(str(failure))}")

    def _close(self) -> None:
        self._progress.close()
        if self._topics is not None:
            self._topics.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def run_pipelines(
    spark: Any,
    pipelines: Sequence[AnyPipeline],
    *,
    on_status: Callable[[Sequence[Status]], None] = lambda statuses: None,
    runtime: Runtime | None = None,
) -> list[Status]:
    """Run until all pipelines have ended; one that fails ends the others. `on_status` is called every `POLL_SECONDS`.

    Raise `PipelineError`, one sentence. No query is left running, not even after Ctrl-C.
    """
    runs: list[PipelineRun] = []
    runtime = runtime or system_runtime()
    with deferred_interrupts() as check:
        try:
            for pipeline in pipelines:
                check()
                runs.append(_start(spark, pipeline, runtime))
            while True:
                check()
                statuses = [run.poll() for run in runs]
                on_status(statuses)
                active = [run for run, status in zip(runs, statuses, strict=True) if status.active]
                if not active:
                    return statuses
                active[0].wait(POLL_SECONDS)
        finally:
            for run in runs:
                _stop(run)
            on_status([run.poll() for run in runs])


def _start(spark: Any, pipeline: AnyPipeline, runtime: Runtime) -> PipelineRun:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return PipelineRun(spark, pipeline, runtime)
    except OdradekError as error:
        raise PipelineError(f"{pipeline.name}: {error}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(f"{pipeline.name}: {sentence_of(str(error))}") from error


def _prepare_sink(pipeline: QueryPipeline, runtime: Runtime) -> None:
    directory = pipeline.sink.options.get("path")
    if directory is not None:
        prepare_directory(
            runtime.disk,
            runtime.entropy,
            str(pipeline.checkpoint),
            directory,
            pipeline.sink.options,
            name=pipeline.name,
        )


def _stop(run: PipelineRun) -> None:
    """Stop a run, ignoring errors: the first failure is being raised already. A second Ctrl-C ends a wait."""
    from py4j.protocol import Py4JError

    try:
        run.stop()
    except (PipelineError, Py4JError, KeyboardInterrupt) as error:
        _log.debug("%r", error)


def sentence_of(text: str) -> str:
    """Return the line of Spark's text that names the cause, often a Python traceback inside of a Java one."""
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "Spark gave no reason"
