"""An ordered, durable log for each partition, in Kafka's file formats.

`Log` is one partition's log, `LogManager` has all of a broker's. A batch arrives as a view of the network buffer, gets
its offset in place, and is written with the others of the same turn of the event loop, without a copy.
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
