"""Groups as the admin clients of confluent-kafka and kafka-python see and change them (M10)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

from conformance.interop.existing_clients import CLIENTS, DEADLINE_S
from odradek.testing import eventually


@pytest.fixture
def admin(servers: str, topic: str) -> AdminClient:
    """With a topic of two partitions, and an offset in each of them of the groups `busy` and `idle` of the test."""
    CLIENTS[0].create(servers, topic, 2)
    made = AdminClient({"bootstrap.servers": servers})
    partitions = Partition(topic, 0, 3), Partition(topic, 1, 4)
    for name in ("busy", "idle"):
        # librdkafka does not try again while a new coordinator loads.
        eventually(lambda group=f"{topic}.{name}": alter(made, group, *partitions) == [None, None], within_s=DEADLINE_S)
    return made


@contextmanager
def member(servers: str, group: str, topic: str) -> Iterator[None]:
    """A member of the group that has partitions."""
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": "one", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.05) or consumer.assignment(), within_s=DEADLINE_S)
        yield
    finally:
        consumer.close()


def alter(admin: AdminClient, group: str, *partitions: Partition) -> list[Any]:
    """The errors by partition."""
    wanted = ConsumerGroupTopicPartitions(group, list(partitions))
    altered = admin.alter_consumer_group_offsets([wanted])[group].result(DEADLINE_S)
    return [each.error and each.error.code() for each in altered.topic_partitions]


def offsets(admin: AdminClient, group: str, **options: Any) -> dict[int, int]:
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], **options)[group]
    return {each.partition: each.offset for each in future.result(DEADLINE_S).topic_partitions}


def test_confluent_lists_groups_by_state_and_type(admin: AdminClient, servers: str, topic: str) -> None:
    """KIP-518, KIP-848."""

    def listed(**filters: Any) -> set[str]:
        found = admin.list_consumer_groups(**filters).result(DEADLINE_S)
        assert found.errors == []
        return {each.group_id for each in found.valid if each.group_id.startswith(topic)}

    busy, idle = f"{topic}.busy", f"{topic}.idle"
    with member(servers, busy, topic):
        assert listed(states={ConsumerGroupState.STABLE}) == {busy}
        assert listed(states={ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD}) == {idle}
        assert listed(types={ConsumerGroupType.CLASSIC}) == listed() == {busy, idle}
        assert listed(types={ConsumerGroupType.CONSUMER}) == set()


def test_confluent_describes_several_groups_and_their_members(admin: AdminClient, servers: str, topic: str) -> None:
    busy, idle = f"{topic}.busy", f"{topic}.idle"
    with member(servers, busy, topic):
        futures = admin.describe_consumer_groups([busy, idle, f"{topic}.none"])
        first, second, third = (futures[each].result(DEADLINE_S) for each in (busy, idle, f"{topic}.none"))
    assert [each.state for each in (first, second, third)] == [
        ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD,
    ]  # fmt: skip
    (only,) = first.members
    assert (only.client_id, first.partition_assignor, second.members) == ("one", "range", [])
    assert [each.partition for each in only.assignment.topic_partitions] == [0, 1]


def test_confluent_reads_and_alters_offsets_of_groups_without_members(
    admin: AdminClient, servers: str, topic: str
) -> None:
    busy, idle = f"{topic}.busy", f"{topic}.idle"
    assert offsets(admin, idle) == {0: 3, 1: 4}
    assert alter(admin, idle, Partition(topic, 1, 0)) == [None]
    assert offsets(admin, idle, require_stable=True) == {0: 3, 1: 0}
    assert offsets(admin, f"{topic}.none") == {}
    with member(servers, busy, topic):
        assert alter(admin, busy, Partition(topic, 0, 0)) == [confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID]
    assert offsets(admin, busy) == {0: 3, 1: 4}


def test_kafka_python_reads_several_groups_and_resets_one(admin: AdminClient, servers: str, topic: str) -> None:
    """KIP-709."""
    busy, idle, first = f"{topic}.busy", f"{topic}.idle", kafka.TopicPartition(topic, 0)
    client = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        with member(servers, busy, topic):
            listed = [
                each["group_id"] for each in client.list_groups(states_filter=["stable"], types_filter=["CLASSIC"])
            ]
            assert busy in listed
            assert idle not in listed
            described = client.describe_groups([busy, idle])
            assert [described[each]["group_state"] for each in (busy, idle)] == ["Stable", "Empty"]
        found = client.list_group_offsets({busy: None, idle: [first]})
        assert {group: {key.partition: each.offset for key, each in some.items()} for group, some in found.items()} == {
            busy: {0: 3, 1: 4},
            idle: {0: 3},
        }
        client.reset_group_offsets(idle, {first: kafka.admin.OffsetSpec.LATEST})
        assert offsets(admin, idle) == {0: 0, 1: 4}
    finally:
        client.close()
