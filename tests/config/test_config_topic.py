"""A topic's keys: what they inherit from the broker, and how they are described."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource
from odradek.config.describe import describe_topic
from odradek.config.load import load
from odradek.config.topic import (
    ALL_PARTITIONS,
    TopicConfig,
    throttled_partitions,
    topic_config,
    validate_topic_overrides,
)
from odradek.model import ConfigurationError


def test_a_topic_s_defaults_are_those_of_a_default_broker() -> None:
    assert topic_config(BrokerConfig(), {}) == TopicConfig()


def test_every_synonym_is_a_key_of_the_broker() -> None:
    known = BrokerConfig.definitions().keys()
    alone = {
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
    for definition in TopicConfig.definitions().values():
        assert bool(definition.synonyms) != (definition.name in alone), definition.name
        assert {key for key, _ in definition.synonyms} <= known, definition.name


def test_a_topic_inherits_from_the_broker_and_overrides_it() -> None:
    broker = load(None, {"log.retention.minutes": "2", "log.roll.hours": "1", "message.max.bytes": "77"})
    config = topic_config(broker, {"segment.ms": "5", "cleanup.policy": "compact,delete"})
    assert (config.retention_ms, config.segment_ms, config.max_message_bytes) == (120_000, 5, 77)
    assert config.cleanup_policy == ("compact", "delete")


def test_endless_retention_is_inherited_as_endless() -> None:
    assert topic_config(load(None, {"log.retention.hours": "-1"}), {}).retention_ms == -1


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"retention.mss": "1"}, "did you mean retention.ms"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"retention.ms": None}, "Null value"),
        ({"min.insync.replicas": "0"}, "at least 1"),
        ({"compression.type": "rar"}, "one of"),
        ({"preallocate": "true"}, "preallocate cannot be true here: segments grow as they are written"),
        ({"preallocate": "maybe"}, "true or false"),
        ({"remote.storage.enable": "true"}, "there is no tiered storage; leave it unset"),
        ({"local.retention.ms": "-3"}, "at least -2"),
        ({"leader.replication.throttled.replicas": "x"}, r"literal '\*' or a list of replicas"),
        ({"leader.replication.throttled.replicas": "0:1,*"}, "list of replicas"),
        ({"follower.replication.throttled.replicas": "0:-1"}, r"\[partitionId\]:\[brokerId\]"),
        ({"follower.replication.throttled.replicas": f"0:{'9' * 5_000}"}, "list of replicas"),
        ({"max.decompressed.message.bytes": "1000"}, "decompressed size"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "conflict topic config setting"),
    ],
)
def test_a_wrong_topic_configuration_is_one_sentence(overrides, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        validate_topic_overrides(BrokerConfig(), overrides)


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("", set()), ("*", {ALL_PARTITIONS}), ("0:1", set()), ("0:1, 3:2,07:02,3:2", {3, 7})],
)
def test_a_topic_names_the_throttled_replicas_of_each_broker(text: str, partitions: set[int]) -> None:
    """Broker 2's."""
    config = topic_config(BrokerConfig(), {"leader.replication.throttled.replicas": text})
    assert throttled_partitions(config.leader_replication_throttled_replicas, 2) == partitions


def test_every_key_of_a_topic_takes_its_own_default() -> None:
    definitions = TopicConfig.definitions()
    defaults = {name: str(each.format(each.default)) for name, each in definitions.items()}
    assert len(defaults) == 37, "as many as Kafka 4.4 has"
    assert validate_topic_overrides(BrokerConfig(), defaults) == defaults
    assert topic_config(BrokerConfig(), defaults) == TopicConfig()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("local.retention.ms", "1000"),
        ("local.retention.bytes", "7"),
        ("errors.deadletterqueue.group.enable", "true"),
        ("remote.copy.lag.bytes", "7"),
        ("remote.copy.lag.ms", "1000"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
    ],
)
def test_keys_of_absent_features_that_have_no_effect_take_every_value(key: str, text: str) -> None:
    assert validate_topic_overrides(BrokerConfig(), {key: text}) == {key: text}


def test_valid_overrides_are_kept_as_they_were_written() -> None:
    assert validate_topic_overrides(BrokerConfig(), {"retention.ms": "5"}) == {"retention.ms": "5"}


def test_a_description_lists_the_sources_strongest_first() -> None:
    entries = {
        entry.name: entry for entry in describe_topic(load(None, {"log.retention.ms": "9"}), {"retention.ms": "5"})
    }
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(synonym.name, synonym.value) for synonym in retention.synonyms] == [
        ("retention.ms", "5"),
        ("log.retention.ms", "9"),
        ("log.retention.hours", "168"),
    ]
    assert entries["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
