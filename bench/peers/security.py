"""The security of `odradek bench compare --security`: both sides have the same certificate, users, ACLs and client.

Odradek's only listener is secured; Kafka has a second one, SECURED, as its own connections stay without security.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from bench.clients.librdkafka import CLIENT_SETTINGS
from bench.clients.processes import run_client
from bench.peers.kafka_peer import KafkaBroker
from odradek.model import SecurityProtocol
from odradek.runtime.certificates import CertificateAuthority
from odradek.security.sasl.jaas import jaas_text

SECURED: Final = "SECURED"
_USER: Final = "bench"
_ADMINISTRATOR: Final = "admin"
_PASSWORD: Final = "not a secret"


class BenchSecurity(Struct, frozen=True, kw_only=True):
    """The protocol of both sides, their certificates in `directory`, and how many ACLs they have (None: none ask)."""

    protocol: SecurityProtocol
    directory: Path
    acls: int | None = None

    def __post_init__(self) -> None:
        if self.protocol.uses_tls and not (self.directory / "broker.pem").exists():
            CertificateAuthority(self.directory).issue("broker")

    def broker_keys(self, listener: str) -> dict[str, str]:
        """Return Kafka's keys for a listener of this name."""
        protocols = {listener: self.protocol.value}
        if listener == SECURED:
            protocols |= {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        keys = {"listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items())}
        if self.protocol.uses_tls:
            keys |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.directory / "broker.pem")}
        if self.protocol.uses_sasl:
            users = {f"user_{user}": _PASSWORD for user in (_USER, _ADMINISTRATOR)}
            login = {"username": _ADMINISTRATOR, "password": _PASSWORD, **users}
            keys["sasl.enabled.mechanisms"] = keys["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
            keys[f"listener.name.{listener.lower()}.plain.sasl.jaas.config"] = jaas_text("PLAIN", login)
        if self.acls is not None:
            keys["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            keys["super.users"] = f"User:{_ADMINISTRATOR};User:ANONYMOUS"
        return keys

    def use(self, user: str = _USER) -> None:
        """Let the clients of this process's benchmarks connect as `user`."""
        settings = {"security.protocol": self.protocol.value}
        if self.protocol.uses_tls:
            settings["ssl.ca.location"] = str(self.directory / "ca.pem")
        if self.protocol.uses_sasl:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": _PASSWORD}
        os.environ[CLIENT_SETTINGS] = json.dumps(settings)

    def create_acls(self, bootstrap_servers: str) -> None:
        """Create the ACLs that the client needs, and as many others as wanted."""
        if self.acls is not None:
            self.use(_ADMINISTRATOR)
            run_client("create_acls", {"bootstrap_servers": bootstrap_servers, "user": _USER, "others": self.acls})
            self.use()


class SecuredKafka(KafkaBroker):
    """A node of Kafka whose clients use the secured listener."""

    def __init__(self, data_dir: Path, options: Mapping[str, str]) -> None:
        super().__init__(data_dir, options=options, listeners=(SECURED,))

    @property
    def bootstrap_servers(self) -> str:
        return self.address_of(SECURED)
