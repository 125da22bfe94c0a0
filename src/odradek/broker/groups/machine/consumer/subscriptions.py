"""Subscriptions of members: topic names, and regular expressions that the coordinator checks and resolves (KIP-848)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from odradek.broker.groups.machine.consumer.member import Topics
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError

_HASH_BYTES: Final = 8
_LONGEST_REGEX: Final = 4096
_MOST_UNICODE_CLASSES: Final = 16
"""Limit of classes such as `\\pL`: RE2 parses each for up to 0.2 ms, and topic names are ASCII."""
_REGEX_BYTES: Final = 200 << 10
"""Memory limit of RE2 for one expression."""


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _REGEX_BYTES
    return options


@lru_cache(maxsize=64)
def compile_regex(pattern: str, field: str = "SubscribedTopicRegex") -> Any:
    """Compile a request's `field` in RE2's syntax. Raises `KafkaError` INVALID_REGULAR_EXPRESSION if it is refused."""
    classes = pattern.count(r"\p") + pattern.count(r"\P")
    if len(pattern) > _LONGEST_REGEX or classes > _MOST_UNICODE_CLASSES:
        text = (
            f"{field} has {len(pattern)} characters and {classes} Unicode classes; {_LONGEST_REGEX} and "
            f"{_MOST_UNICODE_CLASSES} are allowed"
        )
        raise KafkaError(ErrorCode.invalid_regular_expression, text)
    import re2  # imported here: few brokers need this compiled library

    try:
        return re2.compile(pattern, options=_options(re2))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.invalid_regular_expression, f"{field} `{pattern}` is not a valid regular expression: {text}."
        ) from error


def resolve_regex(
    pattern: str,
    image: ClusterImage,
    names: Iterable[str],
    denied: Callable[[Collection[str]], Collection[str]],
) -> tuple[str, ...]:
    """Return, sorted, the topics in `names` whose whole name matches, except those that `denied` returns.

    Internal topics never match: a consumer of `.*` would read its own commits forever.
    """
    matches = compile_regex(pattern).fullmatch
    found = {name for name in names if matches(name) and not image.topics[name].is_internal}
    return tuple(sorted(found.difference(denied(found)))) if found else ()


def topics_of_all(subscriptions: Iterable[Topics], regexes: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the topics of all subscriptions together; an expression that is not in `regexes` matches none."""
    return frozenset[str]().union(*(each for names, regex in subscriptions for each in (names, regexes.get(regex, ()))))


def existing_topics_of(
    subscriptions: Iterable[Topics], regexes: Mapping[str, Collection[str]], image: ClusterImage
) -> frozenset[str]:
    """Return those of `topics_of_all` that exist, at little cost for names of others: a member may send very many."""
    known = image.topics.keys()
    found = (known & each for names, regex in subscriptions for each in (names, regexes.get(regex, ())))
    return frozenset[str]().union(*found)


def metadata_hash(topics: Collection[str], image: ClusterImage) -> int:
    """Return a hash of the ids, partition counts and replica racks of `topics`; 0 if none exists.

    It is recorded with the group's epoch, as in Kafka 4.1 (KIP-1101), so that a coordinator detects after loading
    whether topics changed. Kafka's hash differs, so a group is rebalanced once when it moves to or from Kafka.
    """
    import hashlib  # imported here because it loads OpenSSL's digests, 3 ms of a start

    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    has_any = False
    for name in sorted(topics):
        topic = image.topics.get(name)
        if topic is not None:
            has_any = True
            digest.update(f"{name}\0{topic.topic_id}\0{len(topic.partitions)}\0".encode())
            digest.update(repr([sorted(each) for each in replica_racks(name, image)]).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if has_any else 0


def replica_racks(topic: str, image: ClusterImage) -> list[frozenset[str]]:
    """Return the racks with replicas of each partition, in order; empty if no broker has a rack."""
    racks = {broker.broker_id: broker.rack for broker in image.brokers.values() if broker.rack}
    if not racks:
        return []
    partitions = image.topics[topic].partitions
    return [
        frozenset(racks[replica] for replica in partitions[number].replicas if replica in racks)
        for number in sorted(partitions)
    ]
