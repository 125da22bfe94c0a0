"""More partitions than the broker may open files, with traffic to all of them (M1)."""

from pathlib import Path

import confluent_kafka
import pytest

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

PARTITIONS = 300
OPEN_FILES = 256
DEADLINE_S = 60.0


def test_a_broker_with_256_descriptors_serves_300_partitions(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", options=BROKER_OPTIONS, open_files=OPEN_FILES) as broker:
        servers = broker.bootstrap_servers
        CLIENTS[0].create(servers, "t", PARTITIONS)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        failures: list[object] = []
        for number in range(3 * PARTITIONS):
            producer.produce(
                "t",
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert not failures
        for _ in range(2):
            consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
            consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(PARTITIONS)])
            found: list[int] = []
            while len(found) < 3 * PARTITIONS and (polled := consumer.consume(3 * PARTITIONS - len(found), DEADLINE_S)):
                assert not [message.error() for message in polled if message.error()]
                found += [int(message.value()) for message in polled]
            consumer.close()
            assert sorted(found) == list(range(3 * PARTITIONS))
            assert len(list(Path(f"/proc/{broker.pid}/fd").iterdir())) <= OPEN_FILES
            assert broker.stop() == 0
            broker.start()
    assert "Traceback" not in broker.errors.read_text()
    assert "Too many open files" not in broker.errors.read_text()
