"""Names of certificates, as Java writes them (`X500Principal.getName`, RFC 2253): principals of Kafka's ACLs.

```
Certificate     SEQUENCE { tbsCertificate, … }
tbsCertificate  SEQUENCE { [0] version (may be missing), serialNumber, signature, issuer, validity, subject, … }
subject         SEQUENCE of SET of SEQUENCE { OID, value }        each SET is a relative name; the last is written first
```
Attributes with a short name in RFC 2253 are written as text if their value has one of Java's text types, all others as
`OID=#` and the hexadecimal digits of the value's DER: `CN=ann,1.2.840.113549.1.9.1=#1605616e6e4061`.
The subject is read from the certificate's bytes because `ssl.SSLSocket.getpeercert` does not say the types of values.
"""

import re
import ssl
from typing import Final

_SHORT_NAMES: Final = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x09": "STREET",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
}
"""The short names of RFC 2253 by the bytes of their OIDs."""
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; Java reads all as UTF-8."""
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Java reads half of a pair as one wrong character, Python as several."""
_VERSION: Final = 0xA0
_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')
_OLD: Final = re.compile(r"([A-Za-z][A-Za-z0-9 ]*|[0-9]+(?:\.[0-9]+)+)=((?:\\.|[^\\,+\"<>;])*)([,+]|\Z)", re.DOTALL)
_OLD_TAGS: Final = {"emailAddress": 0x16, "serialNumber": 0x13, "dnQualifier": 0x13}
"""The types that OpenSSL gives to values of these attributes; others are UTF8Strings."""
_BLANK: Final = re.compile("[ \r]")
_LONGEST_OID: Final = 4096
"""Limit of an OID's bytes, as in Java: the time to write a number grows with its square."""


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises `ValueError` if it cannot be read."""
    ((_, whole, _),) = _parts(certificate)
    fields = _parts(_parts(whole)[0][1])
    subject = fields[5 if fields[0][0] == _VERSION else 4][1]
    return ",".join(
        "+".join(_attribute(*_parts(attribute)) for _, attribute, _ in _parts(relative))
        for _, relative, _ in reversed(_parts(subject))
    )


def _parts(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the tag, the content and all bytes of each value of a sequence."""
    parts, at = [], 0
    while at < len(data):
        head, start = data[at : at + 6], at + 2
        if len(head) < 2 or head[0] & 0x1F == 0x1F or head[1] == 0x80 or head[1] > 0x84:
            raise ValueError(f"no value of DER is at byte {at}")
        length = head[1]
        if length > 0x80:
            start += length - 0x80
            length = int.from_bytes(data[at + 2 : start], "big")
        end = start + length
        if end > len(data):
            raise ValueError(f"the value of DER at byte {at} ends after its sequence")
        parts.append((head[0], data[start:end], data[at:end]))
        at = end
    return parts


def _attribute(oid: tuple[int, bytes, bytes], value: tuple[int, bytes, bytes]) -> str:
    name, (tag, content, der) = _SHORT_NAMES.get(oid[1]), value
    if name is None or tag not in _TEXTS:
        return f"{name or _dotted(oid[1])}=#{der.hex()}"
    text = _SURROGATE.sub(b"\xff", content).decode(errors="replace")
    return f"{name}={escaped(text)}"


def _dotted(oid: bytes) -> str:
    if len(oid) > _LONGEST_OID:
        raise ValueError(f"an attribute's OID has {len(oid)} bytes")
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def escaped(text: str) -> str:
    """Return the value of an attribute as a name has it."""
    text = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", r"\00")
    # Not by a pattern: a search for blanks at the end takes the square of the blanks before it.
    ended = text.rstrip(" \r")
    inner = ended.lstrip(" \r")
    first, last = text[: len(ended) - len(inner)], text[len(ended) :]
    return _BLANK.sub(r"\\\g<0>", first) + inner + _BLANK.sub(r"\\\g<0>", last)


def written_as_java_does(name: str) -> str | None:
    """Return the name for one in the spelling of earlier releases, as OpenSSL makes certificates; None for others.

    They wrote OpenSSL's names of attributes in place of OIDs, and no backslash before `=` and `#` within a value.
    """
    parts, at = [], 0
    while at < len(name):
        found = _OLD.match(name, at)
        part = None if found is None else _written_again(found[1], found[2])
        if found is None or part is None:
            return None
        parts += [part, found[3]]
        at = found.end()
    new = "".join(parts)
    return None if new == name else new


def _written_again(attribute: str, text: str) -> str | None:
    """Return an attribute of the old spelling in Java's; None if OpenSSL knows none of this name."""
    if text.startswith("#"):
        return f"{attribute}={text}"
    value = re.sub(r"\\(00|.)", lambda each: "\0" if each[1] == "00" else each[1], text, flags=re.DOTALL)
    if attribute in _SHORT_NAMES.values():
        return f"{attribute}={escaped(value)}"
    try:
        oid = ssl._ASN1Object.fromname(attribute).oid if attribute[0].isalpha() else attribute
    except ValueError:
        return None
    data = value.encode()
    length = len(data).to_bytes((len(data).bit_length() + 7) // 8 or 1, "big")
    prefix = b"" if len(data) < 0x80 else bytes([0x80 | len(length)])
    return f"{oid}=#{_OLD_TAGS.get(attribute, 0x0C):02x}{(prefix + length + data).hex()}"
