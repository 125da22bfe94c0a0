"""One attempt to run a pipeline: a streaming query, its figures, and the progress of its consumer group."""

import contextlib
import logging
from typing import Any, Final, Protocol

from odradek.model import OdradekError
from odradek.pipelines.config import AnyPipeline, MirrorPipeline, QueryPipeline, is_url
from odradek.pipelines.errors import is_final, sentence_of, spark_errors
from odradek.pipelines.files.sink_files import prepare_directory
from odradek.pipelines.mirror import MirrorTopics
from odradek.pipelines.progress import Figures, GroupProgress, add_reports, offsets_of
from odradek.pipelines.queries import start_mirror, start_query
from odradek.runtime import Runtime

TOPICS_SECONDS: Final = 5.0
"""The interval at which a mirror looks for new topics and partitions."""

_log = logging.getLogger("odradek.pipelines")


class AttemptFailedError(OdradekError):
    """A query did not start, or ended with an error. `details` is Spark's whole text."""

    def __init__(self, message: str, *, details: str, is_final: bool) -> None:
        super().__init__(message)
        self.details = details
        self.is_final = is_final


class Attempt(Protocol):
    """A query that has started; `runner` decides what follows its end."""

    def poll(self) -> tuple[Figures, bool]:
        """Return the counts of this attempt, and whether it is active. Raise `AttemptFailedError` once."""

    def wait(self, seconds: float) -> None:
        """Return when the query has ended, or after `seconds`."""

    def stop(self) -> None:
        """Stop the query between two commits of batches, and commit its progress."""


class QueryAttempt:
    """An attempt with a query of Spark's. For one thread; the caller holds the checkpoint's lock.

    The constructor raises `AttemptFailedError`.
    """

    def __init__(self, spark: Any, pipeline: AnyPipeline, runtime: Runtime) -> None:
        self._pipeline = pipeline
        self._clock = runtime.clock
        self._is_open = True
        self._figures, self._last_batch = Figures(), -1
        self._topics: MirrorTopics | None = None
        self._topics_at = self._clock.monotonic()
        self._progress = GroupProgress(pipeline.source.bootstrap_servers, pipeline.source.kafka, pipeline.group)
        expected: tuple[type[Exception], ...] = (OdradekError, *spark_errors())
        try:
            if isinstance(pipeline, MirrorPipeline):
                self._topics = MirrorTopics(pipeline)
                self._topics.ensure()
                self._query = start_mirror(spark, pipeline)
            else:
                _prepare_sink(pipeline, runtime)
                self._query = start_query(spark, pipeline)
        except expected as error:
            self._close()
            text = str(error) if isinstance(error, OdradekError) else sentence_of(str(error))
            raise AttemptFailedError(text, details=str(error), is_final=is_final(error)) from error
        except BaseException:
            self._close()
            raise

    def poll(self) -> tuple[Figures, bool]:
        if not self._is_open:
            return self._figures, False
        active = bool(self._query.isActive)
        # Read after `isActive`, so that the last report of an ended query is included.
        reports = self._query.recentProgress
        before = self._figures
        self._figures, self._last_batch = add_reports(before, reports, after_batch=self._last_batch)
        if self._figures.dead_letters and not before.dead_letters and isinstance(self._pipeline, QueryPipeline):
            _log.warning(
                "%s: some values are not JSON objects of their stream's fields; these records are in %s",
                self._pipeline.name,
                self._pipeline.dead_letters,
            )
        if reports:
            self._progress.commit(offsets_of(reports[-1]))
        if active:
            self._look_for_topics()
        else:
            self._close()
            if (failure := self._query.exception()) is not None:
                text = str(failure)
                raise AttemptFailedError(sentence_of(text), details=text, is_final=is_final(text))
        return self._figures, active

    def wait(self, seconds: float) -> None:
        from pyspark.errors import StreamingQueryException

        if self._is_open and self._query.isActive:
            # The next `poll` raises the failure and closes the attempt.
            with contextlib.suppress(StreamingQueryException):
                self._query.awaitTermination(seconds)

    def stop(self) -> None:
        if not self._is_open:
            return
        try:
            self._query.stop()
            self.poll()
        finally:
            self._close()

    def _look_for_topics(self) -> None:
        if self._topics is None or self._clock.monotonic() - self._topics_at < TOPICS_SECONDS:
            return
        try:
            self._topics.ensure()
        except OdradekError as error:
            if not error.retriable:
                self._query.stop()
                self._close()
                raise AttemptFailedError(str(error), details=str(error), is_final=True) from error
            # The query has retries of its own.
            _log.warning("%s: failed to look for new topics, will retry: %s", self._pipeline.name, error)
        self._topics_at = self._clock.monotonic()

    def _close(self) -> None:
        self._is_open = False
        self._progress.close()
        if self._topics is not None:
            self._topics.close()


def _prepare_sink(pipeline: QueryPipeline, runtime: Runtime) -> None:
    directory = pipeline.sink.options.get("path")
    if directory is not None and not is_url(directory) and not is_url(pipeline.checkpoint):
        prepare_directory(
            runtime.disk,
            runtime.entropy,
            pipeline.checkpoint,
            directory,
            pipeline.sink.options,
            name=pipeline.name,
        )
