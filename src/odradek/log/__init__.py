"""An ordered, durable log for each partition, in Kafka's own files: append, read, look up, retain, recover.

`Log` is one partition's, `LogManager` all of a broker's. A batch comes in as a view of the network's buffer, gets its
offset in place and leaves in one gathered write with all that came in the same turn of the loop; nothing in between
copies it or looks into it. Who may append, and what counts as committed, is the broker's business.
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
