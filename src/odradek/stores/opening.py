"""Opens the metadata tree at a URL: in SQLite, ZooKeeper or memory."""

import logging
import os
import sqlite3
from typing import Final

from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata.store import Reader, Store, StoreError
from odradek.model import ConfigurationError, StorageError, address_text, packages_of, parse_server
from odradek.runtime import Runtime
from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.semantics import ROOT, check_path
from odradek.stores.sqlite import DEFAULT_SESSION_TIMEOUT_MS, SqliteStore
from odradek.stores.sqlite_reader import SqliteReader
from odradek.stores.sqlite_tree import SqliteTree

_log = logging.getLogger("odradek.stores")
_ZOOKEEPER_PORT: Final = 2181
READER_CONNECTION_TIMEOUT_MS: Final = 6_000
"""Shorter than a broker's, because a person waits for the command."""


def open_store(
    url: str,
    runtime: Runtime,
    *,
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
    connection_timeout_ms: int | None = None,
    must_exist: bool = False,
    zookeeper: ZookeeperKeys | None = None,
) -> Store:
    """Begin a session with the tree at `url`.

    `url` is `sqlite:///PATH` (four slashes: absolute), `zookeeper://HOST:PORT[,…]/CHROOT`, or `memory:`, a new tree. A
    session without contact keeps its ephemeral nodes for `session_timeout_ms`. A call waits `connection_timeout_ms`
    (None: the session time-out) for a ZooKeeper server. `zookeeper` has the keys of TLS and login. Raises
    `ConfigurationError` for another URL or without kazoo, `StorageError` if the file is not a tree or cannot be opened.
    A tree that `must_exist` is not created: `StorageError` without a file, or at the first call without the chroot.
    """
    if url == "memory:":
        return MemoryStore(MemoryTree())
    if (path := _sqlite_path(url)) is not None:
        if must_exist:
            SqliteTree(path, reads_only=True).close()
        if not url.startswith("sqlite:////"):
            _log.info("%s is relative to the working directory: the tree is in %s", url, path)
        return SqliteStore(path, runtime, session_timeout_ms=session_timeout_ms)
    return _zookeeper_store(url, runtime, session_timeout_ms, connection_timeout_ms, zookeeper, must_exist=must_exist)


def open_reader(
    url: str, runtime: Runtime, *, zookeeper: ZookeeperKeys | None = None, reads_once: bool = False
) -> Reader:
    """Open the tree at `url` for reading. Creates nothing, except a session in ZooKeeper, with the keys `zookeeper`.

    With `reads_once`, SQLite makes no file beside the tree's either, but later changes may not be seen.
    Raises `ConfigurationError` for `memory:`, an invalid URL or without kazoo, `StorageError` for an unreadable tree.
    """
    if (path := _sqlite_path(check_shared(url))) is None:
        limits = DEFAULT_SESSION_TIMEOUT_MS, READER_CONNECTION_TIMEOUT_MS
        return _zookeeper_store(url, runtime, *limits, zookeeper, reads_only=True)
    tree = SqliteTree(path, reads_only=True, reads_once=reads_once)
    try:
        reader = SqliteReader(tree, runtime.clock)
        tree.disable_busy_timeout()
    except sqlite3.Error as error:
        tree.close()
        raise StorageError(f"can't read the metadata database {path}: {error}") from None
    return reader


def check_url(url: str) -> str:
    """Return `url`. Raises `ConfigurationError` if it is the URL of no kind of tree."""
    if url != "memory:" and _sqlite_path(url) is None:
        parse_zookeeper_url(url)
    return url


def check_shared(url: str) -> str:
    """Return `url`. Raises `ConfigurationError` if it is not the URL of a tree that several processes can share."""
    if url == "memory:":
        raise ConfigurationError("several processes cannot share a tree in memory: use sqlite:///PATH")
    return check_url(url)


def parse_zookeeper_url(url: str) -> tuple[str, str]:
    """Parse `zookeeper://HOST[:PORT][,HOST[:PORT]…][/CHROOT]` into `(hosts, chroot)`; the chroot may be "".

    Raises `ConfigurationError` for another text.
    """
    if not url.startswith("zookeeper://"):
        raise ConfigurationError(
            f"the metadata URL must be sqlite:///PATH, zookeeper://HOST:PORT[,…]/CHROOT or memory:, not {url!r}"
        )
    servers, slash, chroot = url.removeprefix("zookeeper://").partition("/")
    hosts = []
    for server in servers.split(","):
        try:
            hosts.append(address_text(*parse_server(server, _ZOOKEEPER_PORT)))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{server!r} in {url} is not HOST or HOST:PORT of a ZooKeeper server: {error}"
            ) from None
    chroot = f"/{chroot.rstrip('/')}" if slash and chroot.rstrip("/") else ""
    try:
        check_path(chroot or ROOT)
    except StoreError:
        raise ConfigurationError(f"{chroot!r} in {url} is not a path of a ZooKeeper tree") from None
    return ",".join(hosts), chroot


def _sqlite_path(url: str) -> str | None:
    """Return the absolute path of the tree's file; None for another URL."""
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else ""
    return os.path.abspath(path) if path else None


def _zookeeper_store(
    url: str,
    runtime: Runtime,
    session_timeout_ms: int,
    connection_timeout_ms: int | None,
    keys: ZookeeperKeys | None,
    *,
    reads_only: bool = False,
    must_exist: bool = False,
) -> Store:
    hosts, chroot = parse_zookeeper_url(url)
    with packages_of("zookeeper", "trees in ZooKeeper"):
        from odradek.stores.zookeeper import ZookeeperStore
    return ZookeeperStore(
        hosts,
        chroot,
        runtime,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms,
        reads_only=reads_only,
        must_exist=must_exist,
        keys=keys,
    )
