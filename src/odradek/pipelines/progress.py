"""Reads Spark's progress reports: sums a query's counts, and commits its offsets to the pipeline's consumer group.

Spark reports a batch after writing it to the checkpoint's commit log, so the committed offsets are never ahead of the
query. After a crash they may be one batch behind.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients.admin.groups import alter_group_offsets
from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.spark.reading.blocking_cluster import BlockingCluster
from odradek.spark.reading.planning import decode_offset
from odradek.spark.settings import ScanSettings, client_settings

OBSERVED: Final = "odradek"
"""The observation that counts a query's output rows; `odradek.STREAM` counts the input of a stream."""

_COMMIT_SECONDS: Final = 5.0
"""The longest time that a commit may block other pipelines; the next poll tries again."""

_log = logging.getLogger("odradek.pipelines")


class Figures(Struct, frozen=True, kw_only=True):
    """Counts of a query since its start."""

    records_in: int = 0
    records_out: int = 0
    records_late: int = 0
    """Records dropped because they were later than the watermark allows."""
    batches: int = 0
    bad_rows: int = 0
    """Records whose values do not fit their stream's fields."""
    bad_row_reason: str | None = None
    """Why one of them does not."""
    tombstones: int = 0
    """Records without a value, of streams whose values have fields."""
    lag: int | None = None
    """Offsets from the last batch's end to the log ends at that time; None before the first report."""
    rows_per_second: float | None = None
    batch_seconds: float | None = None
    """Speed and duration of the last batch that had records."""
    batch_ended_at: float | None = None
    """The time at which the last batch ended, in seconds since the epoch."""

    def __add__(self, later: "Figures") -> "Figures":
        """Return the summed counts of two periods; what is no count is that of `later` if it has one."""

        def joined(name: str, default: int | None) -> Any:
            ours, theirs = getattr(self, name), getattr(later, name)
            return ours + theirs if default == 0 else ours if theirs is None else theirs

        fields = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        return Figures(**{name: joined(name, default) for name, default in fields})


def add_reports(figures: Figures, reports: Sequence[Any], *, after_batch: int) -> tuple[Figures, int]:
    """Add Spark's progress `reports` on batches after `after_batch`. Return the sums and the last batch's number.

    While nothing happens, Spark reports the next batch's number without having run it (`addBatch` is its duration).
    """
    for report in reports:
        if report.batchId > after_batch and "addBatch" in report.durationMs:
            after_batch = report.batchId
            figures += _figures_of(report)
    if reports and (latest := lag_of(reports[-1])) is not None:
        figures = replace(figures, lag=latest)
    return figures, after_batch


def _figures_of(report: Any) -> Figures:
    streams = [counted for name, counted in report.observedMetrics.items() if name.startswith(f"{OBSERVED}.")]
    seconds, records = report.batchDuration / 1000, report.numInputRows
    return Figures(
        records_in=records,
        records_out=_observed(report.observedMetrics.get(OBSERVED), "rows") or 0,
        records_late=sum(operator.numRowsDroppedByWatermark for operator in report.stateOperators),
        batches=1,
        bad_rows=sum(_observed(each, "bad_rows") or 0 for each in streams),
        bad_row_reason=next(filter(None, (_observed(each, "reason") for each in streams)), None),
        tombstones=sum(_observed(each, "tombstones") or 0 for each in streams),
        rows_per_second=records / seconds if records and seconds else None,
        batch_seconds=seconds if records else None,
        # Spark's timestamp is that of the batch's beginning.
        batch_ended_at=datetime.fromisoformat(report.timestamp).timestamp() + seconds,
    )


def _observed(observed: Any, name: str) -> Any:
    """Return a metric of an observation, None if missing. Spark Connect gives `values` in the order of a `schema`."""
    schema = getattr(observed, "schema", None)
    if schema is None:
        return getattr(observed, name, None)
    names = [field["name"] for field in schema["fields"]]
    return observed.values[names.index(name)] if name in names else None


def lag_of(report: Any) -> int | None:
    """Return the offsets from the batch's end to the log ends, over all sources; None if a source reports none."""
    lag = 0
    for source in report.sources:
        if {source.endOffset, source.latestOffset} & {None, "null"}:
            return None
        done = decode_offset(json.loads(source.endOffset)).offsets
        ends = decode_offset(json.loads(source.latestOffset)).offsets
        lag += sum(max(0, end - done.get(partition, 0)) for partition, end in ends.items())
    return lag


def offsets_of(report: Any) -> dict[TopicPartition, int]:
    """Return the next offset to read of every partition, the lowest one of all streams that read it."""
    offsets: dict[TopicPartition, int] = {}
    for source in report.sources:
        if source.endOffset in {None, "null"}:
            continue
        for partition, offset in decode_offset(json.loads(source.endOffset)).offsets.items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return offsets


class GroupProgress:
    """Offset commits to a consumer group without members."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str], group: str) -> None:
        self._cluster = BlockingCluster(client_settings(ScanSettings, bootstrap_servers, kafka))
        self._group = group
        self._committed: dict[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets that changed. A failure is only logged: the next commit includes them."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if not changed:
            return
        wanted = {partition: OffsetAndMetadata(offset) for partition, offset in changed.items()}

        async def commit(cluster: Cluster) -> None:
            await alter_group_offsets(cluster, self._group, wanted)

        try:
            self._cluster.run(commit, timeout_s=_COMMIT_SECONDS)
        except KafkaError as error:
            _log.warning("Failed to commit the progress to group %s: %s", self._group, error)
        except OdradekError as error:
            _log.warning("Failed to commit the progress to group %s, will retry: %s", self._group, error)
        else:
            self._committed.update(changed)

    def close(self) -> None:
        self._cluster.close()
