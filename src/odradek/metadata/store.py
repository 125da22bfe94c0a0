"""The interface `Store` of the metadata tree: ZooKeeper's operations for asyncio, with persistent watches.

    path        /a/b/c; a parent must exist, an ephemeral node has no children, names are not empty, "." or ".."
    version     of a node's data: 0 when created, +1 per set; an operation with another version fails; -1 matches any
    ephemeral   the node is deleted with the session that created it
    sequence    the store appends ten digits, the parent's next number, to the path

A watch is a callback without arguments, called on the event loop after the node changed, until it is cancelled. Several
changes may cause one call, and a call may come without a change. Setting a watch before reading the node misses no
change.

A store replaces an expired session by a new one; `on_session_lost` reports that all ephemeral nodes are gone. Code that
depends on an ephemeral node, such as a broker's registration, checks `alive_until` and `session_id` first, because a
disconnected session expires before the client is notified.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from odradek.model import OdradekError

ANY_VERSION = -1
STUCK_SESSIONS: Final = 2
"""An event loop that has not turned for so many session time-outs is stuck: its session is no longer renewed."""


class Node(NamedTuple):
    """A node as read. `owner` is an ephemeral node's session id, else 0.

    `created` is the increasing number of the transaction that created the node.
    """

    data: bytes
    version: int
    owner: int
    created: int


class StoreError(OdradekError):
    """The store refused an operation on `path`."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class NodeExists(StoreError):
    """The node to create exists."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} exists")


class NoNode(StoreError):
    """The node does not exist, or the parent of a node to create does not."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class BadVersion(StoreError):
    """The node has another version than the operation requires."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, f"the node {path} has version {actual}, not {expected}")


class NotEmpty(StoreError):
    """The node to delete has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} has children")


class NoChildrenForEphemerals(StoreError):
    """The parent of the node to create is ephemeral."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} is ephemeral and can't have children")


class SessionExpired(StoreError):
    """The session expired with its ephemeral nodes, and a new one began; the operation was not done."""

    retriable = True

    def __init__(self) -> None:
        super().__init__("/", "the session with the metadata tree expired")


class Create(Struct, frozen=True, kw_only=True):
    """Creates a node; the result is its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetData(Struct, frozen=True, kw_only=True):
    """Replaces a node's data; the result is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(Struct, frozen=True, kw_only=True):
    """Deletes a node without children; the result is None."""

    path: str
    version: int = ANY_VERSION


class Check(Struct, frozen=True, kw_only=True):
    """Checks that a node exists with this version; the result is None."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | int | None


class Watch(Protocol):
    """A watch, active until `cancel`."""

    def cancel(self) -> None:
        """Stop calling the callback, also for changes that already happened."""


class Reader(Protocol):
    """Read access to the tree. Every call may raise `UnavailableError` or `StorageError`."""

    async def get(self, path: str) -> Node | None: ...

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """Return the nodes in the order of `paths`, in few round trips; not atomically."""

    async def children(self, path: str) -> list[str]:
        """Return the sorted names of the node's children. Raises `NoNode` for a missing node."""

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` when the node is created, set or deleted; the node need not exist."""

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call `callback` when a child of the node is created or deleted."""

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes, and cancel its watches. Idempotent."""


class Store(Reader, Protocol):
    """One client of the tree. Every call may raise `SessionExpired`, `UnavailableError` or `StorageError`."""

    @property
    def session_id(self) -> int:
        """The id of the current session, as in `Node.owner`; changes before `on_session_lost` callbacks run."""

    @property
    def alive_until(self) -> float:
        """The monotonic time in seconds before which the session cannot expire; advances while connected."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node and return its path. Raises `NodeExists`, `NoNode`, `NoChildrenForEphemerals`."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace the data and return the new version. Raises `NoNode`, `BadVersion`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises `NoNode`, `BadVersion`, `NotEmpty`."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in order, or none; raise the error of the first that fails."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` after a session expired and a new one began; all watches stay, and call their callbacks."""

    def abandon(self) -> None:
        """End like a killed process, for tests: the session's nodes stay until it expires."""


class SingleOperations(ABC):
    """Implements create, set and delete by `multi` with one operation."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in order, or none."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        results = await self.multi([Create(path=path, data=data, ephemeral=ephemeral, sequence=sequence)])
        return str(results[0])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        results = await self.multi([SetData(path=path, data=data, version=version)])
        return int(results[0] or 0)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path=path, version=version)])
