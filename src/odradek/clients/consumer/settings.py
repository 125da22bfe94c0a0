"""The consumer's configuration: Kafka's keys and defaults, and checks of combinations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from odradek.clients.offsets import EARLIEST, LATEST
from odradek.clients.settings import ABSENT_KEYS, FetchSettings, make_settings
from odradek.config.definition import boolean, integer, names, text
from odradek.model import ConfigurationError

_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}
"""`auto.offset.reset` → the timestamp for ListOffsets; None means an error instead."""
_BY_DURATION: Final = re.compile(
    r"by_duration:P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?"
)
"""`auto.offset.reset` as an ISO 8601 duration before now, such as by_duration:P1DT12H (KIP-1106)."""
_SHARE_GROUPS = "there are no share groups"
_ABSENT_KEYS: Final = {
    "key.deserializer": "pass a function as Consumer(key_deserializer=...)",
    "value.deserializer": "pass a function as Consumer(value_deserializer=...)",
    "heartbeat.frequency": "its successor is heartbeat.interval.ms, the time between two heartbeats",
    "interceptor.classes": "pass objects as Consumer(interceptors=...)",
    "config.providers": "values are not looked up elsewhere: pass them",
    "share.acknowledgement.mode": _SHARE_GROUPS,
    "share.acquire.mode": _SHARE_GROUPS,
}


GROUP_PROTOCOLS: Final = ("classic", "consumer")
_CLASSIC_ONLY: Final = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Settings that only classic members have: in the consumer protocol, the coordinator decides them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(FetchSettings):
    """The consumer's configuration keys, in addition to those of `FetchSettings`."""

    group_id: str | None = text("group.id", None, "The group to be a member of, or to keep offsets in.", nullable=True)
    group_protocol: str = text(
        "group.protocol",
        "classic",
        "How the group assigns: classic by one of its members, consumer by the coordinator (KIP-848).",
        choices=GROUP_PROTOCOLS,
    )
    group_remote_assignor: str | None = text(
        "group.remote.assignor", None, "The coordinator's assignor that this member asks for.", nullable=True
    )
    group_instance_id: str | None = text(
        "group.instance.id", None, "The name of a static member, which may restart without a rebalance.", nullable=True
    )
    partition_assignment_strategy: tuple[str, ...] = names(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        "Assignors by name, class of Kafka's or import path, the preferred one first.",
        kafka="class names",
    )
    auto_offset_reset: str = text(
        "auto.offset.reset",
        "latest",
        "Where to start without an offset: earliest, latest, none (an error), or by_duration:P1DT12H, that long ago.",
    )
    enable_auto_commit: bool = boolean("enable.auto.commit", True, "Whether positions are committed automatically.")
    auto_commit_interval_ms: int = integer(
        "auto.commit.interval.ms", 5_000, "The interval of automatic commits.", minimum=0
    )
    session_timeout_ms: int = integer(
        "session.timeout.ms", 45_000, "How long a member without heartbeats stays in the group.", minimum=1
    )
    heartbeat_interval_ms: int = integer("heartbeat.interval.ms", 3_000, "The interval of heartbeats.", minimum=1)
    max_poll_interval_ms: int = integer(
        "max.poll.interval.ms", 300_000, "How long the application may work between two polls.", minimum=1
    )
    max_poll_records: int = integer("max.poll.records", 500, "The maximum of records of one poll.", minimum=1)
    allow_auto_create_topics: bool = boolean(
        "allow.auto.create.topics", True, "Whether subscribing may create a topic."
    )
    exclude_internal_topics: bool = boolean(
        "exclude.internal.topics", True, "Whether a pattern leaves internal topics out."
    )
    client_rack: str | None = text(
        "client.rack",
        None,
        "Where this consumer runs, for rack-aware assignors and replicas nearby.",
        nullable=True,
        kafka="empty by default",
    )
    queued_max_messages_kbytes: int = integer(
        "queued.max.messages.kbytes",
        65_536,
        "The KiB of records, as received, that are prefetched from all partitions.",
        minimum=1,
        kafka="a key of librdkafka",
    )

    @classmethod
    def absent_keys(cls) -> Mapping[str, str]:
        return ABSENT_KEYS | _ABSENT_KEYS

    def reset_timestamp(self, now_ms: int) -> int | None:
        """Return the ListOffsets timestamp for `auto.offset.reset`; None if that is `none`."""
        if (found := _BY_DURATION.fullmatch(self.auto_offset_reset)) is not None:
            span = timedelta(**{unit: int(number) for unit, number in found.groupdict(default="0").items()})
            return max(now_ms - span // timedelta(milliseconds=1), 0)
        return _RESETS[self.auto_offset_reset]


def consumer_settings(values: Mapping[str, object]) -> ConsumerSettings:
    """Create settings. Raises `ConfigurationError` for an unknown key, and for an invalid or contradictory value."""
    settings = make_settings(ConsumerSettings, values)
    if settings.group_id == "":
        raise ConfigurationError("group_id can't be empty")
    if settings.auto_offset_reset not in _RESETS and not _BY_DURATION.fullmatch(settings.auto_offset_reset):
        raise ConfigurationError(
            f"auto_offset_reset can't be {settings.auto_offset_reset!r}: it is one of {', '.join(_RESETS)} (Kafka 0.8: "
            "smallest is earliest, largest is latest), or a duration such as by_duration:P1DT12H"
        )
    if settings.group_protocol == "consumer":
        _check_consumer_protocol(settings, values)
    elif settings.group_remote_assignor is not None:
        raise ConfigurationError("group_remote_assignor is for group_protocol consumer; choose an assignor of your own")
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise ConfigurationError(
            f"heartbeat_interval_ms ({settings.heartbeat_interval_ms:,}) is below "
            f"session_timeout_ms ({settings.session_timeout_ms:,})"
        )
    return settings


def _check_consumer_protocol(settings: ConsumerSettings, values: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` without `group_id`, and for settings that only classic members have, as Kafka does."""
    if settings.group_id is None:
        raise ConfigurationError("group_protocol consumer needs a group_id")
    given = [name for name in _CLASSIC_ONLY if values.get(name) is not None]
    if given:
        raise ConfigurationError(
            f"{given[0]} has no effect with group_protocol consumer, in which brokers configure the group; leave it out"
        )
