"""The interface of a store of the tree: ZooKeeper's operations for asyncio, with persistent watches.

    path        /a/b/c; a parent must exist, an ephemeral node has no children, names are not empty, "." or ".."
    version     of a node's data: 0 when created, +1 per set; an operation with another version fails; -1 matches any
    ephemeral   the node is deleted with the session that created it
    sequence    the store appends ten digits, the parent's next number, to the path

A watch is a callback without arguments, called on the event loop after the node changed at least once since the last
call. Several changes may cause one call, and a call may come without a change; the callback reads the node. A watch
stays until it is cancelled and is set before the session's next response, so that setting it and then reading misses
no change.

A store replaces an expired session by a new one; `on_session_lost` reports that all ephemeral nodes are gone. Code
that depends on an ephemeral node, as a broker on its registration, checks `alive_until` and `session_id` first, since
a disconnected session expires before it can be notified.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from odradek.model import OdradekError
from odradek.model.values import dataclass

ANY_VERSION = -1


class Node(NamedTuple):
    """A node as read. `owner`: an ephemeral node's session, else 0. `created`: a number that rises with time."""

    data: bytes
    version: int
    owner: int
    created: int


class StoreError(OdradekError):
    """An operation on `path` that the tree refused."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class NodeExists(StoreError):
    """A create of an existing node."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} exists")


class NoNode(StoreError):
    """A set, delete or check of a missing node, or a create below one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class BadVersion(StoreError):
    """An operation with another version than the node's."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, f"the node {path} has version {actual}, not {expected}")


class NotEmpty(StoreError):
    """A delete of a node with children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} has children")


class NoChildrenForEphemerals(StoreError):
    """A create below an ephemeral node."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} is ephemeral and can't have children")


class SessionExpired(StoreError):
    """The session and its ephemeral nodes are gone; the operation was not done. A new session has begun."""

    retriable = True

    def __init__(self) -> None:
        super().__init__("/", "the session with the metadata tree expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """The creation of a node; the result is its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """A replacement of a node's data; the result is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """The deletion of a node without children; the result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check that the node exists with this version; the result is None."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | int | None


class Watch(Protocol):
    """A watch, which stays until `cancel`."""

    def cancel(self) -> None:
        """Stop calling the callback, even for past changes."""


class Reader(Protocol):
    """Read access to a tree. Every call may raise `UnavailableError` or `StorageError`."""

    async def get(self, path: str) -> Node | None:
        """Return the node, None if there is none."""

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """Return nodes in the order of `paths`, in few round trips; not an atomic snapshot."""

    async def children(self, path: str) -> list[str]:
        """Return the names of the children, sorted. Raises `NoNode`."""

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when the node is created, set or deleted; it need not exist."""

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when a child is created or deleted."""

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes, and cancel its watches. Idempotent."""


class Store(Reader, Protocol):
    """One session with a tree. Every call may raise `SessionExpired`, `UnavailableError` or `StorageError`."""

    @property
    def session_id(self) -> int:
        """The session as in `Node.owner`; changes before `on_session_lost` callbacks run."""

    @property
    def alive_until(self) -> float:
        """The monotonic time in seconds until which the session certainly keeps its ephemeral nodes.

        It advances while the session is connected; once it is in the past, the session may have expired.
        """

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node and return its path.

        Raises `NodeExists`, `NoNode` for the parent, `NoChildrenForEphemerals`.
        """

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace the data and return the new version. Raises `NoNode`, `BadVersion`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises `NoNode`, `BadVersion`, `NotEmpty`."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Run all operations in order, or none: raise the error of the first that fails."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call back after a session expired and a new one began; watches stay, and all are fired."""

    def abandon(self) -> None:
        """End as a killed process does, for tests: the session stays in the tree until it expires."""


class SingleOperations(ABC):
    """Single operations as a `multi` of one."""

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
