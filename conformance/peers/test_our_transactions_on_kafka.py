"""The transactions of our producer on Apache Kafka and on our broker, by both protocols (KIP-98, KIP-890)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bench.peers.kafka_peer import KafkaBroker, kafka_home
from conformance.peers.compare_with_kafka import DEADLINE_S
from odradek.clients import Admin, Consumer, Producer, ProducerFencedError, TransactionAbortedError
from odradek.model import KafkaError
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


async def read(servers: str, topic: str, level: str) -> list[bytes]:
    async with Consumer(bootstrap_servers=servers, isolation_level=level, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        (end,) = (await consumer.end_offsets([(topic, 0)])).values()
        found: list[bytes] = []
        while await consumer.position((topic, 0)) < end:
            found += [record.value or b"" for record in await consumer.poll(1_000)]
        return found


async def scene(servers: str, topic: str, name: str) -> Any:
    """Commit, abort, pass offsets on, be fenced; return what can be seen of it."""
    seen: list[Any] = []
    async with Admin(servers) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        features = (await admin.describe_broker_versions()).finalized_features
        seen.append(features["transaction.version"][1])
    async with Producer(servers, transactional_id=name) as producer:
        for number in range(5):
            async with producer.transaction():
                for value in range(3):
                    await producer.send(topic, b"%d-%d" % (number, value), partition=0)
        with pytest.raises(LookupError):
            async with producer.transaction():
                await (await producer.send(topic, b"aborted", partition=0))
                raise LookupError
        source = Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        )
        async with source:
            records = await source.poll()
            async with producer.transaction():
                await producer.send(topic, b"processed", partition=0)
                await producer.send_offsets({(topic, 0): records[-1].offset + 1}, source.group_metadata())
            seen.append((await source.committed((topic, 0)))[topic, 0])  # type: ignore[index]
            with pytest.raises(TransactionAbortedError, match="ILLEGAL_GENERATION"):
                async with producer.transaction():
                    await producer.send_offsets({(topic, 0): 1}, source.group_metadata()._replace(generation_id=99))
            seen.append((await source.committed((topic, 0)))[topic, 0])  # type: ignore[index]
        await producer.begin_transaction()
        await (await producer.send(topic, b"of a zombie", partition=0))
        async with Producer(servers, transactional_id=name) as other, other.transaction():
            await other.send(topic, b"of the other", partition=0)
        for call in (producer.commit_transaction, producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(ProducerFencedError, match="another producer was started"):
                await call()
    with pytest.raises(KafkaError, match=r"transaction\.max\.timeout\.ms"):
        await Producer(servers, transactional_id=name, transaction_timeout_ms=1_000_000_000).start()
    return seen, await read(servers, topic, "read_committed"), await read(servers, topic, "read_uncommitted")


async def limited(servers: str, topic: str) -> Any:
    async with asyncio.timeout(3 * DEADLINE_S):
        return await scene(servers, topic, f"producer of {topic}")


def test_committed_and_aborted_transactions_are_the_same_on_both(tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path / "kafka", options=OPTIONS, heap="384M", short_lived=True)
    with kafka, ServedBroker(tmp_path / "ours", options=OPTIONS) as ours:
        version_2 = asyncio.run(limited(kafka.bootstrap_servers, "of-version-2"))
        assert version_2[0][0] == 2
        assert version_2[1][-2:] == [b"processed", b"of the other"]
        assert len(version_2[1]) == 17
        assert len(version_2[2]) == 19
        assert asyncio.run(limited(ours.bootstrap_servers, "of-ours")) == version_2
        arguments = ["--bootstrap-server", kafka.bootstrap_servers, "downgrade", "--feature", "transaction.version=1"]
        kafka_home().tool("org.apache.kafka.tools.FeatureCommand", *arguments)
        (level, *offsets), *values = asyncio.run(limited(kafka.bootstrap_servers, "of-version-1"))
        assert level == 1
        assert ([2, *offsets], *values) == version_2
