"""The settings of a page."""

from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec import Struct, field

from odradek.metadata.store import Reader
from odradek.model import ConfigurationError, SecurityProtocol
from odradek.security import is_loopback
from odradek.values.value_formats import Show

_LOCAL: Final = "localhost:9092"
_SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class PageSettings(Struct, frozen=True, kw_only=True):
    """The settings of one page: `client` has the keyword arguments of `Admin` and the other clients."""

    client: Mapping[str, Any] = field(default_factory=dict)
    may_change: bool = True
    """Whether its users are operators, who may change the cluster, or viewers."""
    requires_login: bool = False
    """Whether each user logs in with SASL credentials of the cluster, which the page then uses for that user."""
    cluster: str = ""
    """The cluster's name on a page of several."""
    clusters: tuple[str, ...] = ()
    """The names of all clusters of the page."""
    host_names: tuple[str, ...] = ()
    """Names by which browsers may address the page, beside `localhost` and all IP addresses."""
    interval_s: float = 1.0
    """The time between two readings of what an open page shows."""

    masks: tuple[str, ...] = ()
    """Parts of messages that are hidden: names of fields, and `/REGEX/` for parts of texts."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """The formats of keys and values by `TOPIC.key` and `TOPIC.value`; others are guessed."""
    schemas: Mapping[str, Show] = field(default_factory=dict)
    """Formats with a schema, by the names that users choose."""
    pipelines: tuple[Path, ...] = ()
    """TOML files of pipelines, or directories with them, which the page shows."""
    open_tree: Callable[[], Reader] | None = None
    """Opens the cluster's metadata tree, which brokers do not serve; None if the page does not show it."""
    command_options: str | None = None
    """The options with which commands reach the cluster; by default those that `client` needs."""

    @property
    def bootstrap_servers(self) -> str:
        servers = self.client.get("bootstrap_servers", _LOCAL)
        return servers if isinstance(servers, str) else ",".join(servers)

    @property
    def options(self) -> str:
        """The end of each command on the page, with which it reaches the cluster."""
        given = self.command_options
        if given is None:
            given = "" if self.bootstrap_servers == _LOCAL else f"--bootstrap-server {quote(self.bootstrap_servers)}"
            if "security_protocol" in self.client:
                given += " --command-config FILE"
        return f" {given.strip()}".rstrip()

    def __repr__(self) -> str:
        return f"PageSettings(may_change={self.may_change}, requires_login={self.requires_login})"


def check_exposure(host: str, client: Mapping[str, Any], *, has_tls: bool, requires_login: bool) -> None:
    """Raise `ConfigurationError` if other machines reach the page without TLS and a login, or if no login is possible.

    The caller asks for a login on an address that other machines reach, unless its user allows anonymous ones.
    """
    if not is_loopback(host) and requires_login and not has_tls:
        raise ConfigurationError(
            f"{host or 'every interface'} can be reached from other machines, which would send passwords unencrypted: "
            "add --tls-certificate and --tls-key, listen on localhost, or add --allow-anonymous-network for a page "
            "without TLS and login"
        )
    if requires_login:
        protocol = str(client.get("security_protocol", "PLAINTEXT"))
        if not SecurityProtocol(protocol).uses_sasl:
            raise ConfigurationError(
                f"a login needs a cluster with SASL, and security.protocol is {protocol}: set it to SASL_SSL or "
                "SASL_PLAINTEXT in --command-config, or listen on localhost, where a page needs no login"
            )
        if client.get("sasl_mechanism") == "OAUTHBEARER":
            raise ConfigurationError(
                "a login has a user and a password, and sasl.mechanism is OAUTHBEARER: set PLAIN or SCRAM-SHA-512"
            )


def login_settings(client: Mapping[str, Any], user: str, password: str) -> list[dict[str, Any]]:
    """Return the client settings of a user who logs in, in place of the credentials of the page itself.

    They are those to try: users of SCRAM are in the metadata tree, those of PLAIN in the brokers' files. PLAIN, which
    sends the password, is tried last, and only if the page uses it itself, or TLS without a mechanism of its own.
    """
    kept = {name: value for name, value in client.items() if name != "sasl_jaas_config"}
    own = client.get("sasl_mechanism") or ("PLAIN" if client.get("security_protocol") == "SASL_SSL" else None)
    mechanisms = [*sorted(_SCRAM, key=lambda each: each != own), *(["PLAIN"] if own == "PLAIN" else [])]
    return [kept | {"sasl_mechanism": each, "sasl_username": user, "sasl_password": password} for each in mechanisms]
