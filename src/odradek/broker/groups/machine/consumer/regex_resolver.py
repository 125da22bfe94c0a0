"""Matches the regular expressions of one group with topic names, apart from heartbeats and in short steps (KIP-848).

A heartbeat is answered with the topics that are known. Matching begins when an expression is new, topics came or went,
or permissions may have changed, at most once per `MIN_INTERVAL_MS` as in Kafka, with the last heartbeat's permissions.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.subscriptions import compile_regex, resolve_regex
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.model import KafkaError

_log = logging.getLogger("odradek.groups")

MIN_INTERVAL_MS: Final = 10_000
NAMES_PER_STEP: Final = 4_000
"""A step takes about 5 ms; 100 expressions with 10,000 topics take 4 s, a third of it CPU."""
_LIGHT_PROGRAM: Final = 32
"""An expression of so many instructions is matched in no time; each 8 instructions more weigh as much again."""
STEP_PAUSE_MS: Final = 10
"""The pause between two steps, so that other requests are served."""

DeniedTopics = Callable[[Collection[str]], Collection[str]]


class RegexResolver:
    """The regular expressions of one group: when they were resolved, and the resolution under way. Not durable."""

    def __init__(self) -> None:
        self._topics: Mapping[str, TopicImage] | None = None
        """The topics of the last resolution, None before the first."""
        self._resolved_ms = 0
        self._denied: DeniedTopics | None = None
        self._steps: Iterator[Mapping[str, tuple[str, ...]] | None] | None = None

    def is_outdated(self, settings: ConsumerGroupSettings, now: Now) -> bool:
        """Return whether expressions must be matched with all topics: they never were, or permissions may differ."""
        return self._topics is None or now.ms >= self._resolved_ms + settings.regex_refresh_interval_ms

    def next_ms(
        self,
        regexes: Collection[str],
        known: Collection[str],
        image: ClusterImage,
        settings: ConsumerGroupSettings,
        now: Now,
        denied: DeniedTopics | None = None,
    ) -> int | None:
        """Return when to resolve the group's `regexes`; None if all are `known` and nothing changed.

        `denied` returns which topics the client of a heartbeat may not describe.
        """
        self._denied = denied or self._denied
        is_new = any(regex not in known for regex in regexes)
        is_due = is_new or self._topics is not image.topics or self.is_outdated(settings, now)
        if not regexes or not is_due or self._denied is None:
            return None
        return now.ms if self._topics is None else max(now.ms, self._resolved_ms + MIN_INTERVAL_MS)

    def step(
        self, group: ConsumerGroup, image: ClusterImage, settings: ConsumerGroupSettings, now: Now
    ) -> Mapping[str, tuple[str, ...]] | None:
        """Match the next names. After the last ones return the topics of each expression, otherwise None."""
        if self._steps is None:
            assert self._denied is not None, "a heartbeat gave the permissions"
            seen = None if self.is_outdated(settings, now) else self._topics
            self._steps = _steps(group, image, seen, self._denied)
            self._topics = image.topics
        found = next(self._steps)
        if found is None:
            return None
        self._steps, self._resolved_ms = None, now.ms
        return found


def _steps(
    group: ConsumerGroup, image: ClusterImage, seen: Mapping[str, TopicImage] | None, denied: DeniedTopics
) -> Iterator[Mapping[str, tuple[str, ...]] | None]:
    """Yield None after each step and the result at last. Match with topics that are not in `seen`, or with all."""
    topics = image.topics
    added = [name for name in topics if name not in seen] if seen is not None else []
    found: dict[str, tuple[str, ...]] = {}
    matched = 0
    for regex in sorted(group.subscribed_regexes):
        known = group.regexes.get(regex) if seen is not None else None
        names = list(topics) if known is None else added
        matches = {name for name in known or () if name in topics}
        try:
            weight = max((compile_regex(regex).programsize - _LIGHT_PROGRAM) // 8, 1) if names else 1
            count = max(NAMES_PER_STEP // weight, 1)
            for start in range(0, len(names), count):
                part = names[start : start + count]
                if matched + weight * len(part) > NAMES_PER_STEP:
                    matched = 0
                    yield None
                matched += weight * len(part)
                matches.update(resolve_regex(regex, image, part, denied))
        except KafkaError as error:
            _log.warning("An expression of group %s matches no topic: %s", group.group_id, error)
        found[regex] = tuple(sorted(matches))
    yield found
