"""Implementations of `metadata.store.Store`: the znode tree in memory, in SQLite and in ZooKeeper.

`open_store` opens a store by URL, `open_reader` for reading only.
"""

from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.opening import open_reader, open_store
from odradek.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "MemoryTree", "SqliteStore", "open_reader", "open_store"]
