"""An ordered, durable log for each partition, in Kafka's file formats.

`log` has `Log`, one partition's log. Its parts share a `LocalLog` (`local_log`): `log_appender` appends, `log_reader`
reads, `log_writer` writes, syncs and handles failures of both, `segment_deletion` deletes and replaces segments. A
batch is a view of the network buffer: it gets its offset in place and is written without a copy, with the other batches
of the same turn of the event loop (`writer`).

`validation` checks batches and their CRC, those of producers and those fetched from a leader, `continuity` whether one
continues a log, `batch_contents` their records. `pending_writes` has appended batches and the job that writes them,
`durability` the synced offsets and the job that syncs, which also writes the leader epoch cache. `time_lookup` finds
offsets by timestamp. `log_config` is the configuration, `names` has the names of files and folders, `errors` the
exceptions. `full_disks` reports directories without space, `topic_log_configs` has the configuration of a topic's logs.

`directories` has `LogManager`, all logs of a broker; `recovery` opens a log, `segments` has its segment files,
`checkpoints` the text files beside them, `producers` the idempotent producers. `cleaner` compacts logs, `inspection`
reads files for `odradek log`.
"""

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.directories.maintenance import MaintenanceJob
from odradek.broker.log.durability import FlushJob
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import AppendInfo, Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.pending_writes import WriteJob
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.time_lookup import TimestampOffset

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
