"""The security of a `Cluster`: certificates, users, the brokers' keys, and the settings of clients.

Brokers log in as the user `broker`, which always exists, to each other. With SASL all mechanisms are enabled, for the
same users; without it each user has a certificate, and so has each broker.
"""

import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.config.security import MECHANISMS
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.metadata.store import NodeExists, Store
from odradek.model import SecurityProtocol, parse_host_port
from odradek.runtime import system_entropy
from odradek.runtime.certificates import CertificateAuthority
from odradek.security import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    ResourcePattern,
    ResourceType,
    by_kafka_name,
)
from odradek.security.certificate_names import escaped
from odradek.security.sasl.jaas import jaas_text
from odradek.security.sasl.scram import encode_credential, scram_credential
from odradek.testing.in_process.token_issuer import AUDIENCE, TokenIssuer

BROKER: Final = "broker"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_OF_JAVA: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OF_KAFKA_PYTHON: Final = {
    "servers": "bootstrap_servers",
    "protocol": "security_protocol",
    "trusted": "ssl_cafile",
    "own": "ssl_certfile ssl_keyfile",
    "mechanism": "sasl_mechanism",
    "user": "sasl_plain_username",
    "password": "sasl_plain_password",
    "provider": "sasl_oauth_token_provider",
}
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "odradek": {
        "servers": "bootstrap_servers",
        "protocol": "security_protocol",
        "trusted": "ssl_truststore_location",
        "own": "ssl_keystore_location",
        "mechanism": "sasl_mechanism",
        "user": "sasl_username",
        "password": "sasl_password",
        "endpoint": "sasl_oauthbearer_token_endpoint_url",
        "id": "sasl_oauthbearer_client_credentials_client_id",
        "secret": "sasl_oauthbearer_client_credentials_client_secret",
    },
    "confluent-kafka": {
        "servers": "bootstrap.servers",
        "protocol": "security.protocol",
        "trusted": "ssl.ca.location",
        "own": "ssl.certificate.location ssl.key.location",
        "mechanism": "sasl.mechanism",
        "user": "sasl.username",
        "password": "sasl.password",
        "method": "sasl.oauthbearer.method",
        "endpoint": "sasl.oauthbearer.token.endpoint.url",
        "id": "sasl.oauthbearer.client.id",
        "secret": "sasl.oauthbearer.client.secret",
    },
    "kafka-python": _OF_KAFKA_PYTHON,
    "aiokafka": {key: name for key, name in _OF_KAFKA_PYTHON.items() if not name.startswith("ssl_")}
    | {"context": "ssl_context"},
    "java": {
        "servers": "bootstrap.servers",
        "protocol": "security.protocol",
        "type": "ssl.truststore.type ssl.keystore.type",
        "trusted": "ssl.truststore.location",
        "own": "ssl.keystore.location",
        "mechanism": "sasl.mechanism",
        "jaas": "sasl.jaas.config",
        "handler": "sasl.login.callback.handler.class",
        "endpoint": "sasl.oauthbearer.token.endpoint.url",
    },
}
"""The names of settings in each client."""


class ClusterSecurity:
    """The security of one cluster, with its files in `directory`. `users` has passwords by user name.

    With SASL it starts the issuer `tokens`.
    """

    def __init__(
        self, protocol: SecurityProtocol, users: Mapping[str, str], directory: Path, tokens: TokenIssuer
    ) -> None:
        self._protocol = protocol
        self._tokens = tokens
        self._passwords = {BROKER: system_entropy().randbytes(18).hex(), **users}
        self._broker_file = directory / f"{BROKER}.pem"
        self._files: dict[str, Path] = {}
        if protocol.uses_tls:
            self._authority = CertificateAuthority(directory)
            for name in (BROKER,) if protocol.uses_sasl else self._passwords:
                self._files[name] = self._authority.issue(name)
        if protocol.uses_sasl:
            tokens.start(self._passwords)

    @property
    def listener(self) -> str:
        """The name of the brokers' listener."""
        return self._protocol.value

    def broker_keys(self, *, authorize: bool) -> dict[str, str]:
        """Return Kafka's keys of every broker; `authorize`: whether they refuse what no ACL allows."""
        keys: dict[str, str] = {}
        if authorize:
            keys["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
            keys["super.users"] = f"User:{self.principal(BROKER)}"
        if self._protocol.uses_tls:
            keys["ssl.keystore.location"] = str(self._broker_file)
            keys["ssl.truststore.location"] = str(self._authority.certificate)
            keys["ssl.client.auth"] = "none" if self._protocol.uses_sasl else "required"
        if self._protocol.uses_sasl:
            users = {f"user_{user}": password for user, password in self._passwords.items()}
            login = {"username": BROKER, "password": self._passwords[BROKER], **users}
            keys["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            keys["sasl.oauthbearer.jwks.endpoint.url"] = f"{self._tokens.url}/jwks"
            keys["sasl.oauthbearer.expected.issuer"] = self._tokens.url
            keys["sasl.oauthbearer.expected.audience"] = AUDIENCE
            keys[f"listener.name.{self.listener.lower()}.plain.sasl.jaas.config"] = jaas_text("PLAIN", login)
        return keys

    async def store_users(self, store: Store) -> Collection[str]:
        """Write the users' SCRAM credentials into the tree; return the names of these users, none without SASL."""
        if not self._protocol.uses_sasl:
            return ()
        for user, password in self._passwords.items():
            path, content = paths.user_config(user), _node(password).encode()
            try:
                await store.create(path, content)
            except NodeExists:
                await store.set(path, content)
        return self._passwords

    def principal(self, user: str) -> str:
        """Return the name of the user's principal."""
        self._check(user, self._passwords, "user")
        return user if self._protocol.uses_sasl else f"CN={escaped(user)},OU=cluster,O=Odradek"

    def acl(self, user: str, operation: str, resource: str) -> AclBinding:
        """Return the ACL that allows an operation on `TYPE:NAME`; `NAME*` is a prefix. Raises `ValueError`."""
        kind, _, name = resource.partition(":")
        resource_type, allowed = by_kafka_name(ResourceType, kind), by_kafka_name(AclOperation, operation)
        if resource_type is None or allowed is None or not name:
            raise ValueError(
                f"an ACL has an operation such as Write and a resource such as topic:orders, topic:ord*, group:* or "
                f"cluster:{CLUSTER_NAME}, not {operation!r} and {resource!r}"
            )
        is_prefix = name.endswith("*") and name != "*"
        pattern_type = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        return AclBinding(
            pattern=ResourcePattern(resource_type, name.removesuffix("*") if is_prefix else name, pattern_type),
            entry=AclEntry(principal=f"User:{self.principal(user)}", operation=allowed),
        )

    def settings(self, user: str, client: str, mechanism: str, servers: str) -> dict[str, Any]:
        """Return the settings with which the user connects by a client of `_NAMES`. Raises `ValueError`."""
        self._check(user, self._passwords, "user")
        self._check(client, _NAMES, "client")
        values: dict[str, Any] = {"servers": servers, "protocol": self._protocol.value}
        if self._protocol.uses_tls:
            values |= {"type": "PEM", "trusted": str(self._authority.certificate)}
            if not self._protocol.uses_sasl:
                values["own"] = str(self._files[user])
            values["context"] = context = ssl.create_default_context(cafile=values["trusted"])
            if "own" in values:
                context.load_cert_chain(values["own"])
        if self._protocol.uses_sasl:
            self._check(mechanism, MECHANISMS, "mechanism")
            values |= {"mechanism": mechanism, **self._login(user, client, mechanism)}
        names = _NAMES[client].items()
        return {name: values[key] for key, several in names if key in values for name in several.split()}

    def _login(self, user: str, client: str, mechanism: str) -> dict[str, Any]:
        password = self._passwords[user]
        if mechanism != "OAUTHBEARER":
            jaas = jaas_text(mechanism, {"username": user, "password": password})
            return {"user": user, "password": password, "jaas": jaas}
        values = {"method": "oidc", "endpoint": f"{self._tokens.url}/token", "id": user, "secret": password}
        values |= {"handler": _OF_JAVA, "jaas": jaas_text(mechanism, {"clientId": user, "clientSecret": password})}
        if "provider" in _NAMES[client]:
            return {"provider": self._tokens.provider(user, client)}
        return values

    def rotate(self) -> None:
        """Write a new certificate for all brokers."""
        if not self._protocol.uses_tls:
            raise RuntimeError(f"brokers have no certificate with {self._protocol.value}: use security='sasl_ssl'")
        self._authority.issue(BROKER)

    def is_current(self, address: str) -> bool:
        """Return whether the broker at `HOST:PORT` presents its newest certificate."""
        trusted = str(self._authority.certificate)
        return ssl.get_server_certificate(parse_host_port(address), ca_certs=trusted) in self._broker_file.read_text()

    @staticmethod
    def _check(name: str, known: Collection[str], what: str) -> None:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}, only {', '.join(known)}")


def _node(password: str) -> ConfigNode:
    entropy = system_entropy()
    credentials = {
        each: scram_credential(each, password, salt=entropy.randbytes(16), iterations=4096) for each in _SCRAM
    }
    return ConfigNode(config={each: encode_credential(credential) for each, credential in credentials.items()})


def exactly(acl: AclBinding) -> AclFilter:
    """Return the filter of this ACL alone."""
    (kind, name, pattern_type), entry = acl.pattern, acl.entry
    return AclFilter(
        resource_type=kind,
        name=name,
        pattern_type=pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
