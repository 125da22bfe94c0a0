"""Makes Spark partitions (tasks) from the planned offset ranges, and raises or logs lost records."""

import logging
from collections.abc import Sequence

from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from odradek.spark.options import ReadOptions
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import DataLossError, OffsetRange, Plan, group_ranges, split_ranges
from odradek.spark.reading.scan import ScanTask

_log = logging.getLogger("odradek.spark")


class ScanPartition(InputPartition):  # type: ignore[misc]
    """The pickled input of a task, with all that the task needs: the reader was pickled before the plan was made."""

    def __init__(self, task: ScanTask) -> None:
        super().__init__(task)


def scan_partitions(plan: Plan, options: ReadOptions, columns: Sequence[str], lookup: Lookup) -> list[InputPartition]:
    """Return a Spark partition per task. Raises `DataLossError` if records are lost and `failOnDataLoss` is on.

    Small ranges share a task unless `minPartitions` or `maxRecordsPerPartition` is set. Tasks first connect to
    the brokers that `lookup` knows, and read no topic that was created again since.
    """
    report_losses(plan.losses, options)
    pieces: list[OffsetRange] = split_ranges(
        plan.ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    is_counted = options.min_partitions is not None or options.max_records_per_partition is not None
    groups = [(piece,) for piece in pieces] if is_counted else group_ranges(pieces)
    ids = lookup.topic_ids()
    found = []
    for group in groups:
        topics = {each.partition.topic for each in group}
        task = ScanTask(ranges=group, options=options, columns=tuple(columns), brokers=lookup.brokers())
        found.append(ScanPartition(replace(task, topic_ids={each: ids[each] for each in sorted(topics & ids.keys())})))
    return found


def report_losses(losses: Sequence[str], options: ReadOptions) -> None:
    """Raise `DataLossError` if there are losses and `failOnDataLoss` is on; log them if it is off."""
    if losses and options.fail_on_data_loss:
        more = f" (and {len(losses) - 1} more losses)" if len(losses) > 1 else ""
        raise DataLossError(f"{losses[0]}{more}; set failOnDataLoss=false to read the rest")
    for loss in losses:
        _log.warning("Lost records: %s", loss)
