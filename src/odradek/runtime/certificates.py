"""A certificate authority in a directory, and certificates that it signs, by the package `trustme`.

```
ca.pem      its certificate, which clients and brokers trust
ca.key      its private key
NAME.pem    a private key (PKCS #8, as Java needs it) and its certificate
```
The files are for their owner only. They serve tests and clusters on one machine; use your own authority elsewhere.
"""

import os
from pathlib import Path
from urllib.parse import quote

from odradek.model import ConfigurationError, packages_of

_HOSTS = ("localhost", "127.0.0.1", "::1")


class CertificateAuthority:
    """The authority in `directory`, made if it is not there.

    Raises `ConfigurationError` without `trustme`, and for files that have no certificate and key.
    """

    def __init__(self, directory: Path) -> None:
        with packages_of("security", "new certificates"):
            import trustme
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self.certificate = directory / "ca.pem"
        key = directory / "ca.key"
        if key.exists():
            try:
                self._authority = trustme.CA.from_pem(self.certificate.read_bytes(), key.read_bytes())
            except ValueError as error:
                raise ConfigurationError(
                    f"{self.certificate} and {key} are not an authority's certificate and key: {error}; remove both "
                    "to make new ones"
                ) from None
        else:
            self._authority = trustme.CA(organization_name="Odradek", organization_unit_name="authority")
            write_private(self.certificate, self._authority.cert_pem.bytes())
            write_private(key, self._authority.private_key_pem.bytes())

    def issue(self, name: str) -> Path:
        """Write a key and a certificate CN=`name`,OU=cluster,O=Odradek for this machine; return the file's path."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        issued = self._authority.issue_cert(
            *_HOSTS, common_name=name, organization_name="Odradek", organization_unit_name="cluster"
        )
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        path = self._directory / f"{quote(name, safe=' @')}.pem"
        write_private(path, own + chain)
        return path


def write_private(path: Path, content: bytes) -> None:
    """Replace a file by one that only its owner may read; readers see the old content or the new."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)
