"""Corrections to how kazoo connects: a time-out per server, retries, none after a stop.

kazoo waits a whole session time-out for one server, so the session expires if a machine is down, or if a starting
server accepts the connection but never answers (as ZooKeeper's sometimes do). Here every server gets a share of the
session time-out.
"""

import logging
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.retry import ForceRetryError, KazooRetry

_MIN_CONNECT_S: Final = 2.0
"""The minimum for any number of servers: a busy server takes a moment to answer."""
_MAX_CONNECT_S: Final = 5.0
"""The maximum for any session time-out: a healthy server answers within it."""
_log = logging.getLogger("odradek.stores")


def limit_connect_time(client: KazooClient) -> None:
    """Limit the time that `client` waits for a server to accept its connection and answer the first request."""
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
