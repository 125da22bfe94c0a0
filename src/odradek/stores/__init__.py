"""Implementations of `metadata.store.Store`: the znode tree in memory, in SQLite and in ZooKeeper.

`semantics` defines the operations for the stores that keep nodes themselves; each store adds the storage, the
sessions, and the way in which changes reach the watches of other sessions. `open_store` chooses a store by URL;
`open_reader` opens the tree for reading only.
"""

from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.opening import open_reader, open_store
from odradek.stores.sqlite import SqliteStore

__all__ = ["MemoryStore", "MemoryTree", "SqliteStore", "open_reader", "open_store"]
