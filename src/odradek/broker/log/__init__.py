"""An ordered, durable log for each partition, in Kafka's file formats.

`log` has `Log`, one partition's log with its offsets, `log_writer` the `LogWriter` that writes and syncs it and handles
failures of both, by the jobs in `pending_writes` and `flush_job`. A batch is a view of the network buffer: it gets its
offset in place and is written without a copy, with the other batches of the same turn (`write_scheduler`).

`directories` has `LogManager`, all logs of a broker; `recovery` opens a log, `segments` has its segment files,
`checkpoints` the text files beside them, `producers` the idempotent producers, `cleaner` compaction.
"""

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.directories.maintenance import MaintenanceJob
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.flush_job import FlushJob
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.pending_writes import WriteJob
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.time_lookup import TimestampOffset
from odradek.broker.log.validation import AppendInfo

__all__ = [
    "AppendInfo",
    "FilePool",
    "FlushJob",
    "Log",
    "LogConfig",
    "LogManager",
    "LogStorageError",
    "MaintenanceJob",
    "TimestampOffset",
    "WriteJob",
]
