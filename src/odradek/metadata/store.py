"""What a store of the tree can do: ZooKeeper's operations, in asyncio, with watches that stay.

    path        /a/b/c; a parent must exist, an ephemeral node has no children, names are not empty, "." or ".."
    version     of a node's data: 0 when created, +1 per set; an operation that names another one fails; -1 names none
    ephemeral   the node vanishes with the session that created it
    sequence    the store appends ten digits, the parent's next number, to the path

A watch is a callback without arguments, called on the event loop after the node changed at least once since the last
call: several changes may be one call, one call may be for nothing, and the callee reads what it needs. It stays until
it is cancelled, and holds from its session's next answer on: whoever sets it and then reads misses nothing.
A session that was lost is begun anew by the store itself; `on_session_lost` says that all ephemeral nodes are gone.
Whoever acts on an ephemeral node, as a broker on its registration, asks `alive_until` and `session_id` before it does:
a session that is out of touch is lost long before it hears of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from odradek.model import OdradekError
from odradek.model.values import dataclass

ANY_VERSION = -1


class Node(NamedTuple):
    """A node as it was read. `owner`: an ephemeral node's session, else 0. `created`: a number that rises with time."""

    data: bytes
    version: int
    owner: int
    created: int


class StoreError(OdradekError):
    """An operation that the tree refused; `path` says where."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class NodeExists(StoreError):
    """A create of what is there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the node {path} exists")


class NoNode(StoreError):
    """A set, delete or check of what is not there, or a create below it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"there is no node {path}")


class BadVersion(StoreError):
    """Somebody changed the node since it was read."""

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
    """The session was lost, and its ephemeral nodes with it; the operation was not done. A new session has begun."""

    retriable = True

    def __init__(self) -> None:
        super().__init__("/", "the session with the metadata tree expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create a node; the result is its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    """Replace a node's data; the result is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete a node without children; the result is `None`."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Fail unless the node is there with this version; the result is `None`."""

    path: str
    version: int = ANY_VERSION


Operation = Create | SetData | Delete | Check
Result = str | int | None


class Watch(Protocol):
    """A watch that stays until `cancel`."""

    def cancel(self) -> None:
        """Call no more, not even for changes that happened already."""


class Reader(Protocol):
    """Looks at a tree and changes nothing. Every call may raise `UnavailableError` or `StorageError`."""

    async def get(self, path: str) -> Node | None:
        """The node, or `None` if there is none."""

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        """Many nodes for the price of few round trips, in the order of `paths`; not one moment's picture."""

    async def children(self, path: str) -> list[str]:
        """Names of the nodes below, sorted. Raises `NoNode`."""

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when the node is created, set or deleted; it need not be there."""

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when a child is created or deleted."""

    async def close(self) -> None:
        """Look no more; a session ends, its ephemeral nodes go, its watches are called no more. Twice does no harm."""


class Store(Reader, Protocol):
    """One session with a tree. Every call may raise `SessionExpired`, `UnavailableError` or `StorageError`."""

    @property
    def session_id(self) -> int:
        """The session, as `Node.owner` shows it; another one after `on_session_lost`."""

    @property
    def alive_until(self) -> float:
        """Until when, in monotonic seconds, the session surely has its ephemeral nodes, whatever happens to it.

        It moves on as long as the session is in touch with the tree; what is past says that it may be dead by now.
        """

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node, return its path. Raises `NodeExists`, `NoNode` for the parent, `NoChildrenForEphemerals`."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace the data and return the new version. Raises `NoNode`, `BadVersion`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises `NoNode`, `BadVersion`, `NotEmpty`."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """All operations, in order, or none: the first that fails raises its error."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call back after a session expired and a new one began; watches stay, and all are called."""

    def abandon(self) -> None:
        """End as a killed process would, for tests that kill a broker: the tree learns nothing, others find out."""


class SingleOperations(ABC):
    """One operation is as good as a `multi` of one: what stores have in common."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """See `Store`."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False) -> str:
        """See `Store`."""
        results = await self.multi([Create(path=path, data=data, ephemeral=ephemeral, sequence=sequence)])
        return str(results[0])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See `Store`."""
        results = await self.multi([SetData(path=path, data=data, version=version)])
        return int(results[0] or 0)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Store`."""
        await self.multi([Delete(path=path, version=version)])
