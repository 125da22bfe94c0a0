"""The principal of a connection."""

from typing import Final, NamedTuple


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
