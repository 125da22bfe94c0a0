"""The principal of a connection."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Principal(NamedTuple):
    """Kafka's principal: a type and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of every client of a listener without authentication."""


def trimmed(text: str) -> str:
    """Return the text without ASCII blanks at its ends, as Java's `trim`. Other blanks may belong to a name."""
    return text.strip(" \t\r\n")


def parse_principal(text: str) -> Principal:
    """Parse `TYPE:NAME`. Raises `ValueError` for other text."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal: TYPE:NAME, for instance User:alice")
    return Principal(kind, name)


_ATTRIBUTES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The short names of RFC 2253 by OpenSSL's names."""
_SPECIAL: Final = frozenset(',+"\\<>;')


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate in the form of RFC 2253, as Java writes it: `CN=alice,OU=dev,O=acme,C=DE`.

    `certificate` is what `ssl.SSLSocket.getpeercert` returns.
    """
    return ",".join(
        "+".join(f"{_ATTRIBUTES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if text[:1] in {" ", "#"}:
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(text) > 1 else text
