"""Names that look like an unknown one, for the hints in errors."""

from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 250
"""Longer names resemble nothing; a client may send megabytes, which `difflib` would index."""


def similar_names(name: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most `count` of the `known` names, most similar first; `cutoff` is `difflib`'s, from 0 to 1."""
    if len(name) > _LONGEST:
        return []
    import difflib  # imported here because a start without an error does not need it

    return difflib.get_close_matches(name, list(known), n=count, cutoff=cutoff)
