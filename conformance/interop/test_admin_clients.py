"""Administration with existing clients: confluent-kafka's and kafka-python's (M10)."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
)
from kafka.admin import ConfigResource as PythonResource

from conformance.interop.existing_clients import CLIENTS, DEADLINE_S

TOPIC, BROKER = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER


@pytest.fixture
def admin(servers: str, topic: str) -> AdminClient:
    """With a topic of two partitions."""
    CLIENTS[0].create(servers, topic, 2)
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def python_admin(servers: str, topic: str) -> Iterator[Any]:
    CLIENTS[0].create(servers, topic, 2)
    client = kafka.KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def write(servers: str, topic: str, *values: str, partition: int = 0, failures: list[Any] | None = None) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for value in values:
        producer.produce(
            topic,
            value,
            key="key",  # compacted topics want one
            partition=partition,
            on_delivery=lambda error, _: error and failures is not None and failures.append(error.code()),
        )
        assert producer.flush(DEADLINE_S) == 0


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def entries(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, ConfigEntry] = future.result(DEADLINE_S)
    return found


def alter(admin: AdminClient, kind: Any, name: str, *changes: ConfigEntry, **options: Any) -> None:
    wanted = ConfigResource(kind, name, incremental_configs=list(changes))
    (future,) = admin.incremental_alter_configs([wanted], **options).values()
    future.result(DEADLINE_S)


def change(name: str, value: str | None, operation: Any = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_confluent_configures_a_topic_while_it_is_written_to(admin: AdminClient, servers: str, topic: str) -> None:
    failures: list[Any] = []
    write(servers, topic, "x" * 500, failures=failures)
    alter(admin, TOPIC, topic, change("max.message.bytes", "300"), validate_only=True)
    write(servers, topic, "x" * 500, failures=failures)
    assert failures == []
    alter(
        admin,
        TOPIC,
        topic,
        change("max.message.bytes", "300"),
        change("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    )
    write(servers, topic, "x" * 500, failures=failures)
    assert failures == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]
    found = entries(admin, TOPIC, topic)
    assert (found["max.message.bytes"].value, found["cleanup.policy"].value) == ("300", "delete,compact")
    assert found["max.message.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    synonyms = found["max.message.bytes"].synonyms
    assert {name: each.value for name, each in synonyms.items()} == {
        "max.message.bytes": "300",
        "message.max.bytes": "1048588",
    }
    alter(admin, TOPIC, topic, change("max.message.bytes", None, AlterConfigOpType.DELETE))
    write(servers, topic, "x" * 500, failures=failures)
    assert len(failures) == 1
    assert entries(admin, TOPIC, topic)["max.message.bytes"].is_default


def test_confluent_gets_an_error_for_a_configuration_it_may_not_set(admin: AdminClient, topic: str) -> None:
    for kind, name, wrong, code in (
        (TOPIC, topic, change("no.such.key", "1"), confluent_kafka.KafkaError.INVALID_CONFIG),
        (TOPIC, topic, change("retention.ms", "soon"), confluent_kafka.KafkaError.INVALID_CONFIG),
        (TOPIC, "gone", change("retention.ms", "1"), confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART),
        (BROKER, "0", change("log.dirs", "/tmp"), confluent_kafka.KafkaError.INVALID_REQUEST),
    ):
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            alter(admin, kind, name, wrong)
        assert raised.value.args[0].code() == code


def test_confluent_replaces_a_topic_s_configuration_the_old_way(admin: AdminClient, topic: str) -> None:
    alter(admin, TOPIC, topic, change("retention.ms", "123456789"))
    with pytest.warns(DeprecationWarning, match="incremental"):
        (future,) = admin.alter_configs([ConfigResource(TOPIC, topic, {"segment.ms": "600000"})]).values()
    future.result(DEADLINE_S)
    found = entries(admin, TOPIC, topic)
    assert found["segment.ms"].value == "600000"
    assert found["retention.ms"].value != "123456789"


def test_confluent_configures_the_broker_and_its_topics_follow(admin: AdminClient, topic: str) -> None:
    alter(admin, BROKER, "0", change("log.roll.jitter.ms", "7"))
    found = entries(admin, BROKER, "0")["log.roll.jitter.ms"]
    assert (found.value, found.source, found.is_read_only) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG.value, False)
    inherited = entries(admin, TOPIC, topic)["segment.jitter.ms"]
    assert (inherited.value, inherited.source) == ("7", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    alter(admin, BROKER, "0", change("log.roll.jitter.ms", None, AlterConfigOpType.DELETE))
    assert entries(admin, TOPIC, topic)["segment.jitter.ms"].is_default


def test_confluent_adds_partitions_and_writes_to_them(admin: AdminClient, servers: str, topic: str) -> None:
    def create(count: int, **options: Any) -> None:
        admin.create_partitions([NewPartitions(topic, count)], **options)[topic].result(DEADLINE_S)

    create(5, validate_only=True)
    assert len(admin.list_topics(topic, DEADLINE_S).topics[topic].partitions) == 2
    create(5)
    write(servers, topic, "a", partition=4)
    assert len(admin.list_topics(topic, DEADLINE_S).topics[topic].partitions) == 5
    for count in (5, 4):
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            create(count)
        assert raised.value.args[0].code() == confluent_kafka.KafkaError.INVALID_PARTITIONS


def test_confluent_deletes_records(admin: AdminClient, servers: str, topic: str) -> None:
    write(servers, topic, "a", "b", "c")
    partition = confluent_kafka.TopicPartition(topic, 0, 2)
    assert admin.delete_records([partition])[partition].result(DEADLINE_S).low_watermark == 2
    (future,) = admin.list_offsets({confluent_kafka.TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    assert future.result(DEADLINE_S).offset == 2
    beyond = confluent_kafka.TopicPartition(topic, 0, 9)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        admin.delete_records([beyond])[beyond].result(DEADLINE_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE


def test_confluent_deletes_a_group(admin: AdminClient, servers: str, topic: str) -> None:
    commit(servers, topic, topic, 1)
    assert admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S) is None
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        admin.delete_consumer_groups([topic])[topic].result(DEADLINE_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_configures_and_describes(python_admin: Any, topic: str) -> None:
    resource = PythonResource("TOPIC", topic)
    python_admin.alter_configs([PythonResource("TOPIC", topic, configs={"retention.ms": "1234567"})])
    described = python_admin.describe_configs([resource], include_synonyms=True)["topic"][topic]
    assert list(described) == ["retention.ms"]
    synonyms = described["retention.ms"]["synonyms"]
    assert [(each["name"], each["value"], each["source"]) for each in synonyms] == [
        ("retention.ms", "1234567", "DYNAMIC_TOPIC_CONFIG"),
        ("log.retention.ms", "-1", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    python_admin.alter_configs([PythonResource("TOPIC", topic, configs={"retention.ms": ("DELETE", None)})])
    assert "1234567" not in str(python_admin.describe_configs([resource]))
    assert topic in python_admin.list_config_resources(["TOPIC"])["topic"]


def test_kafka_python_pages_through_partitions_after_adding_some(python_admin: Any, topic: str) -> None:
    python_admin.create_partitions({topic: {"count": 4, "assignments": [[0], [0]]}})
    first = python_admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert first["next_cursor"] == {"topic_name": topic, "partition_index": 3}
    second = python_admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert second["next_cursor"] is None
    pages = [[each["partition_index"] for each in page["topics"][0]["partitions"]] for page in (first, second)]
    assert pages == [[0, 1, 2], [3]]


def test_kafka_python_deletes_records_groups_and_offsets(python_admin: Any, servers: str, topic: str) -> None:
    write(servers, topic, "a", "b", "c")
    where = kafka.TopicPartition(topic, 0)
    assert python_admin.delete_records({where: 1})[where]["low_watermark"] == 1
    commit(servers, topic, topic, 2)
    python_admin.delete_group_offsets(topic, [where])
    assert python_admin.list_group_offsets(topic) == {topic: {}}
    commit(servers, topic, topic, 2)
    assert python_admin.delete_groups([topic, f"no {topic}"]) == {topic: "OK", f"no {topic}": "GroupIdNotFoundError"}
    assert topic not in [group["group_id"] for group in python_admin.list_groups()]


def test_kafka_python_describes_log_dirs_and_producers(python_admin: Any, servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(topic, "a" * 1000, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    (broker,) = python_admin.describe_log_dirs({topic: [0]})
    (directory,) = broker["log_dirs"]
    assert 0 < directory["usable_bytes"] < directory["total_bytes"]
    assert directory["topics"][0]["partitions"][0]["partition_size"] > 1000
    where = kafka.TopicPartition(topic, 0)
    (known,) = python_admin.describe_producers([where])[where].active_producers
    assert (known.producer_epoch, known.last_sequence, known.current_transaction_start_offset) == (0, 0, -1)
