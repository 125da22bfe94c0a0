"""The settings of a page."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from odradek.presentation.value_formats import Show


class PageSettings(Struct, frozen=True, kw_only=True):
    """The settings of one page: `client` has the keyword arguments of `Admin` and the other clients."""

    client: Mapping[str, Any] = field(default_factory=dict)
    may_change: bool = True
    """Whether its users are operators, who may change the cluster, or viewers."""
    requires_login: bool = False
    """Whether each user logs in with SASL credentials of the cluster, which the page then uses for that user."""
    host_names: tuple[str, ...] = ()
    """Names by which browsers may address the page, beside `localhost` and all IP addresses."""
    interval_s: float = 1.0
    """The time between two readings of what an open page shows."""

    masks: tuple[str, ...] = ()
    """Parts of messages that are hidden: names of fields, and `/REGEX/` for parts of texts."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """The formats of keys and values by `TOPIC.key` and `TOPIC.value`; others are guessed."""
    schemas: Mapping[str, Show] = field(default_factory=dict)
    """Formats with a schema, by the names that users choose."""

    def __repr__(self) -> str:
        return f"PageSettings(may_change={self.may_change}, requires_login={self.requires_login})"
