"""Keys of connections to ZooKeeper, which brokers, commands and consumers of generation 1 share.

| key | Kafka | here | why |
|---|---|---|---|
| `zookeeper.digest.user`, `.password` | SASL, by a JAAS file | ZooKeeper's scheme `digest` | SASL needs a package |
| `zookeeper.ssl.*.type` | the file's format | the file's content decides | PEM needs no key |
| `zookeeper.set.acl` | needs SASL or a keystore | needs the user or a keystore | without them, nodes have no owner |
"""

from dataclasses import dataclass

from odradek.config.definition import boolean, password, text
from odradek.config.security import STORES
from odradek.model import ConfigurationError


def tree_url(zookeeper_connect: object) -> str:
    """Return the URL of a tree; `HOST:PORT[,…]/CHROOT` is one of ZooKeeper. Raises `ConfigurationError`."""
    if not isinstance(zookeeper_connect, str):
        raise ConfigurationError(f"zookeeper_connect is the URL of a tree in a string, not {zookeeper_connect!r}")
    return zookeeper_connect if ":/" in zookeeper_connect else f"zookeeper://{zookeeper_connect}"


@dataclass(frozen=True, kw_only=True)
class ZookeeperKeys:
    """The address, and keys of TLS, login and ACLs. Not slotted, so that a slotted class of settings can inherit it."""

    zookeeper_connect: str | None = text(
        "zookeeper.connect", None, "HOST:PORT[,…]/CHROOT of the metadata tree, or its URL.", nullable=True
    )
    zookeeper_ssl_client_enable: bool = boolean(
        "zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper use TLS."
    )
    zookeeper_ssl_truststore_location: str | None = text(
        "zookeeper.ssl.truststore.location",
        None,
        "The certificates that sign those of ZooKeeper's servers; the system's if unset.",
        nullable=True,
    )
    zookeeper_ssl_truststore_password: str | None = password(
        "zookeeper.ssl.truststore.password", "The password of a PKCS12 file."
    )
    zookeeper_ssl_truststore_type: str = text(
        "zookeeper.ssl.truststore.type", "PEM", "Not needed: the file shows it.", choices=STORES
    )
    zookeeper_ssl_keystore_location: str | None = text(
        "zookeeper.ssl.keystore.location",
        None,
        "The private key and certificate chain that ZooKeeper is shown.",
        nullable=True,
    )
    zookeeper_ssl_keystore_password: str | None = password(
        "zookeeper.ssl.keystore.password", "The password of a PKCS12 file, or of the private key in a PEM file."
    )
    zookeeper_ssl_keystore_type: str = text(
        "zookeeper.ssl.keystore.type", "PEM", "Not needed: the file shows it.", choices=STORES
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = text(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: a server's certificate must have the name that is connected to; empty: any name.",
        choices=("https", "HTTPS", ""),
    )
    zookeeper_digest_user: str | None = text(
        "zookeeper.digest.user", None, "The user that logs in to ZooKeeper.", nullable=True
    )
    zookeeper_digest_password: str | None = password("zookeeper.digest.password", "The password of this user.")
    zookeeper_set_acl: bool = boolean(
        "zookeeper.set.acl", False, "Whether nodes that are created may only be changed by the same login."
    )
