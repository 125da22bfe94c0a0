"""What the readers of a batch and of a stream share: tasks out of ranges, and what to do about losses."""

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from odradek.spark.options import ReadOptions
from odradek.spark.planning import DataLossError, OffsetRange, Plan, split_ranges
from odradek.spark.scan import ScanTask

_log = logging.getLogger("odradek.spark")


class ScanPartition(InputPartition):  # type: ignore[misc]
    """What travels to a task: all that it needs, because the reader itself was pickled long before."""

    def __init__(self, task: ScanTask) -> None:
        super().__init__(task)


def scan_partitions(plan: Plan, options: ReadOptions, columns: Sequence[str]) -> list[InputPartition]:
    """A task for every piece of a range. Raises `DataLossError` if something is lost and that is not allowed."""
    _report(plan.losses, options)
    pieces: list[OffsetRange] = split_ranges(
        plan.ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [ScanPartition(ScanTask(range=piece, options=options, columns=tuple(columns))) for piece in pieces]


def _report(losses: Sequence[str], options: ReadOptions) -> None:
    if losses and options.fail_on_data_loss:
        more = f" (and {len(losses) - 1} more losses)" if len(losses) > 1 else ""
        raise DataLossError(f"{losses[0]}{more}; failOnDataLoss = false reads what is left")
    for loss in losses:
        _log.warning("%s", loss)
