"""Keys of Kafka's that have no effect here: the whole table, and what of it is refused."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, ConfigType
from odradek.config.describe import describe_broker
from odradek.config.dynamic import DYNAMIC, validate_broker_overrides
from odradek.config.load import load
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.unimplemented_keys import IGNORED_KEYS, UnimplementedKey, unimplemented_keys
from odradek.model import ConfigurationError

OWN, ALL = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
KEYS = list(unimplemented_keys().values())
MODES = {"read-only", "per-broker", "cluster-wide"}


def default_text(key: UnimplementedKey) -> str:
    return key.definition.format(key.definition.default) or ""


def test_every_key_is_in_one_table() -> None:
    ours = BrokerConfig.definitions().keys()
    assert ours.isdisjoint(unimplemented_keys())
    assert REPLACED_KEYS.keys().isdisjoint(unimplemented_keys())
    assert ours >= DYNAMIC
    assert {key.mode for key in KEYS} == MODES
    assert [key.definition.name for key in KEYS] == sorted(unimplemented_keys())


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.definition.name)
def test_a_key_takes_its_default_in_a_file_and_says_nothing_of_it(key: UnimplementedKey, caplog) -> None:
    name = key.definition.name
    if key.definition.default is None:
        return
    config = load(None, {name: default_text(key)})
    (entry,) = (each for each in describe_broker(config) if each.name == name)
    assert (entry.value, entry.source) == (default_text(key), ConfigSource.STATIC_BROKER_CONFIG)
    assert (name in caplog.text) == (name in IGNORED_KEYS)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.definition.name)
def test_a_key_changes_while_the_broker_runs_where_kafka_allows_it(key: UnimplementedKey) -> None:
    name, text = key.definition.name, default_text(key)
    if key.mode == "read-only":
        for source in (OWN, ALL):
            with pytest.raises(ConfigurationError, match=name):
                validate_broker_overrides(BrokerConfig(), {name: text}, source)
        return
    validate_broker_overrides(BrokerConfig(), {name: text}, OWN)
    if key.mode == "cluster-wide":
        validate_broker_overrides(BrokerConfig(), {name: text}, ALL)
    else:
        with pytest.raises(ConfigurationError, match="set it for each broker"):
            validate_broker_overrides(BrokerConfig(), {name: text}, ALL)


@pytest.mark.parametrize("key", [key for key in KEYS if key.definition.honoured], ids=lambda key: key.definition.name)
def test_a_value_that_cannot_be_honoured_is_refused_with_what_to_do(key: UnimplementedKey) -> None:
    definition = key.definition
    wrong = "true" if definition.default is False else "1000" if isinstance(definition.default, int) else "a:B"
    shown = "set" if definition.type is ConfigType.PASSWORD else wrong
    with pytest.raises(ConfigurationError, match=rf"{definition.name} cannot be {shown} here: .*; leave"):
        load(None, {definition.name: wrong})


def test_a_value_without_effect_is_warned_of(caplog) -> None:
    load(None, {"group.share.max.size": "7"})
    assert caplog.messages == ["group.share.max.size is ignored: this broker has no such mechanism"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"background.threads": "0"}, "at least 1"),
        ({"background.threads": "many"}, "Not a number of type INT"),
        ({"ssl.protocol": "x"}, "no such mechanism; leave it unset"),
        ({"num.io.threads": "900"}, "no effect: one event loop serves all requests"),
        ({"inter.broker.protocol.version": "3.0"}, "brokers agree on versions by themselves; leave it unset"),
        ({"log.retention.mss": "1"}, "no configuration key 'log.retention.mss'; did you mean log.retention.ms"),
        ({"listener.name.x.max.connections": "5"}, "cannot be changed while the broker runs"),
        ({"leader.replication.throttled.rate": "-1"}, "at least 0"),
        ({"follower.replication.throttled.rate": "fast"}, "Not a number of type LONG"),
        ({"replication.quota.window.num": "9"}, "cannot be changed while the broker runs"),
    ],
)
def test_a_value_that_may_not_be_kept_is_refused(overrides: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        validate_broker_overrides(BrokerConfig(), overrides, OWN)


def test_the_error_for_an_unknown_key_is_short_however_long_the_key_is() -> None:
    with pytest.raises(ConfigurationError) as caught:
        validate_broker_overrides(BrokerConfig(), {"log.retention.mss" * 10_000: "1"}, OWN)
    assert len(str(caught.value)) < 500


def test_a_key_that_kafka_lacks_too_is_refused_in_a_file() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean background\.threads"):
        load(None, {"background.thread": "1"})
