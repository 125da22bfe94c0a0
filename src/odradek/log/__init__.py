"""An ordered, durable log for each partition, in Kafka's file formats.

`log` has `Log`, one partition's log, made of parts that share a `local_log`: `log_appender` appends, `log_reader`
reads, `log_writer` writes, syncs and handles the failures of both, `segment_deletion` takes segments out. A batch
arrives as a view of the network buffer, gets its offset in place, and is written with the others of the same turn of
the event loop (`broker.replication.writer`), without a copy.

`validation` checks batches, `batch_contents` the records of a client's batch. `pending_writes` has the batches to be
written and the job that writes them, `durability` the synced part and the job that syncs more. `retention` selects the
segments to delete, and `time_lookup` finds offsets by timestamp. `log_config` is the configuration, `names` has the
names of files and folders, `errors` the errors of files.

`directories` has `LogManager`, all logs of a broker; `recovery` opens a log, `segments` are its files, `checkpoints`
the text files beside them, and `producers` the state of idempotent producers. `cleaner` compacts logs, and `inspection`
reads files for `odradek log`.
"""

from odradek.log.directories.log_manager import LogManager
from odradek.log.directories.maintenance import MaintenanceJob
from odradek.log.durability import FlushJob
from odradek.log.errors import LogStorageError
from odradek.log.log import AppendInfo, Log
from odradek.log.log_config import LogConfig
from odradek.log.pending_writes import WriteJob
from odradek.log.segments.open_files import FilePool
from odradek.log.time_lookup import TimestampOffset

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
