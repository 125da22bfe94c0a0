"""Keys of TLS and SASL: those that clients and brokers share, and those that a broker has for each of its listeners.

| key | Kafka | here | why |
|---|---|---|---|
| `ssl.truststore.type`, `ssl.keystore.type` | the file's format | the file's content decides | PEM needs no key |
| `sasl.enabled.mechanisms` | `GSSAPI` | none | Kerberos is not supported, and each other mechanism needs users |
| `sasl.username`, `sasl.password` | – | as in librdkafka | shorter than `sasl.jaas.config`, which works, too |
"""

from dataclasses import dataclass
from typing import Final

from odradek.config.definition import integer, long, names, password, text
from odradek.model import SecurityProtocol

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms of clients and brokers."""
PROTOCOLS: Final = tuple(SecurityProtocol.__members__)
STORES: Final = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSecurity:
    """The keys of TLS and SASL that clients and listeners share."""

    ssl_truststore_location: str | None = text(
        "ssl.truststore.location", None, "A file with the certificates to trust; the system's if unset.", nullable=True
    )
    ssl_truststore_certificates: str | None = password(
        "ssl.truststore.certificates", "The certificates to trust, as PEM text."
    )
    ssl_truststore_password: str | None = password("ssl.truststore.password", "The password of a PKCS12 file.")
    ssl_truststore_type: str = text(
        "ssl.truststore.type", "PEM", "Not needed: the file shows it.", choices=STORES, kafka="JKS by default"
    )
    ssl_keystore_location: str | None = text(
        "ssl.keystore.location", None, "A file with the own private key and certificate chain.", nullable=True
    )
    ssl_keystore_certificate_chain: str | None = password(
        "ssl.keystore.certificate.chain", "The own certificate and those that signed it, as PEM text."
    )
    ssl_keystore_key: str | None = password("ssl.keystore.key", "The own private key, as PEM text (PKCS #8).")
    ssl_keystore_password: str | None = password("ssl.keystore.password", "The password of a PKCS12 file.")
    ssl_keystore_type: str = text(
        "ssl.keystore.type", "PEM", "Not needed: the file shows it.", choices=STORES, kafka="JKS by default"
    )
    ssl_key_password: str | None = password("ssl.key.password", "The password of the private key.")
    ssl_endpoint_identification_algorithm: str = text(
        "ssl.endpoint.identification.algorithm",
        "https",
        "https: a server's certificate must have the name that is connected to; empty: any name.",
        choices=("https", "HTTPS", ""),
    )
    ssl_enabled_protocols: tuple[str, ...] = names(
        "ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), "The versions of TLS.", choices=("TLSv1.2", "TLSv1.3")
    )
    sasl_jaas_config: str | None = password(
        "sasl.jaas.config",
        "Kafka's login text: MODULE required NAME=VALUE …; with user name and password, for example.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity(ConnectionSecurity):
    """The keys that `listener.name.NAME.KEY` may set for one listener of a broker."""

    ssl_client_auth: str = text(
        "ssl.client.auth", "none", "Whether clients need a certificate.", choices=("none", "requested", "required")
    )
    ssl_principal_mapping_rules: str = text(
        "ssl.principal.mapping.rules", "DEFAULT", "Rules that turn a certificate's name into a principal's (KIP-371)."
    )
    sasl_enabled_mechanisms: tuple[str, ...] = names(
        "sasl.enabled.mechanisms", (), "The SASL mechanisms that clients may use.", choices=MECHANISMS
    )
    connections_max_reauth_ms: int = long(
        "connections.max.reauth.ms", 0, "Clients have to authenticate again within this time; 0: never.", minimum=0
    )
    sasl_server_max_receive_size: int = integer(
        "sasl.server.max.receive.size", 524_288, "The largest request before authentication.", minimum=1024
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = text(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The URL of the keys that sign tokens (a JWKS): https, http or file.",
        nullable=True,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often the keys are read again."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = names(
        "sasl.oauthbearer.expected.audience", (), "Tokens are for one of these audiences (aud); empty: for any."
    )
    sasl_oauthbearer_expected_issuer: str | None = text(
        "sasl.oauthbearer.expected.issuer", None, "Tokens are of this issuer (iss); of any if unset.", nullable=True
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        "sasl.oauthbearer.clock.skew.seconds", 30, "How far the clocks of issuer and broker may differ."
    )
    sasl_oauthbearer_sub_claim_name: str = text(
        "sasl.oauthbearer.sub.claim.name", "sub", "The claim with the principal's name."
    )
    sasl_oauthbearer_scope_claim_name: str = text(
        "sasl.oauthbearer.scope.claim.name", "scope", "The claim with the scope, which is a text or a list of texts."
    )
