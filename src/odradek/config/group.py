"""A consumer group's keys (KIP-848), each with the broker's key that it falls back to.

This broker has no share or streams groups, and none of their keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.config.broker import BrokerConfig
from odradek.config.consistency import check_heartbeat, check_range
from odradek.config.definition import Definition, definitions, integer, parse_all


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The effective configuration of a group."""

    consumer_session_timeout_ms: int = integer(
        "consumer.session.timeout.ms",
        45_000,
        "How long a member may be silent.",
        minimum=1,
        synonyms=(("group.consumer.session.timeout.ms", 1),),
    )
    consumer_heartbeat_interval_ms: int = integer(
        "consumer.heartbeat.interval.ms",
        5_000,
        "Time between a member's heartbeats.",
        minimum=1,
        synonyms=(("group.consumer.heartbeat.interval.ms", 1),),
    )
    consumer_assignment_interval_ms: int = integer(
        "consumer.assignment.interval.ms",
        1_000,
        "The longest time between two assignments.",
        minimum=0,
        synonyms=(("group.consumer.assignment.interval.ms", 1),),
    )

    @classmethod
    def definitions(cls) -> Mapping[str, Definition]:
        """Return every key's definition by Kafka's name."""
        return definitions(cls)


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Return a group's effective configuration: its `overrides` (Kafka's names and texts), else the broker's values.

    Raises `ConfigurationError` for unknown keys, and for values outside the broker's limits.
    """
    known = definitions(GroupConfig)
    inherited = {each.attribute: broker.get(each.synonyms[0][0]) for each in known.values()}
    config = GroupConfig(**inherited | parse_all(known, overrides, "group"))  # type: ignore[arg-type]
    for name in overrides:
        kind = name.removeprefix("consumer.")
        shortest, longest = (f"group.consumer.{limit}.{kind}" for limit in ("min", "max"))
        value = getattr(config, known[name].attribute)
        check_range(name, value, (shortest, broker.get(shortest)), (longest, broker.get(longest)))
    check_heartbeat("consumer.", config.consumer_heartbeat_interval_ms, config.consumer_session_timeout_ms)
    return config
