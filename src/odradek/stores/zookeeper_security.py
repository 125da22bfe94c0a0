"""TLS, the login and the ACLs of a session with ZooKeeper, by the keys `zookeeper.*`.

The login is ZooKeeper's scheme `digest`, or the client's certificate (scheme `x509`). ZooKeeper accepts every digest
login: a wrong password is another owner, to whom nodes with ACLs are closed.
"""

import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE

from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata import paths
from odradek.model import ConfigurationError, StorageError, address_text
from odradek.runtime.tls import TlsSettings, client_context

_SENSITIVE: Final = (paths.USER_CONFIGS, paths.BROKER_CONFIGS, paths.CLUSTER_SECRET)
"""Nodes with secrets, which only their creator may read. Kafka's third, of delegation tokens, does not exist here."""
_log = logging.getLogger("odradek.stores")


class ZookeeperSecurity:
    """The security of a session. Raises `ConfigurationError` if keys contradict each other or a file is unreadable."""

    def __init__(self, keys: ZookeeperKeys) -> None:
        _check(keys)
        self._keys = keys
        self.login = None if keys.zookeeper_digest_user is None else f"user {keys.zookeeper_digest_user!r}"
        if self.login is None and keys.zookeeper_ssl_keystore_location is not None:
            self.login = f"the certificate in {keys.zookeeper_ssl_keystore_location}"
        if keys.zookeeper_ssl_client_enable:
            self._context()  # raises the error of an unreadable file at once

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """The credentials that kazoo sends on each connection."""
        user = self._keys.zookeeper_digest_user
        return [] if user is None else [("digest", f"{user}:{self._keys.zookeeper_digest_password}")]

    def acl(self, path: str) -> list[ACL] | None:
        """Return the ACL of a new node, Kafka's `ZkData.defaultAcls`; None for everyone's."""
        if not self._keys.zookeeper_set_acl or path == paths.CONSUMERS:
            return None
        return list(CREATOR_ALL_ACL if path.startswith(_SENSITIVE) else CREATOR_ALL_ACL + READ_ACL_UNSAFE)

    def denied(self, path: str, hosts: str) -> StorageError:
        """Return the error for a node whose ACL, or a server whose rules, exclude this login."""
        advice = "check the login, and the ACL of the node"
        if self.login is None:
            advice = "set zookeeper.digest.user and zookeeper.digest.password"
        return StorageError(f"ZooKeeper at {hosts} denies {self.login or 'a client without login'} {path}: {advice}")

    def secure(self, client: KazooClient, refused: Callable[[str], None]) -> None:
        """Make `client` connect by TLS, if that is enabled.

        `refused` is called on kazoo's thread if, before the first connection, every server has refused TLS or the
        login. Later refusals are logged, and kazoo tries again.
        """
        if self._keys.zookeeper_ssl_client_enable:
            create = client.handler.create_connection

            def create_with_tls(*arguments: Any, hostname: str, timeout: float, **options: Any) -> Any:
                plain = create(*arguments, hostname=hostname, timeout=timeout, **options)
                plain.settimeout(timeout)
                return self._context().wrap_socket(plain, server_hostname=hostname)

            client.handler.create_connection = create_with_tls
        connect, refusing, was_connected = client._connection._connect, set[Any](), False

        def connect_and_report(*server: Any) -> Any:
            nonlocal was_connected
            try:
                timeouts = connect(*server)
            except Exception as error:
                reason = _refusal(error)
                if reason is None:
                    raise
                refusing.add((server[0], server[2]))
                text = f"ZooKeeper at {address_text(server[0], server[2])} refuses the connection: {reason}"
                if was_connected:
                    _log.error("%s", text)
                elif len(refusing) >= len(client.hosts):
                    refused(text)
                raise ConnectionDropped(text) from error  # kazoo would give up after an AuthFailedError
            was_connected = True
            return timeouts

        client._connection._connect = connect_and_report

    def _context(self) -> ssl.SSLContext:
        """Return the context of a connection, from the files as they are now."""
        keys = self._keys
        settings = TlsSettings(
            trusted_file=keys.zookeeper_ssl_truststore_location,
            trusted_password=keys.zookeeper_ssl_truststore_password,
            own_file=keys.zookeeper_ssl_keystore_location,
            own_password=keys.zookeeper_ssl_keystore_password,
            keys="zookeeper.ssl",
        )
        return client_context(settings, check_name=keys.zookeeper_ssl_endpoint_identification_algorithm != "")


def _check(keys: ZookeeperKeys) -> None:
    if (keys.zookeeper_digest_user is None) is not (keys.zookeeper_digest_password is None):
        raise ConfigurationError("zookeeper.digest.user and zookeeper.digest.password belong together: set both")
    if ":" in (keys.zookeeper_digest_user or ""):
        raise ConfigurationError("zookeeper.digest.user can't have a colon, which separates it from the password")
    stores = keys.zookeeper_ssl_keystore_location or keys.zookeeper_ssl_truststore_location
    if stores is not None and not keys.zookeeper_ssl_client_enable:
        raise ConfigurationError("zookeeper.ssl.*.location has no effect without zookeeper.ssl.client.enable=true")
    if keys.zookeeper_set_acl and keys.zookeeper_digest_user is keys.zookeeper_ssl_keystore_location is None:
        raise ConfigurationError(
            "zookeeper.set.acl is true, and without a login nodes have no owner: set zookeeper.digest.user and "
            "zookeeper.digest.password, or zookeeper.ssl.keystore.location"
        )


def _refusal(error: Exception) -> str | None:
    """Return why a server refuses TLS or the login; None for another error, such as a server that is not there."""
    if isinstance(error, AuthFailedError):
        return "the login was refused; check zookeeper.digest.user and zookeeper.digest.password"
    cause = error if isinstance(error, ssl.SSLError) else error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{cause.verify_message}; check zookeeper.ssl.truststore.location and the names in its certificate"
    if isinstance(cause, ssl.SSLError):
        return f"{cause.reason or cause}; check zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location"
    return None
