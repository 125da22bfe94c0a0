"""The broker's keys: types, limits, defaults, and where they come from."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, ConfigType
from odradek.config.describe import describe_broker
from odradek.config.listeners import parse_listener
from odradek.config.load import load
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.topic import topic_config
from odradek.config.unimplemented_keys import IGNORED_KEYS
from odradek.config.zookeeper import tree_url
from odradek.model import ConfigurationError, parse_host_port


def test_every_field_is_named_after_its_key_and_documented() -> None:
    for name, definition in BrokerConfig.definitions().items():
        assert definition.name == name
        assert definition.doc.endswith("."), name
        assert hasattr(BrokerConfig(), definition.attribute), name
    values = {each.name for each in dataclasses.fields(BrokerConfig)} - {
        "listener_overrides",
        "unimplemented",
        "explicit",
        "source",
        "beneath",
    }
    assert values == {definition.attribute for definition in BrokerConfig.definitions().values()}


def test_every_default_survives_being_written_and_read() -> None:
    for definition in BrokerConfig.definitions().values():
        text = definition.format(definition.default)
        assert text is None or definition.parse(text) == definition.default, definition.name


def test_an_empty_configuration_has_kafka_s_defaults() -> None:
    config = load(None, {})
    assert config == BrokerConfig()
    assert config.log_segment_bytes == 1_073_741_824
    assert topic_config(config, {}).retention_ms == 7 * 24 * 3_600_000
    assert config.auto_create_topics_enable is True
    assert config.group_initial_rebalance_delay_ms == 3_000


def test_overrides_beat_the_file(tmp_path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions = 3\nlog.dirs = /one, /two\n# a comment\n")
    config = load(str(file), {"num.partitions": "5"})
    assert (config.num_partitions, config.log_dirs) == (5, ("/one", "/two"))
    assert config.is_explicit("log.dirs")


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("log.segment.byte", "1", "did you mean log.segment.bytes"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "many", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("num.partitions", "９", "Not a number of type INT"),
        ("num.partitions", "9" * 5000, "Not a number of type INT"),
        ("num.partitions", str(2**31), "Not a number of type INT"),
        ("delete.topic.enable", "yes", "true or false"),
        ("log.cleanup.policy", "delete,forget", "one of: compact, delete"),
        ("log.flush.mode", "always", "one of: none, group"),
        ("log.cleaner.min.cleanable.ratio", "half", "Invalid value half .*Not a number of type DOUBLE"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Not a number of type DOUBLE"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "more than 1 MiB for each cleaner thread"),
        ("log.cleaner.threads", "128", "more than 1 MiB for each cleaner thread"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("listeners", "PLAINTEXT//nowhere", "HOST:PORT"),
        ("listeners", "PLAIN TEXT://localhost:9092", "NAME://HOST:PORT, not 'PLAIN TEXT"),
        ("listeners", "", "listeners needs a value"),
        ("log.dirs", "a,b,a", "log.dirs names a directory twice: a, b, a"),
        ("queued.max.request.bytes", "5", "socket.request.max.bytes"),
        ("group.min.session.timeout.ms", "1800001", "group.max.session.timeout.ms"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(key, text, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(None, {key: text})


def test_a_missing_file_is_one_sentence(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="can't read the configuration"):
        load(str(tmp_path / "absent"), {})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        load(str(tmp_path / "binary"), {})


def test_keys_with_nothing_to_set_are_warned_of(caplog) -> None:
    load(None, {"num.io.threads": "8"})
    assert "num.io.threads is ignored" in caplog.text
    known = BrokerConfig.definitions().keys()
    assert not known & IGNORED_KEYS.keys()
    assert not known & REPLACED_KEYS.keys()


def test_a_broker_starts_with_kafka_s_zookeeper_properties_but_for_the_address_of_the_tree(
    tmp_path: Path, caplog
) -> None:
    """The keys of the last `config/server.properties` that named a ZooKeeper, Kafka 3.9's."""
    shipped = tmp_path / "server.properties"
    shipped.write_text(
        """
        broker.id=0
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.retention.check.interval.ms=300000
        zookeeper.connection.timeout.ms=18000
        group.initial.rebalance.delay.ms=0
        """
    )
    assert load(str(shipped), {}).log_dirs == ("logs",)
    assert {line.split()[0] for line in caplog.messages} == {
        "num.network.threads",
        "num.io.threads",
    }


def test_a_broker_takes_the_file_of_kafka_0_8(tmp_path: Path, caplog) -> None:
    """The keys of the `config/server.properties` of Kafka 0.8.2, and those of it that Kafka has dropped since."""
    shipped = tmp_path / "server.properties"
    shipped.write_text(
        """
        broker.id=0
        port=9093
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        log.retention.check.interval.ms=300000
        log.cleaner.enable=false
        zookeeper.connect=z1:2181,z2:2181/kafka
        zookeeper.connection.timeout.ms=6000
        controller.message.queue.size=10
        offsets.commit.required.acks=-1
        replica.lag.max.messages=4000
        zookeeper.sync.time.ms=2000
        """
    )
    config = load(str(shipped), {})
    assert config.listeners == ("PLAINTEXT://localhost:9093",)
    assert tree_url(config.zookeeper_connect) == "zookeeper://z1:2181,z2:2181/kafka"
    assert len([line for line in caplog.messages if " is ignored: " in line]) == 6


@pytest.mark.parametrize(
    ("properties", "listeners", "advertised"),
    [
        ({"port": "9093"}, "PLAINTEXT://localhost:9093", None),
        ({"host.name": "h"}, "PLAINTEXT://h:9092", None),
        ({"host.name": "h", "advertised.port": "1"}, "PLAINTEXT://h:9092", "PLAINTEXT://h:1"),
        ({"advertised.host.name": "a", "port": "2"}, "PLAINTEXT://localhost:2", "PLAINTEXT://a:2"),
        ({"port": "9093", "listeners": "PLAINTEXT://x:1"}, "PLAINTEXT://x:1", None),
        ({"port": " "}, "PLAINTEXT://localhost:9092", None),
    ],
)
def test_the_address_of_a_broker_of_kafka_0_8_is_a_listener(properties, listeners, advertised) -> None:
    config = load(None, properties)
    assert config.listeners == (listeners,)
    assert config.advertised_listeners == (None if advertised is None else (advertised,))


def test_values_given_directly_are_checked_too() -> None:
    with pytest.raises(ConfigurationError, match=r"num\.partitions"):
        BrokerConfig(num_partitions=0)
    with pytest.raises(ConfigurationError, match=r"num\.partitions needs a value"):
        BrokerConfig(num_partitions=None)


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finest_retention_key_wins(properties, retention_ms) -> None:
    assert topic_config(load(None, properties), {}).retention_ms == retention_ms


def test_a_description_separates_defaults_from_settings_and_hides_internal_keys() -> None:
    entries = {entry.name: entry for entry in describe_broker(load(None, {"num.partitions": "1", "broker.rack": "a"}))}
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert [synonym.source for synonym in entries["num.partitions"].synonyms] == [
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    assert entries["log.roll.ms"].value is None
    assert entries["log.roll.ms"].synonyms == ()
    assert entries["broker.rack"].value == "a"
    assert entries["log.dirs"].type is ConfigType.LIST
    assert entries["delete.topic.enable"].value == "true"
    assert "bench.discard.writes" not in entries


def test_addresses_are_read_as_people_write_them() -> None:
    assert parse_host_port("localhost:0") == ("localhost", 0)
    assert parse_host_port("[::1]:9092") == ("::1", 9092)
    assert parse_host_port(":9092") == ("", 9092)
    assert parse_listener("localhost:1") == ("PLAINTEXT", "localhost", 1)
    assert str(parse_listener("plaintext://[::1]:1")) == "PLAINTEXT://[::1]:1"
    assert parse_listener("PLAINTEXT://:9092") == ("PLAINTEXT", "", 9092)


@given(st.text(alphabet="ab:[]/0129.-", max_size=12))
def test_any_text_is_an_address_or_a_configuration_error(text) -> None:
    try:
        name, host, port = parse_listener(text)
    except ConfigurationError:
        return
    assert name
    assert 0 <= port <= 65_535
    assert parse_listener(f"{name}://{f'[{host}]' if ':' in host else host}:{port}") == (name, host, port)
