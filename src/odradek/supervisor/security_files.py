"""The files of `odradek up --secure DIR`: certificates, the brokers' keys, and an administrator's login.

```
ca.pem, ca.key       the certificate authority
broker.pem           the brokers' private key and certificate; removed, another one is made at the next start
broker.properties    Kafka's keys of every broker, with the users' passwords
client.properties    the administrator's settings, for Odradek's commands and Kafka's
```
Files that are there stay, except that both properties files are new if one is missing: they share a password. The
directory and the files are for their owner only.
"""

import base64
from pathlib import Path
from typing import Final

from msgspec import Struct

from odradek.runtime import system_entropy
from odradek.runtime.certificates import CertificateAuthority, write_private
from odradek.security.sasl.jaas import jaas_text

PROTOCOL: Final = "SASL_SSL"
BROKER_FILE: Final = "broker.properties"
_ADMINISTRATOR: Final = "admin"
_BROKER: Final = "broker"


class SecurityFiles(Struct, frozen=True, kw_only=True):
    """The properties files of brokers and of the administrator."""

    broker: Path
    client: Path


def security_files(directory: Path) -> SecurityFiles:
    """Return the files in `directory`; make those that are missing. Raises `ConfigurationError` without `trustme`."""
    authority = CertificateAuthority(directory)
    certificate = directory / f"{_BROKER}.pem"
    if not certificate.exists():
        authority.issue(_BROKER)
    files = SecurityFiles(broker=directory / BROKER_FILE, client=directory / "client.properties")
    if not (files.broker.exists() and files.client.exists()):
        passwords = {user: _password() for user in (_ADMINISTRATOR, _BROKER)}
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.certificate)}
        login = {"username": _BROKER, "password": passwords[_BROKER]}
        users = {f"user_{user}": password for user, password in passwords.items()}
        broker = {
            **trusted,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config": jaas_text("PLAIN", login | users),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{_ADMINISTRATOR};User:{_BROKER}",
        }
        administrator = {"username": _ADMINISTRATOR, "password": passwords[_ADMINISTRATOR]}
        client = {
            **trusted,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas_text("PLAIN", administrator),
        }
        for path, properties in ((files.client, client), (files.broker, broker)):
            lines = [f"{key}={value}\n" for key, value in properties.items()]
            write_private(path, "".join(lines).replace("\\", "\\\\").encode())
    return files


def _password() -> str:
    return base64.urlsafe_b64encode(system_entropy().randbytes(24)).decode()
