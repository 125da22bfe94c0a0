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
