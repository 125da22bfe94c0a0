"""Implementations of `metadata.store.Store`: the znode tree in memory, in SQLite and in ZooKeeper.

`semantics` has the operations for the memory and SQLite stores; each store adds storage, sessions, and the delivery of
changes to the watches of other sessions. `open_store` opens a store by URL, `open_reader` for reading only.
"""

from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.opening import open_reader, open_store
from odradek.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "MemoryTree", "SqliteStore", "open_reader", "open_store"]
