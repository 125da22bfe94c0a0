"""One attempt to run a pipeline: its streaming query, its counts, its offset commits, a mirror's topics and groups."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from odradek.clients import Admin
from odradek.clients.offsets import LATEST
from odradek.config.toml import TomlKeyError
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.pipelines.config.pipelines import AnyPipeline, BadRowLimit, MirrorPipeline, QueryPipeline, is_url
from odradek.pipelines.errors import details_of, failure_of, is_final, is_gone, sentence_of, spark_errors
from odradek.pipelines.files.compaction import compact
from odradek.pipelines.files.sink_files import prepare_directory
from odradek.pipelines.mirror import MirrorGroups, MirrorTopics
from odradek.pipelines.mirror.topics import topics_strategy
from odradek.pipelines.progress import Figures, GroupProgress, add_reports, offsets_of
from odradek.pipelines.queries import start_mirror, start_query
from odradek.pipelines.sinks import check_directories, local_files
from odradek.runtime import Runtime
from odradek.spark.reading.lookup import ClusterLookup
from odradek.spark.session import run_interruptible
from odradek.spark.settings import ScanSettings, client_settings, shared_keywords

TOPICS_SECONDS: Final = 5.0
"""The interval at which a mirror looks for new topics and partitions, and copies group offsets."""
CONFIGS_SECONDS: Final = 30.0
"""The interval at which a mirror copies changed topic configurations."""
COMPARED_RECORDS: Final = 1_000
"""The records after which the share of bad rows among them is compared with its limit; then counting begins anew."""
LEAST_RECORDS: Final = 100
"""The records of which a share is taken at the end: of a few, one bad row would be a large share."""
_DEAD_LETTER_REPLICAS: Final = 3
"""The replicas of a new dead letter topic, as in Kafka Connect, if there are so many brokers."""

_log = logging.getLogger("odradek.pipelines")


class AttemptFailedError(OdradekError):
    """A query did not start, or failed, by `failure`.

    `details` is Spark's whole text. With `is_final`, a retry would fail again. `figures` are the attempt's last counts,
    None if it did not start.
    """

    figures: Figures | None = None

    def __init__(self, failure: OdradekError, *, details: str, is_final: bool) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.details = details
        self.is_final = is_final

    @classmethod
    def of(cls, error: Exception, pipeline: AnyPipeline) -> "AttemptFailedError":
        """Return the failure of an attempt that Spark's or Odradek's `error` has ended."""
        details = details_of(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        if is_gone(error):
            failure = OdradekError("Spark's JVM has ended: its output above, or the system's log, says why")
        else:
            failure = error if isinstance(error, OdradekError) else failure_of(details, pipeline)
        return cls(failure, details=details, is_final=is_final(error))


class Attempt(Protocol):
    """A query that has started; `runner` restarts it if it fails."""

    def poll(self) -> tuple[Figures, bool]:
        """Return this attempt's counts, and whether its query runs. Raise `AttemptFailedError` once if it failed."""

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, at most `seconds`."""

    def stop(self) -> None:
        """Stop the query without its unfinished batch; commit its progress. Raise `AttemptFailedError` if it failed."""


class QueryAttempt:
    """An attempt with a Spark query. For one thread; the caller holds the checkpoint's lock.

    The constructor raises `AttemptFailedError` if the query does not start.
    """

    def __init__(self, spark: Any, pipeline: AnyPipeline, runtime: Runtime) -> None:
        self._pipeline = pipeline
        self._clock = runtime.clock
        self._spark, self._disk = spark, runtime.disk
        self._is_open, self._is_stopped = True, False
        self._figures, self._last_batch = Figures(), -1
        self._compared = Figures()
        """The counts when bad rows were last compared with their limit."""
        self._topics: MirrorTopics | None = None
        self._topics_at = self._configs_at = self._clock.monotonic()
        self._groups = MirrorGroups(pipeline, runtime.disk) if isinstance(pipeline, MirrorPipeline) else None
        self._backfill: Backfill | None = None
        self._progress: GroupProgress | None = None
        """None for a member of a group, which commits by itself."""
        if pipeline.source.consume_mode == "direct":
            self._progress = GroupProgress(pipeline.source.bootstrap_servers, pipeline.source.kafka, pipeline.group)
        expected: tuple[type[Exception], ...] = (OdradekError, OSError, *spark_errors())
        try:
            if isinstance(pipeline, MirrorPipeline):
                self._topics = MirrorTopics(pipeline)
                self._topics.ensure()
                self._query = start_mirror(spark, pipeline, runtime.disk)
            else:
                if hasattr(spark, "_jvm"):
                    check_directories(runtime.disk, pipeline)
                _prepare_sink(pipeline, runtime)
                if pipeline.dead_letter_topic is not None:
                    _create_dead_letter_topic(pipeline, pipeline.dead_letter_topic)
                self._backfill = Backfill(pipeline)
                self._query = start_query(spark, pipeline, runtime.disk)
        except expected as error:
            self._close()
            raise AttemptFailedError.of(error, pipeline) from error
        except BaseException:
            self._close()
            raise

    def poll(self) -> tuple[Figures, bool]:
        if not self._is_open:
            return self._figures, False
        try:
            return self._poll()
        except AttemptFailedError as error:
            error.figures = self._figures
            raise

    def _poll(self) -> tuple[Figures, bool]:
        active = bool(self._query.isActive)
        # Read after `isActive`, so that the last report of an ended query is included.
        reports = self._query.recentProgress
        before = self._figures
        self._figures, self._last_batch = add_reports(before, reports, after_batch=self._last_batch)
        if self._figures.bad_rows and not before.bad_rows and isinstance(self._pipeline, QueryPipeline):
            _log.warning("%s: %s", self._pipeline.name, _bad_rows_text(self._pipeline, self._figures))
        if reports:
            offsets = offsets_of(reports[-1])
            if self._progress is not None:
                self._progress.commit(offsets)
            if active and self._backfill is not None and self._backfill.is_complete(offsets):
                self._query.stop()
                active = False
        self._limit_bad_rows(is_end=not active)
        if active:
            self._look_for_topics()
        else:
            self._carry_groups()
            self._close()
            if (failure := self._query.exception()) is not None:
                raise AttemptFailedError.of(failure, self._pipeline)
            if not self._is_stopped:
                self._compact()
        return self._figures, active

    def _limit_bad_rows(self, *, is_end: bool) -> None:
        if not isinstance(self._pipeline, QueryPipeline):
            return
        limit, since = self._pipeline.max_bad_rows, self._compared
        if limit.share is not None:
            if self._figures.records_in - since.records_in < (LEAST_RECORDS if is_end else COMPARED_RECORDS):
                return
            self._compared = self._figures
        if (text := too_many_bad_rows(limit, since, self._figures)) is not None:
            text += "; " + _bad_rows_text(self._pipeline, self._figures)
            self._query.stop()
            self._close()
            raise AttemptFailedError(TomlKeyError("max_bad_rows", text), details=text, is_final=True)

    def wait(self, seconds: float) -> None:
        from pyspark.errors import StreamingQueryException

        if self._is_open and self._query.isActive:
            # The next `poll` raises the failure and closes the attempt.
            with contextlib.suppress(StreamingQueryException):
                self._query.awaitTermination(seconds)

    def stop(self) -> None:
        if not self._is_open:
            return
        self._is_stopped = True
        try:
            self._query.stop()
            self.poll()
        finally:
            self._close()

    def _compact(self) -> None:
        """Merge an ended offline pipeline's small files. Errors are only logged: the results are complete already."""
        pipeline = self._pipeline
        if isinstance(pipeline, MirrorPipeline) or not pipeline.sink.target_file_bytes:
            return
        sink = pipeline.sink
        with_retention = any(key.lower() == "retention" for key in sink.options)
        if with_retention or is_url(sink.options["path"]) or not hasattr(self._spark, "_jvm"):
            return
        expected: tuple[type[Exception], ...] = (OSError, ValueError, *spark_errors())
        try:
            compact(self._spark, self._disk, sink.options["path"], sink.target_file_bytes, name=pipeline.name)
        except expected as error:
            _log.warning("%s: small files stay as they are: %s", pipeline.name, sentence_of(str(error)))

    def _carry_groups(self) -> None:
        if self._groups is not None and isinstance(self._pipeline, MirrorPipeline) and self._pipeline.groups:
            self._groups.carry()

    def _look_for_topics(self) -> None:
        if self._topics is None or self._clock.monotonic() - self._topics_at < TOPICS_SECONDS:
            return
        self._carry_groups()
        try:
            self._topics.ensure()
            if self._clock.monotonic() - self._configs_at >= CONFIGS_SECONDS:
                self._configs_at = self._clock.monotonic()
                self._topics.carry_configs()
        except OdradekError as error:
            if not error.retriable:
                self._query.stop()
                self._close()
                raise AttemptFailedError.of(error, self._pipeline) from error
            # The query has retries of its own.
            _log.warning("%s: failed to carry topics, will retry: %s", self._pipeline.name, error)
        self._topics_at = self._clock.monotonic()

    def _close(self) -> None:
        self._is_open = False
        if self._progress is not None:
            self._progress.close()
        if self._topics is not None:
            self._topics.close()


class Backfill:
    """The end offsets of a back-fill, looked up once: the first record at or after `source.until`, or the log end."""

    def __init__(self, pipeline: QueryPipeline) -> None:
        self._ends: dict[TopicPartition, int] = {}
        source = pipeline.source
        if source.until_ms is None:
            return
        lookup = ClusterLookup(client_settings(ScanSettings, source.bootstrap_servers, source.kafka))
        try:
            for stream in pipeline.streams:
                partitions = lookup.partitions(topics_strategy(stream))
                found = lookup.offsets(dict.fromkeys(partitions, source.until_ms))
                # A log without a record at or after `until` is read to its end.
                at_end = lookup.offsets({each: LATEST for each, offset in found.items() if offset < 0})
                self._ends |= found | at_end
        finally:
            lookup.close()

    def is_complete(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether a query with the next offsets `offsets` has reached all ends; always False without `until`."""
        return bool(self._ends) and all(offsets.get(each, 0) >= end for each, end in self._ends.items())


def too_many_bad_rows(limit: BadRowLimit, before: Figures, after: Figures) -> str | None:
    """Return how a limit is exceeded: by all rows of an attempt, or by the share of the records since `before`."""
    bad, records = after.bad_rows, after.records_in
    if limit.share is not None:
        bad, records = bad - before.bad_rows, records - before.records_in
    most = limit.rows if limit.share is None else records * limit.share
    if most is None or bad <= most:
        return None
    return f"{bad:,} of {records:,} records are bad rows, more than max_bad_rows = {limit}"


def _bad_rows_text(pipeline: QueryPipeline, figures: Figures) -> str:
    what = f"some values do not have their stream's fields ({figures.bad_row_reason}); "
    if pipeline.on_bad_row == "null":
        return what + "their fields are null"
    place = pipeline.dead_letters if pipeline.dead_letter_topic is None else f"topic {pipeline.dead_letter_topic}"
    return f"{what}these records are in {place}"


def _create_dead_letter_topic(pipeline: QueryPipeline, name: str) -> None:
    async def create() -> None:
        async with Admin(**shared_keywords(pipeline.source.bootstrap_servers, pipeline.source.kafka)) as admin:
            replicas = pipeline.dead_letter_replication_factor
            if replicas is None:
                replicas = min(_DEAD_LETTER_REPLICAS, len((await admin.describe_cluster()).brokers))
            try:
                await admin.create_topic(name, replication_factor=replicas, configs=pipeline.dead_letter_configs)
            except KafkaError as error:
                if error.code != ErrorCode.topic_already_exists:
                    raise

    run_interruptible(create)


def _prepare_sink(pipeline: QueryPipeline, runtime: Runtime) -> None:
    directory = local_files(pipeline)
    if directory is not None:
        prepare_directory(
            runtime.disk,
            runtime.entropy,
            pipeline.checkpoint,
            directory,
            pipeline.sink.options,
            name=pipeline.name,
        )
