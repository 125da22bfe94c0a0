"""The settings of one listener: its security protocol, and the broker's keys with those of `listener.name.NAME.KEY`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from odradek.config.definition import definitions, unknown_key
from odradek.config.listeners import parse_listener, parse_protocol_map
from odradek.config.security import MECHANISMS, ListenerSecurity
from odradek.config.unimplemented_keys import unimplemented_keys
from odradek.model import ConfigurationError, SecurityProtocol

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

PREFIX: Final = "listener.name."
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "oauthbearer.sasl.server.callback.handler.class"
_VALIDATOR: Final = "OAuthBearerValidatorCallbackHandler"
"""Kafka's class that checks signed tokens, which is what brokers do here without this key."""


class ListenerSettings(Struct, frozen=True, kw_only=True):
    """One listener's settings."""

    name: str
    protocol: SecurityProtocol
    security: ListenerSecurity
    logins: Mapping[str, str]
    """The listener's `sasl.jaas.config` of each enabled mechanism that has one."""
    asks_for_certificate: bool
    """Whether `ssl.client.auth` holds. With SASL the broker's own key does not, only the listener's (KIP-684)."""

    def __repr__(self) -> str:
        return f"ListenerSettings(name={self.name!r}, protocol={self.protocol.value}, logins={sorted(self.logins)})"

    @property
    def authenticates(self) -> bool:
        """Whether no client is anonymous."""
        has_certificate = self.protocol.uses_tls and self.asks_for_certificate
        return self.protocol.uses_sasl or (has_certificate and self.security.ssl_client_auth == "required")


def listener_settings(config: "BrokerConfig", name: str) -> ListenerSettings:
    """Return the settings of the listener `name`. Raises `ConfigurationError` if they are invalid."""
    protocol = parse_protocol_map(config.listener_security_protocol_map).get(name)
    if protocol is None:
        raise ConfigurationError(
            f"the listener {name} has no security protocol: add {name}:PLAINTEXT, or another protocol, to "
            "listener.security.protocol.map"
        )
    known, values, logins = definitions(ListenerSecurity), _values(config), {}
    prefix = f"{PREFIX}{name.lower()}."
    for key, text in config.listener_overrides.items():
        if not key.startswith(prefix):
            continue
        own = key.removeprefix(prefix)
        if own in known:
            values[known[own].attribute] = known[own].parse(text)
        elif own.endswith(f".{_JAAS}"):
            logins[own.removesuffix(f".{_JAAS}").upper()] = text
    security = ListenerSecurity(**values)  # type: ignore[arg-type]
    if security.sasl_jaas_config is not None:
        logins = dict.fromkeys(security.sasl_enabled_mechanisms, security.sasl_jaas_config) | logins
    if protocol.uses_sasl and not security.sasl_enabled_mechanisms:
        raise ConfigurationError(
            f"the listener {name} is {protocol.value} and no mechanism is enabled: set sasl.enabled.mechanisms to "
            f"some of {', '.join(MECHANISMS)}"
        )
    has_own_key = f"{prefix}ssl.client.auth" in config.listener_overrides
    return ListenerSettings(
        name=name,
        protocol=protocol,
        security=security,
        logins=logins,
        asks_for_certificate=has_own_key or not protocol.uses_sasl,
    )


def inter_broker_listener(config: "BrokerConfig") -> str:
    """Return the name of the listener that brokers use for each other.

    It is `inter.broker.listener.name`; without it the first listener of `security.inter.broker.protocol`; and if no key
    names a protocol, the first listener.
    """
    names = [parse_listener(text).name for text in config.advertised_listeners or config.listeners]
    protocols = parse_protocol_map(config.listener_security_protocol_map)
    if config.inter_broker_listener_name is not None:
        wanted = config.inter_broker_listener_name.upper()
        if wanted not in names:
            raise ConfigurationError(
                f"inter.broker.listener.name is {wanted}, which is not an advertised listener: {', '.join(names)}"
            )
        return wanted
    if not config.is_explicit("security.inter.broker.protocol"):
        return names[0]
    wanted = config.security_inter_broker_protocol
    for name in names:
        if protocols[name].value == wanted:
            return name
    raise ConfigurationError(f"security.inter.broker.protocol is {wanted}, and no advertised listener has it")


def check_listener_keys(overrides: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a key `listener.name.NAME.KEY` whose KEY is unknown or has an invalid value."""
    known = definitions(ListenerSecurity)
    for name, text in overrides.items():
        _, _, key = name.removeprefix(PREFIX).partition(".")
        mechanism = key.removesuffix(f".{_JAAS}").upper()
        if key in known:
            known[key].parse(text)
        elif key == _HANDLER:
            if text.rpartition(".")[2] != _VALIDATOR:
                raise ConfigurationError(f"{name} can only be Kafka's {_VALIDATOR}: unsigned tokens are not accepted")
        elif key.startswith("ssl.") and key in unimplemented_keys():
            unimplemented_keys()[key].definition.parse(text)
        elif not key.endswith(f".{_JAAS}") or mechanism not in MECHANISMS:
            raise unknown_key(name, [f"{PREFIX}NAME.{each}" for each in known])


def _values(config: "BrokerConfig") -> dict[str, object]:
    return {each.name: getattr(config, each.name) for each in fields(ListenerSecurity)}
