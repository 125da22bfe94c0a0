"""The application's subscription: topics or a pattern, with its rebalance callbacks."""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from odradek.clients.arguments import names_of
from odradek.clients.metadata import ClusterMetadata
from odradek.model import ErrorCode, TopicPartition, validate_topic_name

Callback = Callable[[Collection[TopicPartition]], Awaitable[None] | None]
"""A rebalance callback, called with sorted partitions; may be a coroutine function."""


class SubscriptionType(StrEnum):
    """How a consumer gets its partitions: by subscription to topics or a pattern, or by `assign`."""

    NONE = "none"
    AUTO_TOPICS = "auto topics"
    AUTO_PATTERN = "auto pattern"
    USER_ASSIGNED = "user assigned"


class Subscription(Struct, frozen=True, kw_only=True):
    """A subscription and its callbacks; `on_partitions_lost` falls back to `on_partitions_revoked`, as in Kafka."""

    type: SubscriptionType = SubscriptionType.NONE
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    on_partitions_assigned: Callback | None = None
    on_partitions_revoked: Callback | None = None
    on_partitions_lost: Callback | None = None

    def matching_topics(self, metadata: ClusterMetadata, *, exclude_internal: bool) -> frozenset[str]:
        """Return the subscribed topics, or those of the metadata that match the pattern."""
        if self.pattern is None:
            return self.topics
        return frozenset(
            topic.name
            for topic in metadata.topics.values()
            if self.pattern.fullmatch(topic.name)
            and topic.error_code == ErrorCode.none
            and not (exclude_internal and topic.is_internal)
        )

    async def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        await _call(self.on_partitions_assigned, partitions)

    async def on_revoked(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Call the application's `on_partitions_revoked` or `on_partitions_lost`."""
        await _call((self.on_partitions_lost if lost else None) or self.on_partitions_revoked, partitions)


def create_subscription(
    topics: str | Iterable[str],
    pattern: str | None,
    on_partitions_assigned: Callback | None,
    on_partitions_revoked: Callback | None,
    on_partitions_lost: Callback | None,
) -> Subscription:
    """Create a subscription to topics or to a pattern.

    Raises `InvalidTopicError` for an invalid name, `ValueError` for topics and a pattern, for neither, or for an
    invalid pattern.
    """
    names = frozenset(names_of(topics))
    if (pattern is None) == (not names):
        raise ValueError("subscribe to topics or to a pattern")
    for name in names:
        validate_topic_name(name)
    try:
        compiled = re.compile(pattern) if pattern is not None else None
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
    return Subscription(
        type=SubscriptionType.AUTO_TOPICS if compiled is None else SubscriptionType.AUTO_PATTERN,
        topics=names,
        pattern=compiled,
        on_partitions_assigned=on_partitions_assigned,
        on_partitions_revoked=on_partitions_revoked,
        on_partitions_lost=on_partitions_lost,
    )


async def _call(callback: Callback | None, partitions: Iterable[TopicPartition]) -> None:
    if callback is not None:
        result = callback(tuple(sorted(partitions)))
        if inspect.isawaitable(result):
            await result
