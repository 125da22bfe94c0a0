"""How long one server of an ensemble may take to let a client in.

kazoo waits a whole session for it, and that session is over when a machine is gone without a word, or when a server
takes the connection while it starts and never answers (ZooKeeper does now and then). Here every server gets its share
of the session, so that each can be tried before it ends. And it never ends looking for one.
"""

import logging
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.retry import ForceRetryError, KazooRetry

_SHORTEST_S: Final = 2.0
"""However many servers there are: one that is busy lets nobody in at once."""
_LONGEST_S: Final = 5.0
"""However long the session is: a server that lives answers by then, and one that does not is asked again."""
_log = logging.getLogger("odradek.stores")


def limit_patience(client: KazooClient) -> None:
    """Have `client` give up a server that neither takes its connection nor answers its first request in time."""
    share_s = client._session_timeout / 1000 / (len(client.hosts) + 1)
    share_s = min(max(share_s, _SHORTEST_S), _LONGEST_S)
    create, invoke = client.handler.create_connection, client._connection._invoke

    def create_connection(*arguments: Any, timeout: float, **options: Any) -> Any:
        return create(*arguments, timeout=min(timeout, share_s), **options)

    def invoke_in_time(timeout: float, *request: Any) -> Any:
        return invoke(min(timeout, share_s), *request)

    client.handler.create_connection = create_connection
    client._connection._invoke = invoke_in_time


def keep_connecting(client: KazooClient) -> None:
    """Have `client` take what kazoo does not foresee for a lost connection: its thread would end at it, for good.

    That is, for one, what `getaddrinfo` raises when no more files can be opened.
    """
    connect = client._connection._connect_loop

    def connect_in_any_case(retry: KazooRetry) -> Any:
        try:
            return connect(retry)
        except ForceRetryError:
            raise
        except Exception as error:
            _log.exception("the connection to ZooKeeper failed; looking for another")
            raise ForceRetryError("Reconnecting") from error

    client._connection._connect_loop = connect_in_any_case


def refuse_late_connections(client: KazooClient) -> None:
    """Have `client` drop a connection that is made after it was stopped: its thread would keep it, and never end.

    Stopping shuts the connection that there is; one that is being made then has no socket yet that could be shut.
    """
    connect = client._connection._connect

    def connect_unless_stopped(*server: Any) -> Any:
        timeouts = connect(*server)
        if client._stopped.is_set():
            raise ConnectionDropped("the client has been stopped")
        return timeouts

    client._connection._connect = connect_unless_stopped
