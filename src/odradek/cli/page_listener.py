"""The listener of a broker that `serve --page` connects to, and the settings of its client."""

from typing import Any, Final

from msgspec import Struct

from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import ListenerSettings, listener_settings
from odradek.config.listeners import parse_listener
from odradek.model import ConfigurationError, SecurityProtocol, parse_host_port
from odradek.security import is_loopback

_PASSWORDS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms of a login with user and password."""


class PageListener(Struct, frozen=True, kw_only=True):
    """A listener by its name, the settings of the page's client for it, and whether each user has to log in."""

    name: str
    client: dict[str, Any]
    requires_login: bool = False

    def __repr__(self) -> str:
        """Return the listener without the password of its truststore."""
        return f"PageListener(name={self.name!r}, requires_login={self.requires_login})"


def page_listener(config: BrokerConfig, page: str, *, is_network_allowed: bool) -> PageListener:
    """Return the listener for a page at the address `page`. Raises `ConfigurationError` if there is none."""
    advertised = {parse_listener(text).name for text in config.advertised_listeners or config.listeners}
    listeners = [each for each in map(parse_listener, config.listeners) if each.name in advertised]
    settings = [listener_settings(config, each.name) for each in listeners]
    plain = [each.protocol is SecurityProtocol.PLAINTEXT for each in settings]
    # A plain listener for this machine alone is as open as the page.
    is_open = [plain[n] and (n == 0 or is_loopback(each.host)) for n, each in enumerate(listeners)]
    order = sorted(range(len(listeners)), key=lambda n: (not is_open[n], not settings[n].protocol.uses_sasl))
    found = next((each for n in order if (each := _usable(listeners[n].name, settings[n])) is not None), None)
    if found is None:
        raise ConfigurationError(
            f"--page cannot use the listeners {', '.join(each.name for each in listeners)}, which need a client "
            "certificate or a token: add a listener on 127.0.0.1, or run odradek page --command-config FILE"
        )
    host, _ = parse_host_port(page)
    if not is_loopback(host) and (found.requires_login or not is_network_allowed):
        raise ConfigurationError(
            f"the page at {page} could be used from other machines, and serve --page has neither TLS nor, for a "
            "listener without SASL, a login: listen on localhost, or run odradek page with TLS and a login"
            + ("" if found.requires_login else ", or add --allow-anonymous-network")
        )
    return found


def _usable(name: str, settings: ListenerSettings) -> PageListener | None:
    """Return the listener if a page can use it, otherwise None."""
    security, client = settings.security, dict[str, Any]()
    if settings.protocol.uses_tls:
        if settings.asks_for_certificate and security.ssl_client_auth == "required":
            return None
        client = _trust(settings)
    if not settings.protocol.uses_sasl:
        return PageListener(name=name, client=client)
    # Users of PLAIN are in the configuration, those of SCRAM in the metadata tree: there may be none of them.
    enabled = sorted(security.sasl_enabled_mechanisms, key=lambda each: (each not in settings.logins, each != "PLAIN"))
    mechanism = next((each for each in enabled if each in _PASSWORDS), None)
    if mechanism is None:
        return None
    client |= {"security_protocol": settings.protocol.value, "sasl_mechanism": mechanism}
    return PageListener(name=name, client=client, requires_login=True)


def _trust(settings: ListenerSettings) -> dict[str, Any]:
    """Return the settings of TLS that trust the broker: by its truststore, or else its own certificate chain."""
    keys = settings.security
    trust: dict[str, str | None] = {
        "ssl_truststore_location": keys.ssl_truststore_location,
        "ssl_truststore_certificates": keys.ssl_truststore_certificates,
        "ssl_truststore_password": keys.ssl_truststore_password,
    }
    if keys.ssl_truststore_location is None and keys.ssl_truststore_certificates is None:
        trust = {
            "ssl_truststore_location": keys.ssl_keystore_location,
            "ssl_truststore_certificates": keys.ssl_keystore_certificate_chain,
            "ssl_truststore_password": keys.ssl_keystore_password,
        }
    given = {name: value for name, value in trust.items() if value is not None}
    return {"security_protocol": settings.protocol.value, **given}
