"""Configuration that changes while a broker runs: its layers, its limits, and what becomes of keys that are altered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.altering import Alteration, AlterOperation, altered, check_alterations
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource
from odradek.config.describe import describe_broker, describe_broker_defaults, describe_topic
from odradek.config.dynamic import DYNAMIC, broker_config_in_force, validate_broker_overrides
from odradek.config.load import load
from odradek.config.topic import TopicConfig, topic_config
from odradek.model import ConfigurationError, ErrorCode, KafkaError

OWN, ALL = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
STATIC = load(None, {"log.retention.ms": "3", "log.dirs": "/a"})


def change(name: str, value: str | None, operation: int = AlterOperation.SET) -> Alteration:
    return Alteration(name=name, operation=operation, value=value)


def alter(own: dict[str, str], *changes: Alteration, broker: BrokerConfig = STATIC) -> dict[str, str]:
    check_alterations(changes)
    return altered(own, changes, TopicConfig.definitions(), lambda name: topic_config(broker, {}).get(name))


def test_every_dynamic_key_is_a_key_of_the_broker_and_takes_its_own_default() -> None:
    definitions = {name: BrokerConfig.definitions()[name] for name in DYNAMIC}
    defaults = {name: text for name, each in definitions.items() if (text := each.format(each.default)) is not None}
    for name, text in defaults.items():
        validate_broker_overrides(STATIC, {name: text}, OWN)
    assert broker_config_in_force(STATIC, defaults, {})[1] == []


def test_a_broker_s_own_layer_beats_that_of_all_brokers_and_both_beat_the_file() -> None:
    config, ignored = broker_config_in_force(STATIC, {"log.retention.ms": "2", "message.max.bytes": "9"}, {})
    assert (config.log_retention_ms, config.message_max_bytes, ignored) == (2, 9, [])
    config, _ = broker_config_in_force(STATIC, {"log.retention.ms": "2"}, {"log.retention.ms": "1"})
    assert config.log_retention_ms == 1
    assert config.log_dirs == ("/a",)
    assert config.is_explicit("log.dirs")
    assert broker_config_in_force(STATIC, {}, {}) == (STATIC, [])


def test_a_description_shows_every_layer_that_sets_the_key() -> None:
    config, _ = broker_config_in_force(STATIC, {"log.retention.ms": "2"}, {"log.retention.ms": "1"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    retention = entries["log.retention.ms"]
    assert (retention.value, retention.source, retention.read_only) == ("1", OWN, False)
    assert [(each.value, each.source) for each in retention.synonyms] == [
        ("1", OWN),
        ("2", ALL),
        ("3", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    assert entries["log.dirs"].read_only
    assert entries["log.dirs"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["message.max.bytes"].source is ConfigSource.DEFAULT_CONFIG


def test_a_topic_inherits_from_the_dynamic_layers() -> None:
    config, _ = broker_config_in_force(STATIC, {"log.retention.ms": "2"}, {})
    entry = next(each for each in describe_topic(config, {}) if each.name == "retention.ms")
    assert (entry.value, entry.source) == ("2", ALL)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        ("log.retention.ms", "2"),
        ("log.retention.ms", "3"),
        ("log.retention.hours", "168"),
    ]


def test_defaults_of_all_brokers_are_described_alone() -> None:
    config, _ = broker_config_in_force(STATIC, {"log.roll.ms": "7"}, {"log.roll.ms": "8"})
    (entry,) = describe_broker_defaults(config)
    assert (entry.name, entry.value, entry.source) == ("log.roll.ms", "7", ALL)
    assert describe_broker_defaults(STATIC) == []


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"log.dirs": "/b"}, "while the broker runs"),
        ({"queued.max.requests": "8"}, "while the broker runs"),
        ({"zookeeper.connect": "x"}, "cannot be changed while the broker runs"),
        ({"log.preallocate": "true"}, "cannot be true here"),
        ({"message.max.bytes": "-1"}, "at least 0"),
        ({"log.cleaner.min.compaction.lag.ms": "2"}, "conflict topic config setting min.compaction.lag.ms"),
    ],
)
def test_invalid_overrides_are_refused_in_one_sentence(overrides: dict[str, str], said: str) -> None:
    config, _ = broker_config_in_force(STATIC, {"log.cleaner.max.compaction.lag.ms": "1"}, {})
    with pytest.raises(ConfigurationError, match=said):
        validate_broker_overrides(config, overrides, OWN)


def test_a_layer_for_all_is_checked_under_what_the_broker_has_of_its_own() -> None:
    config, _ = broker_config_in_force(STATIC, {}, {"log.cleaner.min.compaction.lag.ms": "5"})
    with pytest.raises(ConfigurationError, match="conflict topic config setting"):
        validate_broker_overrides(config, {"log.cleaner.max.compaction.lag.ms": "4"}, ALL)
    validate_broker_overrides(config, {"log.cleaner.max.compaction.lag.ms": "5"}, ALL)


def test_invalid_overrides_of_a_tool_are_ignored_and_named_and_the_others_hold() -> None:
    config, ignored = broker_config_in_force(
        STATIC,
        {"log.dirs": "/b", "message.max.bytes": "7", "log.roll.ms": "soon"},
        {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
    )
    assert (config.message_max_bytes, config.log_dirs, config.log_roll_ms) == (7, ("/a",), None)
    assert config.log_cleaner_min_compaction_lag_ms == 0
    assert [sentence.split()[0] for sentence in ignored] == ["log.dirs", "Invalid", "conflict"]


def test_keys_are_set_and_deleted_one_by_one() -> None:
    own = {"retention.ms": "5", "segment.ms": "6"}
    changes = [change("retention.ms", "7"), change("segment.ms", None, AlterOperation.DELETE)]
    assert alter(own, *changes) == {"retention.ms": "7"}
    assert alter({"left.by.a.tool": "1"}, change("left.by.a.tool", None, AlterOperation.DELETE)) == {}
    assert alter({}, change("retention.ms", None, AlterOperation.DELETE)) == {}


@pytest.mark.parametrize(
    ("own", "operation", "value", "result"),
    [
        ({}, AlterOperation.APPEND, "compact", "delete,compact"),
        ({}, AlterOperation.APPEND, "delete", "delete"),
        ({"cleanup.policy": "compact"}, AlterOperation.APPEND, "delete , compact", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, AlterOperation.SUBTRACT, "compact", "delete"),
        ({}, AlterOperation.SUBTRACT, "delete", ""),
    ],
)
def test_a_list_grows_and_shrinks(own: dict[str, str], operation: AlterOperation, value: str, result: str) -> None:
    assert alter(own, change("cleanup.policy", value, operation)) == {"cleanup.policy": result}


def test_a_list_that_is_not_set_grows_from_what_the_broker_says() -> None:
    broker = load(None, {"log.cleanup.policy": "compact"})
    appended = change("cleanup.policy", "delete", AlterOperation.APPEND)
    assert alter({}, appended, broker=broker) == {"cleanup.policy": "compact,delete"}


def test_a_value_is_stored_without_the_room_around_it_and_has_a_longest_length() -> None:
    assert alter({}, change("retention.ms", " 5\n" + " " * 100_000)) == {"retention.ms": "5"}
    for operation in (AlterOperation.SET, AlterOperation.APPEND):
        with pytest.raises(KafkaError) as raised:
            alter({}, change("cleanup.policy", ",".join(map(str, range(10_000))), operation))
        assert raised.value.code is ErrorCode.invalid_config


@pytest.mark.parametrize("name", ["retention.ms", "no.such.key"])
def test_nothing_is_added_to_what_is_no_list(name: str) -> None:
    with pytest.raises(KafkaError) as raised:
        alter({}, change(name, "1", AlterOperation.APPEND))
    assert raised.value.code is ErrorCode.invalid_config


@pytest.mark.parametrize(
    "changes",
    [
        [change("retention.ms", "1"), change("retention.ms", "2")],
        [change("retention.ms", None)],
        [change("cleanup.policy", None, AlterOperation.APPEND)],
        [change("retention.ms", "1", 4)],
        [change("retention.ms", "1", -1)],
    ],
)
def test_a_request_that_makes_no_sense_is_an_invalid_request(changes: list[Alteration]) -> None:
    with pytest.raises(KafkaError) as raised:
        alter({}, *changes)
    assert raised.value.code is ErrorCode.invalid_request


@given(own=st.dictionaries(st.sampled_from("abc"), st.text("xy", max_size=2)), name=st.sampled_from("abc"))
def test_setting_what_was_there_undoes_any_change(own: dict[str, str], name: str) -> None:
    changed = alter(own, change(name, "other"))
    back = change(name, own[name]) if name in own else change(name, None, AlterOperation.DELETE)
    assert alter(changed, back) == own
