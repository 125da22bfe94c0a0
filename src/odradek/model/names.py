"""`TopicPartition`, names of topics and the rule for them (Kafka's `Topic.validate`), and names as text."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.model.errors import ConfigurationError, ErrorCode, KafkaError, PreconditionError

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic of Kafka's quorum, which no broker here has and no client may create."""
JOURNAL_TOPIC: Final = "__rebalances"
"""The topic of the rebalance journal; Kafka has no such topic."""
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, JOURNAL_TOPIC})
ADMIN_CLIENT_ID: Final = "__admin_client"
"""The only client id that may produce to internal topics, as in Kafka."""
MAX_TOPIC_NAME_LENGTH: Final = 249
_INVALID: Final = "Topic name is invalid: "
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def numbers_by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the partitions' numbers by topic, both in ascending order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


class InvalidTopicError(KafkaError):
    """A topic name that breaks Kafka's rule; the message says how."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_topic_exception, message)


def is_mistake(error: Exception) -> bool:
    """Return whether the user's arguments or files are wrong, so that a retry fails."""
    return isinstance(error, ConfigurationError | InvalidTopicError) and not isinstance(error, PreconditionError)


def validate_topic_name(name: str) -> str:
    """Return `name`, or raise `InvalidTopicError`.

    A name has 1 to 249 ASCII letters, digits, `.`, `_` and `-`, and is neither `.` nor `..`.
    """
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic's name is a string, not {name!r}")
    if not name:
        raise InvalidTopicError(f"{_INVALID}the empty string is not allowed")
    if name in {".", ".."}:
        raise InvalidTopicError(f"{_INVALID}{name!r} is not allowed")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicError(
            f"{_INVALID}the length of {name[:300]!r} is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(
            f"{_INVALID}{name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    return name


def first_names(items: Iterable[object], most: int = 5) -> str:
    """Return the first items as text, and how many there are besides."""
    names = list(map(str, items))
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
