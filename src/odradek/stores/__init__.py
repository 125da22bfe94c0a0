"""The znode tree in memory, in SQLite and in ZooKeeper, behind `metadata.store.Store`.

What operations mean is written once, in `semantics`; a store adds where nodes are kept, what a session is, and how a
change reaches the watches of other sessions. `open_store` chooses by URL, `open_reader` for those who only look.
"""

from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.opening import open_reader, open_store
from odradek.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "MemoryTree", "SqliteStore", "open_reader", "open_store"]
