"""Unsupported features are refused with Kafka's errors, so that existing clients report them and continue."""

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.interop.existing_clients import CLIENTS, DEADLINE_S


def test_more_replicas_than_there_are_brokers_are_refused(servers: str, topic: str):
    admin = AdminClient({"bootstrap.servers": servers})
    future = admin.create_topics([NewTopic(topic, 1, 3)])[topic]
    with pytest.raises(KafkaException) as caught:
        future.result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_a_record_larger_than_the_topic_allows_is_refused_and_the_next_one_written(servers: str, topic: str):
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
    admin.create_topics([wanted])[topic].result(DEADLINE_S)
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for size in (5000, 10):
        producer.produce(topic, bytes(size), on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


def test_fetching_beyond_the_log_end_is_offset_out_of_range(servers: str, topic: str):
    CLIENTS[0].create(servers, topic, 1)
    settings = {"bootstrap.servers": servers, "group.id": "none", "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 1000)])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_producing_to_an_unknown_topic_creates_it(servers: str, topic: str):
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"first")
    assert producer.flush(DEADLINE_S) == 0
    assert topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_S).topics
