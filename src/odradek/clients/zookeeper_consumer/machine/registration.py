"""The registration of a consumer in `/consumers/{group}/ids/{consumer}`: topics or a topic filter, and threads."""

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct, field

from odradek.metadata.nodes import ConsumerNode
from odradek.model import ConfigurationError, InvalidTopicError, validate_topic_name
from odradek.model.names import INTERNAL_TOPICS

MOST_THREADS: Final = 10_000
"""Limit of a consumer's threads per topic. Each consumer lists the threads of all, so one typo would stop them all."""
_NO_REPETITION: Final = re.compile(r"\{(?!\d+\})")


class Pattern(StrEnum):
    """The kind of a subscription, as registration nodes have it."""

    STATIC = "static"
    WHITE_LIST = "white_list"
    BLACK_LIST = "black_list"


class TopicFilter(Struct, frozen=True, kw_only=True):
    """A regular expression, with commas for `|`: whole topic names must match (white list) or must not (black list)."""

    expression: str
    is_white_list: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            raise ConfigurationError(f"a topic filter is a regular expression in a string, not {self.expression!r}")
        if _NO_REPETITION.search(self._regex):
            raise ConfigurationError(
                f"{self.expression!r} is not a regular expression: braces have one number here, as in a{{2}}, since "
                "commas separate alternatives"
            )
        try:
            with warnings.catch_warnings(action="error", category=FutureWarning):  # Java's set operations, as in [a&&b]
                re.compile(self._regex)
        except (re.error, FutureWarning, OverflowError, RecursionError) as error:
            raise ConfigurationError(f"{self.expression!r} is not a regular expression: {error}") from None

    @property
    def pattern(self) -> Pattern:
        """Return the filter's kind."""
        return Pattern.WHITE_LIST if self.is_white_list else Pattern.BLACK_LIST

    def topics(self, names: Iterable[str], *, exclude_internal: bool) -> frozenset[str]:
        """Return the topics in `names` that pass the filter."""
        expression = re.compile(self._regex)
        return frozenset(
            name
            for name in names
            if (expression.fullmatch(name) is not None) is self.is_white_list
            and not (exclude_internal and name in INTERNAL_TOPICS)
        )

    @property
    def _regex(self) -> str:
        """Return the expression as Kafka's TopicFilter normalizes it: no spaces or outer quotes, `|` for commas."""
        return self.expression.replace(" ", "").strip("\"'").replace(",", "|")


class ThreadCounts(Struct, frozen=True, kw_only=True):
    """A subscription: the number of threads for each topic, or for every topic that passes a filter."""

    topics: Mapping[str, int] = field(default_factory=dict)
    filter: TopicFilter | None = None
    threads: int = 1
    """The number of threads for each topic of `filter`."""

    def __post_init__(self) -> None:
        if self.filter is None and not self.topics:
            raise ConfigurationError("a consumer needs a topic, or a filter of topics")
        if self.filter is not None and not isinstance(self.filter, TopicFilter):
            raise ConfigurationError(f"a filter of topics is a TopicFilter, not {self.filter!r}")
        for topic in self.topics:
            if not isinstance(topic, str):
                raise ConfigurationError(f"a topic's name is a string, not {topic!r}")
            validate_topic_name(topic)
        for count in (*self.topics.values(), self.threads):
            if type(count) is not int or not 1 <= count <= MOST_THREADS:
                raise ConfigurationError(f"a topic has 1 to {MOST_THREADS:,} threads, not {count!r}")

    def threads_of(self, names: Collection[str], *, exclude_internal: bool) -> Mapping[str, int]:
        """Return the number of threads by topic; `names`, all existing topics, are used only with a filter."""
        if self.filter is None:
            return self.topics
        return dict.fromkeys(self.filter.topics(names, exclude_internal=exclude_internal), self.threads)

    def node(self, timestamp_ms: int) -> ConsumerNode:
        if self.filter is None:
            return ConsumerNode(subscription=self.topics, pattern=Pattern.STATIC, timestamp_ms=timestamp_ms)
        counts = {self.filter.expression: self.threads}
        return ConsumerNode(subscription=counts, pattern=self.filter.pattern, timestamp_ms=timestamp_ms)

    @classmethod
    def of(cls, node: ConsumerNode) -> "ThreadCounts":
        """Return the subscription of a registration node. Raises `ConfigurationError` if it is invalid.

        Invalid topic names are left out: Kafka's consumers treat them as topics that do not exist.
        """
        if node.pattern == Pattern.STATIC:
            return cls(topics={topic: count for topic, count in node.subscription.items() if _can_be_a_topic(topic)})
        if len(node.subscription) != 1:
            raise ConfigurationError(f"a registration with a filter has one expression, not {len(node.subscription)}")
        ((expression, threads),) = node.subscription.items()
        is_white_list = node.pattern == Pattern.WHITE_LIST
        return cls(filter=TopicFilter(expression=expression, is_white_list=is_white_list), threads=threads)


def validate_node_name(what: str, name: str) -> str:
    """Return `name`. Raises `ConfigurationError`, which names `what`, unless `name` is a valid node name."""
    if not name or "/" in name or name in {".", ".."} or not name.isprintable():
        raise ConfigurationError(
            f"{what} is the name of a node in the tree, which has printable characters without '/' and is neither "
            f"'.' nor '..': it can't be {name!r}"
        )
    return name


def _can_be_a_topic(name: str) -> bool:
    try:
        validate_topic_name(name)
    except InvalidTopicError:
        return False
    return True


def unique_name(host: str, now_ms: int, unique: UUID) -> str:
    """Return a consumer's name in the format of Kafka 0.8: host, time, and eight hexadecimal digits of a UUID."""
    return f"{host}-{now_ms}-{unique.hex[:8]}"


def thread_id(consumer_id: str, number: int) -> str:
    """Return the id of a consumer's thread."""
    return f"{consumer_id}-{number}"
