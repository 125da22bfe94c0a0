"""The security of a broker's listeners, and of its connections to other brokers, from its configuration."""

import ssl
from collections.abc import Callable, Mapping
from functools import partial

from odradek.broker.security.json_web_keys import JsonWebKeys
from odradek.broker.security.scram_users import ScramUsers
from odradek.broker.security.session_authentication import NewSaslServer
from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import ListenerSettings, inter_broker_listener, listener_settings
from odradek.model import AuthenticationError, ConfigurationError
from odradek.runtime import Runtime
from odradek.runtime.tls import ServerTls
from odradek.security import ANONYMOUS, Principal, distinguished_name, principal_mapping
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.sasl.json_web_tokens import JsonWebTokenValidator
from odradek.security.sasl.oauthbearer import OauthBearerServer
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramServer
from odradek.wire.client_authentication import ClientSecurity
from odradek.wire.client_security import client_tls, password_login, tls_settings


class ListenerSecurity:
    """The security of one listener. Raises `ConfigurationError` if its keys are invalid or a file is unreadable.

    Before it checks tokens, `read_keys` has to be awaited.
    """

    def __init__(self, settings: ListenerSettings, runtime: Runtime, scram_users: ScramUsers) -> None:
        self.settings = settings
        self.tls: Callable[[], ssl.SSLContext] | None = None
        """Returns the TLS context of a new connection; None without TLS."""
        keys, protocol = settings.security, settings.protocol
        if protocol.uses_tls:
            client_auth = keys.ssl_client_auth if settings.asks_for_certificate else "none"
            self.tls = ServerTls(tls_settings(keys), runtime.clock.monotonic, client_auth=client_auth).context
        self._mapping = principal_mapping(keys.ssl_principal_mapping_rules)
        self._json_web_keys: JsonWebKeys | None = None
        self.sasl: Mapping[str, NewSaslServer] | None = None
        """Functions that make the server's side of each enabled mechanism; None without SASL."""
        if protocol.uses_sasl:
            self.sasl = {
                each: self._oauthbearer(runtime)
                if each == "OAUTHBEARER"
                else _new_server(each, settings, runtime, scram_users)
                for each in keys.sasl_enabled_mechanisms
            }

    def principal_of(self, certificate: bytes) -> Principal:
        """Return the principal of a client's certificate in DER; ANONYMOUS without one.

        Raises `AuthenticationError` if no rule of `ssl.principal.mapping.rules` matches the certificate's name.
        """
        if not certificate:
            return ANONYMOUS
        try:
            name = distinguished_name(certificate)
        except (ValueError, IndexError):
            raise AuthenticationError("Authentication failed: the client's certificate has no readable name") from None
        mapped = self._mapping(name)
        if mapped is None:
            raise AuthenticationError(
                f"Authentication failed: no rule of ssl.principal.mapping.rules matches {name!r} on the listener "
                f"{self.settings.name}"
            )
        return Principal("User", mapped)

    async def read_keys(self) -> None:
        """Read the keys that sign tokens, if the listener uses any. Raises `ConfigurationError` if it cannot."""
        if self._json_web_keys is not None:
            await self._json_web_keys.open()

    def close(self) -> None:
        if self._json_web_keys is not None:
            self._json_web_keys.close()

    def _oauthbearer(self, runtime: Runtime) -> NewSaslServer:
        keys = self.settings.security
        self._json_web_keys = JsonWebKeys(self.settings, runtime)
        validator = JsonWebTokenValidator(
            self._json_web_keys.find,
            runtime.clock.now_ms,
            audiences=keys.sasl_oauthbearer_expected_audience,
            issuer=keys.sasl_oauthbearer_expected_issuer,
            clock_skew_s=keys.sasl_oauthbearer_clock_skew_seconds,
            subject_claim=keys.sasl_oauthbearer_sub_claim_name,
            scope_claim=keys.sasl_oauthbearer_scope_claim_name,
        )
        return lambda: OauthBearerServer(validator.check)


def inter_broker_security(config: BrokerConfig, runtime: Runtime) -> ClientSecurity:
    """Return how this broker connects to other brokers. Raises `ConfigurationError`."""
    settings = listener_settings(config, inter_broker_listener(config))
    mechanism, login = config.sasl_mechanism_inter_broker_protocol, None
    if settings.protocol.uses_sasl:
        if mechanism not in settings.logins:
            raise ConfigurationError(
                f"brokers have no login for {mechanism} on the listener {settings.name}: set "
                f"listener.name.{settings.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
            )
        login = password_login(mechanism, parse_jaas(settings.logins[mechanism]).options, runtime.entropy)
    return ClientSecurity(tls=client_tls(settings.protocol, settings.security), login=login)


def _new_server(mechanism: str, settings: ListenerSettings, runtime: Runtime, scram_users: ScramUsers) -> NewSaslServer:
    """Return a function that makes the server's side of an exchange. Raises `ConfigurationError`."""
    if mechanism == "PLAIN":
        if mechanism not in settings.logins:
            raise ConfigurationError(
                f"PLAIN has no users on the listener {settings.name}: set listener.name.{settings.name.lower()}.plain."
                "sasl.jaas.config to org.apache.kafka.common.security.plain.PlainLoginModule required "
                'user_NAME="PASSWORD";'
            )
        users = parse_jaas(settings.logins[mechanism]).users
        return lambda: PlainServer(users)
    return lambda: ScramServer(
        mechanism,
        partial(scram_users.credential, mechanism),
        partial(scram_users.imagined, mechanism),
        nonce=runtime.entropy.randbytes(24).hex(),
    )
