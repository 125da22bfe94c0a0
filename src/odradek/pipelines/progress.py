"""How far a query has come: out of Spark's reports, into the pipeline's consumer group.

Spark reports on a batch once the batch is in the checkpoint's commit log, so a committed group offset never runs ahead
of what is done. The other way round it may be behind by a batch, after a crash.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import OffsetAndMetadata, commit_group_offsets
from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.model.values import dataclass
from odradek.spark.bridge import Bridge
from odradek.spark.planning import decode_offset
from odradek.spark.settings import ScanSettings, client_settings

OBSERVED: Final = "odradek"
"""The name under which a query counts the rows that leave it; `odradek.STREAM` counts what comes in by a stream."""

_COMMIT_SECONDS: Final = 5.0
"""How long one commit may block the other pipelines; the next poll commits again."""

_log = logging.getLogger("odradek.pipelines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a query has done since it was started."""

    records_in: int = 0
    records_out: int = 0
    records_late: int = 0
    """Dropped because they came later than the watermark allows."""
    batches: int = 0
    dead_letters: int = 0
    """Records whose values are not JSON objects of their stream's fields."""
    tombstones: int = 0
    """Records without a value, of streams whose values have fields."""


def add_reports(figures: Figures, reports: Iterable[Any], *, after_batch: int) -> tuple[Figures, int]:
    """`figures` with Spark's progress `reports` on batches after `after_batch`, and the last batch's number.

    Spark reports on the batch that was last even when nothing happens; that one counts once.
    """
    records_in, records_out = figures.records_in, figures.records_out
    late, batches = figures.records_late, figures.batches
    dead_letters, tombstones = figures.dead_letters, figures.tombstones
    for report in reports:
        if report.batchId <= after_batch:
            continue
        after_batch = report.batchId
        records_in += report.numInputRows
        observed = report.observedMetrics.get(OBSERVED)
        records_out += observed.rows if observed is not None else 0
        for name, counted in report.observedMetrics.items():
            if name.startswith(f"{OBSERVED}."):
                dead_letters += counted.dead_letters
                tombstones += counted.tombstones
        late += sum(operator.numRowsDroppedByWatermark for operator in report.stateOperators)
        batches += 1
    figures = Figures(
        records_in=records_in,
        records_out=records_out,
        records_late=late,
        batches=batches,
        dead_letters=dead_letters,
        tombstones=tombstones,
    )
    return figures, after_batch


def offsets_of(report: Any) -> dict[TopicPartition, int]:
    """The next offset to read of every partition. Of two streams over one partition, the slower one's counts."""
    offsets: dict[TopicPartition, int] = {}
    for source in report.sources:
        if source.endOffset in {None, "null"}:
            continue
        for partition, offset in decode_offset(json.loads(source.endOffset)).offsets.items():
            offsets[partition] = min(offset, offsets.get(partition, offset))
    return offsets


class GroupProgress:
    """Commits to a group that has no members."""

    def __init__(self, bootstrap_servers: str, kafka: Mapping[str, str], group: str) -> None:
        self._bridge = Bridge(client_settings(ScanSettings, bootstrap_servers, kafka))
        self._group = group
        self._committed: dict[TopicPartition, int] = {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what has changed. A failure is logged and made good by the next commit: nothing depends on it."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if not changed:
            return
        wanted = {partition: OffsetAndMetadata(offset) for partition, offset in changed.items()}

        async def commit(cluster: Cluster) -> None:
            await commit_group_offsets(cluster, self._group, wanted)

        try:
            self._bridge.run(commit, timeout_s=_COMMIT_SECONDS)
        except KafkaError as error:
            _log.warning("progress is not committed to group %s: %s", self._group, error)
        except OdradekError as error:
            _log.warning("progress is not committed to group %s for now: %s", self._group, error)
        else:
            self._committed.update(changed)

    def close(self) -> None:
        """Give the connection back."""
        self._bridge.close()
