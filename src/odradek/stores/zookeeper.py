"""The tree in a ZooKeeper ensemble, through kazoo: for clusters of several machines.

kazoo's threads run the connection; their callbacks are passed to the event loop, which owns a store's state. A read is
repeated after a lost connection; a write is not, because it may have been done.

ZooKeeper's watches are one-shot: each is set again before its callbacks run, so no change is missed. Callbacks of one
path share one watch.

```
connected ──► suspended ──► connected      same session: all watches are set again and fired, for missed changes
                        └─► expired ──► connected      new session: the same, and `on_session_lost` callbacks run
```
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.states import EventType
from kazoo.retry import ForceRetryError, KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata.paths import parent
from odradek.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionExpired,
    SetData,
    SingleOperations,
    Watch,
)
from odradek.model import AuthenticationError, StorageError, UnavailableError
from odradek.runtime import Runtime
from odradek.stores.semantics import ROOT, Change, check_path
from odradek.stores.watches import Watches
from odradek.stores.zookeeper_heartbeat import Heartbeat
from odradek.stores.zookeeper_security import ZookeeperSecurity

_WARN_AFTER_S: Final = 1.0
_LOST_CONNECTION: Final = (kazoo.ConnectionLoss, kazoo.ConnectionClosedError, kazoo.OperationTimeoutError)
_DENIED: Final = (kazoo.NoAuthError, kazoo.SessionClosedRequireSaslError)
_log = logging.getLogger("odradek.stores")
_MIN_CONNECT_S: Final = 2.0
"""The minimum for any number of servers: a busy server takes a moment to answer."""
_MAX_CONNECT_S: Final = 5.0
"""The maximum for any session time-out: a healthy server answers within it."""


class ZookeeperStore(SingleOperations):
    """One session with the tree below `chroot` of the ensemble `hosts` ("host:port,host:port").

    The first call connects and, unless the tree `must_exist`, creates a missing chroot. A call raises
    `UnavailableError` after `connection_timeout_ms` (None: the session time-out) without a connection, a write also if
    it loses its connection, and `AuthenticationError` if the servers refuse TLS or the login of `keys`.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        runtime: Runtime,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int | None = None,
        reads_only: bool = False,
        must_exist: bool = False,
        keys: ZookeeperKeys | None = None,
    ) -> None:
        self._security = ZookeeperSecurity(keys or ZookeeperKeys())
        self._reads_only = reads_only
        self._must_exist = must_exist or reads_only
        self._hosts = hosts
        self._chroot = chroot
        self._clock = runtime.clock
        self._connection_timeout_s = (connection_timeout_ms or session_timeout_ms) / 1000
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=2.0, max_jitter=0.5),
            logger=_quiet_logger(),
            auth_data=self._security.auth_data,
        )
        self._security.secure(self._client, lambda reason: self._call_soon(self._refuse, reason))
        limit_connect_time(self._client)
        retry_unexpected_errors(self._client)
        drop_late_connections(self._client)
        self._client.add_listener(self._state_changed)
        self._heartbeat = Heartbeat(self._client, runtime)
        self._watches = Watches()
        self._armed_data: set[str] = set()
        self._armed_children: set[str] = set()
        self._lost: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session = 0
        self._is_connected = asyncio.Event()
        self._refusal: str | None = None
        self._has_chroot = False
        self._has_warned = False
        self._closed = False

    @property
    def session_id(self) -> int:
        """The session's id, 0 before the first connection."""
        return self._session

    @property
    def alive_until(self) -> float:
        return self._heartbeat.alive_until(self._session)

    # ---- operations ---------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = [check_path(path) for path in paths]
        return list(await asyncio.gather(*(self._get(path) for path in wanted)))

    async def _get(self, path: str) -> Node | None:
        try:
            data, stat = await self._read(lambda: self._client.get_async(path))
        except kazoo.NoNodeError:
            return None
        except _DENIED:
            raise self._denied(path) from None
        return Node(data, stat.version, stat.ephemeralOwner, stat.czxid)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        try:
            return sorted(await self._read(lambda: self._client.get_children_async(path)))
        except kazoo.NoNodeError:
            raise NoNode(path) from None
        except _DENIED:
            raise self._denied(path) from None

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for operation in operations:
            check_path(operation.path)
            if isinstance(operation, Delete) and operation.path == ROOT:
                raise NotEmpty(ROOT)
        if not operations:
            return []
        await self._connected()
        sent, session = self._clock.monotonic(), self._session
        results = await self._attempt(lambda: self._transaction(operations).commit_async())
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, kazoo.RolledBackError | kazoo.RuntimeInconsistency
            ):
                raise await self._store_error(operation, result)
        if session == self._session:
            self._heartbeat.confirm(session, sent)
        return [self._result(operation, result) for operation, result in zip(operations, results, strict=True)]

    async def set_acl(self, path: str, *, is_open: bool) -> None:
        """Give a node the ACL that a new node would get, or everyone's; nothing if the node is gone."""
        acl = self._security.acl(path)
        try:
            await self._read(lambda: self._client.set_acls_async(path, OPEN_ACL_UNSAFE if is_open or not acl else acl))
        except kazoo.NoNodeError:
            return
        except _DENIED:
            raise self._denied(path) from None

    def _transaction(self, operations: Sequence[Operation]) -> Any:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create():
                    transaction.create(
                        operation.path,
                        bytes(operation.data),
                        acl=self._security.acl(operation.path),
                        ephemeral=operation.ephemeral,
                        sequence=operation.sequence,
                    )
                case SetData():
                    transaction.set_data(operation.path, bytes(operation.data), operation.version)
                case Delete():
                    transaction.delete(operation.path, operation.version)
                case Check():
                    transaction.check(operation.path, operation.version)
        return transaction

    def _result(self, operation: Operation, result: Any) -> Result:
        match operation:
            case Create():
                return str(self._client.unchroot(result))
            case SetData():
                return int(result.version)
        return None

    async def _store_error(self, operation: Operation, error: Exception) -> Exception:
        """Return the `Store` error for kazoo's error of an operation."""
        path = operation.path
        match error:
            case kazoo.NodeExistsError():
                return NodeExists(path)
            case kazoo.NoNodeError():
                return NoNode(parent(path) if isinstance(operation, Create) else path)
            case kazoo.NotEmptyError():
                return NotEmpty(path)
            case kazoo.NoChildrenForEphemeralsError():
                return NoChildrenForEphemerals(parent(path))
            case kazoo.BadVersionError() if not isinstance(operation, Create):
                # kazoo's error lacks the actual version: read it for the message.
                node = await self.get(path)
                return NoNode(path) if node is None else BadVersion(path, operation.version, node.version)
        if isinstance(error, _DENIED):
            return self._denied(path)
        return StorageError(f"ZooKeeper refused an operation on {path}: {_describe(error)}")

    def _denied(self, path: str) -> StorageError:
        return self._security.denied(f"{self._chroot}{path}", self._hosts)

    # ---- watches ------------------------------------------------------------------------------------------------

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        watch = self._watches.add_data(check_path(path), callback)
        self._start()
        if self._is_connected.is_set():
            self._arm_data(path)
        return watch

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        watch = self._watches.add_children(check_path(path), callback)
        self._start()
        if self._is_connected.is_set():
            self._arm_children(path)
        return watch

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._lost.append(callback)

    def _arm_data(self, path: str) -> None:
        if path not in self._armed_data:
            self._armed_data.add(path)
            self._client.exists_async(path, watch=lambda event: self._call_soon(self._data_changed, path, event.type))

    def _arm_children(self, path: str) -> None:
        """Set a child watch, or for a missing node a watch of its creation."""
        if path not in self._armed_children:
            self._armed_children.add(path)
            result = self._client.get_children_async(
                path, watch=lambda event: self._call_soon(self._children_changed, path, event.type)
            )
            result.rawlink(lambda done: self._call_soon(self._children_armed, path, done.exception))

    def _data_changed(self, path: str, event_type: str) -> None:
        self._armed_data.discard(path)
        if event_type != "NONE":
            if self._watches.has_data(path):
                self._arm_data(path)
            self._watches.fire([Change(path, existence=False)])

    def _children_changed(self, path: str, event_type: str) -> None:
        self._armed_children.discard(path)
        if event_type != "NONE" and self._watches.has_children(path):
            self._arm_children(path)
            self._watches.fire_children(path)

    def _children_armed(self, path: str, error: Exception | None) -> None:
        if isinstance(error, kazoo.NoNodeError):
            result = self._client.exists_async(
                path, watch=lambda event: self._call_soon(self._children_changed, path, event.type)
            )
            result.rawlink(lambda done: self._call_soon(self._creation_watched, path, done))
        elif error is not None:
            self._armed_children.discard(path)

    def _creation_watched(self, path: str, result: Any) -> None:
        """Fire if the node was created before its creation was watched."""
        if result.successful() and result.get_nowait() is not None:
            self._children_changed(path, EventType.CREATED)

    # ---- the session --------------------------------------------------------------------------------------------

    async def close(self) -> None:
        if not self._closed:
            self._end()
            if self._loop is not None:
                try:
                    await asyncio.to_thread(self._stop_client)
                except RuntimeError as error:
                    _log.warning("Failed to close the session with ZooKeeper; it expires after its time-out: %s", error)
                    self._drop_client()

    def abandon(self) -> None:
        """Close without ending the session, which the ensemble expires after its time-out."""
        if self._closed:
            return
        self._end()
        if self._loop is not None:
            threading.Thread(target=self._drop_client, name="dropping ZooKeeper", daemon=True).start()

    def _end(self) -> None:
        self._closed = True
        self._watches.clear()
        self._lost.clear()
        self._heartbeat.stop()

    def _stop_client(self) -> None:
        if not self._client.connected:
            # The session cannot be ended without a connection; kazoo would wait a session time-out for one.
            self._drop_client()
            return
        self._client.stop()
        self._client.close()

    def _drop_client(self) -> None:
        """Close the connection without ending the session: kazoo sees a lost connection of a stopped client."""
        self._client._stopped.set()
        with suppress(OSError, AttributeError):  # there is no connection
            self._client._connection._socket.shutdown(socket.SHUT_RDWR)
        self._client._safe_close()
        self._client.close()

    def _start(self) -> None:
        if self._closed:
            raise StorageError("the metadata store is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._client.start_async()

    async def _connected(self) -> None:
        """Connect and enter the chroot. Raises `UnavailableError` if that fails, `SessionExpired` for a new session."""
        self._start()
        session = self._session
        if not self._is_connected.is_set():
            await self._wait_for_connection()
        self._update_session()
        if session not in (0, self._session):
            raise SessionExpired
        if not self._has_chroot:
            await (self._find_chroot() if self._must_exist else self._make_chroot())

    async def _make_chroot(self) -> None:
        parts = self._chroot.split("/")
        for path in ("/".join(parts[:count]) for count in range(2, len(parts) + 1)):
            acl = self._security.acl(path)
            try:
                # A node that is there may be in one that this login may not change.
                if await self._attempt(lambda path=path: self._client.exists_async(path)) is None:  # type: ignore[misc]
                    await self._attempt(lambda path=path, acl=acl: self._client.create_async(path, acl=acl))  # type: ignore[misc]
            except kazoo.NodeExistsError:
                continue
            except _DENIED:
                raise self._denied("") from None
        self._enter_chroot()

    async def _wait_for_connection(self) -> None:
        """Wait for a connection, else raise `UnavailableError`. Before the first one, warn after `_WARN_AFTER_S`."""
        assert self._loop is not None, "there is a loop as soon as there is a client"
        warning = self._loop.call_later(_WARN_AFTER_S, self._warn)
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                while not self._is_connected.is_set():
                    if self._refusal is not None:
                        raise AuthenticationError(self._refusal)
                    await self._is_connected.wait()
        except TimeoutError:
            raise UnavailableError(f"no ZooKeeper server answers at {self._hosts}") from None
        finally:
            warning.cancel()

    def _warn(self) -> None:
        if not (self._session or self._has_warned):
            self._has_warned = True
            _log.warning(
                "no ZooKeeper server answers at %s yet; waiting for %.0f s", self._hosts, self._connection_timeout_s
            )

    async def _find_chroot(self) -> None:
        """Enter the chroot. Raises `StorageError` if it does not exist."""
        if self._chroot and await self._attempt(lambda: self._client.exists_async(self._chroot)) is None:
            raise StorageError(f"ZooKeeper at {self._hosts} has no node {self._chroot}")
        self._enter_chroot()

    def _enter_chroot(self) -> None:
        """Restrict the client to the chroot and set all watches."""
        if not self._has_chroot:
            self._has_chroot = True
            self._client.chroot = self._chroot
            self._arm_all()

    async def _read(self, start: Callable[[], Any]) -> Any:
        while True:
            await self._connected()
            try:
                return await self._await(start())
            except _LOST_CONNECTION:
                # Let the callback of the lost connection run, so that `_connected` waits for a new one.
                await asyncio.sleep(0)
                continue
            except kazoo.SessionExpiredError:
                raise SessionExpired from None

    async def _attempt(self, start: Callable[[], Any]) -> Any:
        """Run an operation once. Raises `UnavailableError` without a connection, `SessionExpired` without a session."""
        try:
            return await self._await(start())
        except _LOST_CONNECTION:
            raise UnavailableError(
                f"the connection to ZooKeeper at {self._hosts} was lost; the change may have been made or not"
            ) from None
        except kazoo.SessionExpiredError:
            raise SessionExpired from None

    async def _await(self, result: Any) -> Any:
        """Wait for a kazoo result, which one of its threads sets."""
        assert self._loop is not None, "there is a loop as soon as there is a client"
        outcome: asyncio.Future[None] = self._loop.create_future()

        def finish() -> None:
            if not outcome.done():
                outcome.set_result(None)

        result.rawlink(lambda _: self._call_soon(finish))
        await outcome
        return result.get_nowait()

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """Call `function` on the event loop, from kazoo's threads."""
        assert self._loop is not None, "there is a loop as soon as there is a client"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def _state_changed(self, state: str) -> None:
        """Pass on kazoo's connection state, from its thread."""
        self._call_soon(self._connection_changed, state == KazooState.CONNECTED)

    def _refuse(self, reason: str) -> None:
        """End the calls that wait for a connection, and all later ones."""
        self._refusal = reason
        self._is_connected.set()  # wakes those that wait
        self._is_connected.clear()

    def _connection_changed(self, is_connected: bool) -> None:  # noqa: FBT001
        if self._closed:
            return
        if not is_connected:
            if self._is_connected.is_set():
                _log.warning("the connection to ZooKeeper at %s is lost; looking for another", self._hosts)
            self._is_connected.clear()
            return
        self._is_connected.set()
        self._update_session()
        if not self._reads_only:
            self._heartbeat.start()
        if self._has_chroot:
            _log.info("connected to ZooKeeper at %s again", self._hosts)
            self._arm_all()
            self._watches.fire_all()

    def _update_session(self) -> None:
        """Update the session id; if it replaces another, fire all watches and call `on_session_lost` callbacks."""
        client_id = self._client.client_id
        if client_id is None or client_id[0] == self._session:
            return
        before, self._session = self._session, client_id[0]
        if before:
            _log.warning("the session with ZooKeeper at %s expired; a new one has begun", self._hosts)
            self._watches.fire_all()
            for callback in self._lost:
                asyncio.get_running_loop().call_soon(callback)

    def _arm_all(self) -> None:
        """Set every watch again, because ZooKeeper drops them with the connection."""
        self._armed_data.clear()
        self._armed_children.clear()
        for path in self._watches.data_paths():
            self._arm_data(path)
        for path in self._watches.children_paths():
            self._arm_children(path)


def _quiet_logger() -> logging.Logger:
    """Return a silent logger for kazoo, which logs every connection attempt."""
    logger = logging.getLogger("odradek.stores.kazoo")
    logger.setLevel(logging.CRITICAL)
    return logger


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def limit_connect_time(client: KazooClient) -> None:
    """Limit the time that `client` waits for a server to accept its connection and answer the first request.

    kazoo waits a whole session time-out for one server, so the session would expire if a machine is down, or if a
    starting server accepts the connection but never answers (as ZooKeeper's sometimes do).
    """
    share_s = client._session_timeout / 1000 / (len(client.hosts) + 1)
    share_s = min(max(share_s, _MIN_CONNECT_S), _MAX_CONNECT_S)
    create, invoke = client.handler.create_connection, client._connection._invoke

    def create_connection(*arguments: Any, timeout: float, **options: Any) -> Any:
        return create(*arguments, timeout=min(timeout, share_s), **options)

    def invoke_in_time(timeout: float, *request: Any, **options: Any) -> Any:
        return invoke(min(timeout, share_s), *request, **options)

    client.handler.create_connection = create_connection
    client._connection._invoke = invoke_in_time


def retry_unexpected_errors(client: KazooClient) -> None:
    """Make `client` reconnect after errors that would end kazoo's connection thread.

    An example is `getaddrinfo` failing at the process's limit of open files.
    """
    connect = client._connection._connect_loop

    def connect_with_retries(retry: KazooRetry) -> Any:
        try:
            return connect(retry)
        except ForceRetryError:
            raise
        except Exception as error:
            is_unforeseen = not isinstance(error, OSError)
            _log.error("the connection to ZooKeeper failed, looking for another: %s", error, exc_info=is_unforeseen)
            raise ForceRetryError("Reconnecting") from error

    client._connection._connect_loop = connect_with_retries


def drop_late_connections(client: KazooClient) -> None:
    """Make `client` drop a connection that is established after it was stopped.

    The client's thread would never end: stopping shuts down the socket, which does not exist while connecting.
    """
    connect = client._connection._connect

    def connect_unless_stopped(*server: Any) -> Any:
        timeouts = connect(*server)
        if client._stopped.is_set():
            raise ConnectionDropped("the client has been stopped")
        return timeouts

    client._connection._connect = connect_unless_stopped
