"""Which store a URL means."""

from odradek.metadata.store import Store
from odradek.model import ConfigurationError
from odradek.runtime import Runtime
from odradek.stores.memory import MemoryStore, MemoryTree
from odradek.stores.sqlite import DEFAULT_SESSION_TIMEOUT_MS, SqliteStore


def open_store(url: str, runtime: Runtime, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> Store:
    """Begin a session with the tree at `url`.

    That is `sqlite:///PATH` (four slashes: absolute), `zookeeper://HOST:PORT[,…]/CHROOT`, or `memory:`, a new tree.
    `session_timeout_ms`: how long a silent session keeps its ephemeral nodes. Raises `ConfigurationError` for another
    URL, `StorageError` if the file is not a tree or cannot be had.
    """
    if url == "memory:":
        return MemoryStore(MemoryTree())
    if url.startswith("sqlite:///") and url != "sqlite:///":
        return SqliteStore(url.removeprefix("sqlite:///"), runtime, session_timeout_ms=session_timeout_ms)
    if url.startswith("zookeeper://"):
        return _zookeeper_store(url, runtime, session_timeout_ms)
    raise ConfigurationError(
        f"the metadata tree is sqlite:///PATH, zookeeper://HOST:PORT[,…]/CHROOT or memory:, not {url!r}"
    )


def _zookeeper_store(url: str, runtime: Runtime, session_timeout_ms: int) -> Store:
    try:
        from odradek.stores.zookeeper import ZookeeperStore, parse_zookeeper_url
    except ModuleNotFoundError:
        raise ConfigurationError("a tree in ZooKeeper needs kazoo: pip install 'odradek[zookeeper]'") from None
    hosts, chroot = parse_zookeeper_url(url)
    return ZookeeperStore(hosts, chroot, runtime, session_timeout_ms=session_timeout_ms)
