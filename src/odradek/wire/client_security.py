"""The security of outgoing connections from the keys of TLS and SASL, for clients and for brokers."""

import ssl
from collections.abc import Mapping

from odradek.config.security import ConnectionSecurity
from odradek.model import ConfigurationError, SecurityProtocol
from odradek.runtime import Entropy
from odradek.runtime.tls import TlsSettings, client_context
from odradek.security.sasl.exchange import SaslClient
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram import ScramClient
from odradek.wire.client_authentication import Login


def tls_settings(keys: ConnectionSecurity) -> TlsSettings:
    return TlsSettings(
        trusted_file=keys.ssl_truststore_location,
        trusted=keys.ssl_truststore_certificates,
        trusted_password=keys.ssl_truststore_password,
        own_file=keys.ssl_keystore_location,
        own_chain=keys.ssl_keystore_certificate_chain,
        own_key=keys.ssl_keystore_key,
        own_password=keys.ssl_keystore_password,
        key_password=keys.ssl_key_password,
        versions=keys.ssl_enabled_protocols,
    )


def client_tls(protocol: SecurityProtocol, keys: ConnectionSecurity) -> ssl.SSLContext | None:
    """Return the context of a client's TLS, None if the protocol has none. Raises `ConfigurationError`."""
    if not protocol.uses_tls:
        return None
    return client_context(tls_settings(keys), check_name=keys.ssl_endpoint_identification_algorithm != "")


def password_login(mechanism: str, options: Mapping[str, str], entropy: Entropy) -> Login:
    """Return a login with the `username` and `password` of `options`, for PLAIN and SCRAM.

    Raises `ConfigurationError` if one is missing.
    """
    user, password = options.get("username"), options.get("password")
    if not user or password is None:
        missing = "password" if user else "username"
        raise ConfigurationError(
            f"{mechanism} needs a user name and a password: set sasl.username and sasl.password, or sasl.jaas.config "
            f"with both; the {missing} is missing"
        )

    async def begin() -> SaslClient:
        if mechanism == "PLAIN":
            return PlainClient(user, password)
        return ScramClient(mechanism, user, password, nonce=entropy.randbytes(24).hex())

    return begin
