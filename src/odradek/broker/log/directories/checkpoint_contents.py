"""The content of a data directory's checkpoints: current offsets of open logs, and those found for unopened ones.

A log with lost records keeps the recovery point and the high watermark that show the loss.
"""

from collections.abc import Collection, Mapping

from odradek.broker.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from odradek.broker.log.cleaner.log_cleaner import LogCleaner
from odradek.broker.log.directories.directory_loading import FoundLog
from odradek.broker.log.directories.lost_records import LostRecords
from odradek.broker.log.log import Log
from odradek.model import TopicPartition
from odradek.runtime import Disk


def checkpoint_contents(
    disk: Disk,
    directory: str,
    logs: Mapping[TopicPartition, Log],
    unopened: Collection[FoundLog],
    lost_records: Collection[LostRecords],
    cleaner: LogCleaner,
) -> dict[str, Mapping[TopicPartition, int]]:
    """Return the content of each checkpoint file of `directory` by path; all arguments are of logs in it."""
    points = {tp: log.recovery_point for tp, log in logs.items()}
    starts = {tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > log.first_base_offset}
    marks = {tp: log.high_watermark for tp, log in logs.items()}
    for found in unopened:
        points[found.partition] = found.recovery_point
        starts[found.partition] = found.log_start_offset
        marks[found.partition] = found.high_watermark
    for each in lost_records:
        points[each.partition] = max(points.get(each.partition, 0), each.recovery_point)
        marks[each.partition] = max(marks.get(each.partition, 0), each.high_watermark)
    files = {RECOVERY_POINTS: points, LOG_START_OFFSETS: starts, HIGH_WATERMARKS: marks}
    cleaned = {tp: offset for tp in logs if (offset := cleaner.compacted_offset(tp)) is not None}
    for found in unopened:
        if found.partition in cleaner.offsets:
            cleaned[found.partition] = cleaner.offsets[found.partition]
    if cleaned or disk.exists(f"{directory}/{CLEANER_OFFSETS}"):
        files[CLEANER_OFFSETS] = cleaned
    return {f"{directory}/{name}": offsets for name, offsets in files.items()}
