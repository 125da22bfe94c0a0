"""Transactions seen by existing clients (M1): reading committed records, and ending hanging transactions.

The batches and markers come from a bare connection, without a coordinator, so that transactions can hang.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import pytest
from kafka.admin import AbortTransactionSpec, KafkaAdminClient

from conformance.interop.existing_clients import BROKER_OPTIONS, DEADLINE_S
from conformance.interop.transactions import Partition
from odradek.clients import Admin, Consumer
from odradek.clients.cluster import open_cluster
from odradek.clients.offsets import LATEST, list_offsets
from odradek.clients.reader import PartitionReader
from odradek.columns import decode_batches
from odradek.model import KafkaError, TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

OPTIONS: Final = {**BROKER_OPTIONS, "transaction.partition.verification.enable": "false"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker that takes transactions on trust; it is killed and started by one of the tests."""
    with ServedBroker(tmp_path_factory.mktemp("transactions") / "data", options=OPTIONS) as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """The first decoding of columns compiles for many seconds, which must not count towards a reader's deadline."""
    assert decode_batches(bytes(encode_batch([(0, None, b"x", ())]))).num_rows == 1


@pytest.fixture
def new_partition(broker: ServedBroker, topic: str) -> Iterator[Callable[..., "Partition"]]:
    """A partition of the test's own."""
    with contextlib.ExitStack() as stack:

        def make(**config: str) -> Partition:
            partition = Partition(broker.bootstrap_servers, topic, **config)
            stack.callback(partition.close)
            return partition

        yield make


def confluent(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[bytes] = []
    while (message := consumer.poll(DEADLINE_S)) is not None and not message.error():
        found.append(message.value())
    assert message is not None
    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
    consumer.close()
    return found


def kafka_python(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        isolation_level="read_committed",
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return found


def aiokafkas(servers: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            async with asyncio.timeout(DEADLINE_S):
                return [(await consumer.getone()).value for _ in range(count)]

    return asyncio.run(read())


def ours(servers: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        place = TopicPartition(topic, 0)
        async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            async with asyncio.timeout(DEADLINE_S):
                return [(await anext(aiter(consumer))).value or b"" for _ in range(count)]

    return asyncio.run(read())


def ours_in_columns(servers: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        place, found = TopicPartition(topic, 0), []
        async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            async with asyncio.timeout(DEADLINE_S):
                while len(found) < count:
                    batch = await consumer.poll_arrow(timeout_ms=1000)
                    found += [] if batch is None else batch.column("value").to_pylist()
        return found

    return asyncio.run(read())


def our_reader_of_ranges(servers: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        place, found = TopicPartition(topic, 0), []
        async with open_cluster(bootstrap_servers=servers) as cluster:
            end = (await list_offsets(cluster, {place: LATEST}, isolation_level="read_committed"))[place].offset
            reader = PartitionReader(cluster, place, 0, end, isolation_level="read_committed", max_bytes=300)
            async for buffer in reader:
                found += decode_batches(buffer).column("value").to_pylist()
        return found

    return asyncio.run(read())


def our_command(servers: str, topic: str, count: int) -> list[bytes]:
    options = ["--isolation-level", "read_committed", "--offset", "beginning", "--count", str(count)]
    command = [sys.executable, "-m", "odradek", "consume", topic, "--bootstrap-server", servers, *options]
    return subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE_S).stdout.splitlines()


READERS: Final = (confluent, kafka_python, aiokafkas, ours, ours_in_columns, our_reader_of_ranges, our_command)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("segment_bytes", ["1000000", "600"])
def test_every_client_reads_only_committed_records(
    broker: ServedBroker, topic: str, new_partition: Any, read: Any, segment_bytes: str
):
    """M1: aborted ones, one in another, an open one, in every codec; in one segment or in many."""
    partition = new_partition(segment_bytes=segment_bytes)
    partition.fill()
    assert read(broker.bootstrap_servers, topic, len(partition.expected)) == partition.expected
    partition.end(5, committed=True)
    wanted = [*partition.expected, b"open", b"behind what is open"]
    assert read(broker.bootstrap_servers, topic, len(wanted)) == wanted


def test_transactions_open_at_a_kill_are_open_after_the_restart(broker: ServedBroker, topic: str, new_partition: Any):
    """M1: and what was aborted stays so; a killed broker's index of it was never synced."""
    partition = new_partition(segment_bytes="600")
    partition.fill()
    broker.kill()
    broker.start()
    assert confluent(broker.bootstrap_servers, topic, 0) == partition.expected
    partition.connect(broker.bootstrap_servers)
    partition.write(b"more", producer=5)
    partition.end(5, committed=False)
    wanted = [*partition.expected, b"behind what is open"]
    assert confluent(broker.bootstrap_servers, topic, 0) == wanted
    assert broker.stop() == 0
    broker.start()
    assert confluent(broker.bootstrap_servers, topic, 0) == wanted


def test_kafka_pythons_admin_ends_a_hanging_transaction(broker: ServedBroker, topic: str, new_partition: Any):
    """M1, KIP-664: described, aborted, described."""
    partition = new_partition()
    partition.write(b"hangs", producer=5)
    partition.write(b"waits")
    place = kafka.TopicPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        (state,) = admin.describe_producers([place])[place].active_producers
        assert (state.producer_id, state.current_transaction_start_offset) == (5, 0)
        admin.abort_transaction(
            AbortTransactionSpec(place, producer_id=5, producer_epoch=state.producer_epoch, coordinator_epoch=0)
        )
        (state,) = admin.describe_producers([place])[place].active_producers
        assert state.current_transaction_start_offset == -1
    finally:
        admin.close()
    assert confluent(broker.bootstrap_servers, topic, 0) == [b"waits"]


def test_our_admin_ends_a_hanging_transaction(broker: ServedBroker, topic: str, new_partition: Any):
    """M1, KIP-664."""
    partition = new_partition()
    partition.write(b"hangs", producer=5)
    partition.write(b"waits")

    async def administer() -> None:
        place = TopicPartition(topic, 0)
        async with Admin(broker.bootstrap_servers) as admin:
            (producer,) = await admin.describe_producers(place)
            assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 0, 0)
            assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, None)
            await admin.abort_transaction(place, producer_id=5, producer_epoch=0, coordinator_epoch=3)
            (producer,) = await admin.describe_producers(place)
            assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (None, 3)
            with pytest.raises(KafkaError, match="TRANSACTION_COORDINATOR_FENCED"):
                await admin.abort_transaction(place, producer_id=5, producer_epoch=0, coordinator_epoch=2)
            with pytest.raises(KafkaError, match="has no partition 7"):
                await admin.describe_producers(TopicPartition(topic, 7))

    asyncio.run(administer())
    assert confluent(broker.bootstrap_servers, topic, 0) == [b"waits"]
