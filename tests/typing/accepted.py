"""Calls of the clients that mypy and basedpyright accept, with the types of their results; nothing runs them."""

from typing import assert_type

from odradek.clients import Admin, Consumer, OffsetAndMetadata, Producer, SimpleConsumer, ZookeeperConsumer, blocking
from odradek.clients.setting_types import ConsumerConfig, ProducerConfig
from odradek.model import TopicPartition

T0 = TopicPartition("t", 0)
FAST: ProducerConfig = {"linger_ms": 0, "compression_type": "lz4", "acks": 1}
READER: ConsumerConfig = {"client_rack": None, "auto_offset_reset": "by_duration:P1D"}


def settings() -> None:
    Producer(["a:9092", "b:9092"], client_id="writer", acks="all", enable_idempotence=True)
    Producer(**FAST, partitioner="legacy")
    Consumer("t", "u", group_id="g", partition_assignment_strategy=["range", "sticky"], **READER)
    SimpleConsumer("a:9092", isolation_level="read_committed", check_crcs=False)
    Admin("a:9092", timeout_ms=5, request_timeout_ms=5)
    ZookeeperConsumer("zookeeper://a:2181", group_id="g", offsets_storage="kafka")
    blocking.Producer("a:9092", **FAST)
    blocking.Consumer("t", group_protocol="consumer", group_remote_assignor=None)
    blocking.SimpleConsumer(fetch_min_bytes=1)
    blocking.ZookeeperConsumer("sqlite:///tree", consumer_id="c")
    blocking.Admin(retry_backoff_ms=1)


async def offsets(consumer: Consumer, simple: SimpleConsumer, admin: Admin) -> None:
    await consumer.commit({("t", 0): 5, ("t", 1): OffsetAndMetadata(6)})
    await consumer.commit({T0: 5})
    assert_type(await consumer.committed(("t", 0), T0), dict[TopicPartition, OffsetAndMetadata | None])
    await consumer.commit(dict.fromkeys([T0], OffsetAndMetadata(6)))
    assert_type(await consumer.beginning_offsets([("t", 0), T0]), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets({("t", 0)}), dict[TopicPartition, int])
    await consumer.commit(await consumer.end_offsets(consumer.assignment()))
    await consumer.offsets_for_times({("t", 0): 0})
    await simple.fetch_many({("t", 0): 0})
    await simple.fetch_many(await simple.beginning_offsets([T0]))
    await admin.alter_group_offsets("g", {("t", 0): 5})
    await admin.delete_records({T0: 5})


def blocking_offsets(consumer: blocking.Consumer) -> None:
    consumer.commit({("t", 0): 5})
    assert_type(consumer.end_offsets([("t", 0), T0]), dict[TopicPartition, int])
