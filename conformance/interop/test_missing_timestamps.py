"""librdkafka with `timestamp=-1`: records without timestamps, under a header that says 1970."""

from pathlib import Path

import confluent_kafka
import pytest

from conformance.interop.existing_clients import CLIENTS, DEADLINE_S
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

COUNT = 200
IN_2020_MS = 1_577_836_800_000


def test_records_without_timestamps_survive_retention_checks(tmp_path: Path) -> None:
    options = {"log.retention.check.interval.ms": "100", "offsets.topic.num.partitions": "1"}
    with ServedBroker(tmp_path / "data", options=options) as broker:
        servers = broker.bootstrap_servers
        for topic in ("t", "old"):
            CLIENTS[0].create(servers, topic, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        failures: list[object] = []
        for number in range(COUNT):
            producer.produce(
                "t",
                b"%d" % number,
                timestamp=-1,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        producer.produce("old", b"canary", timestamp=IN_2020_MS)
        assert producer.flush(DEADLINE_S) == 0
        assert not failures
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
        _until_retention_has_taken(consumer, confluent_kafka.TopicPartition("old", 0))
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[confluent_kafka.Message] = []
        while len(found) < COUNT and (polled := consumer.consume(COUNT - len(found), DEADLINE_S)):
            found += polled
        consumer.close()
        assert [message.error() for message in found] == [None] * COUNT
        assert [int(message.value() or b"") for message in found] == list(range(COUNT))
        assert {message.timestamp()[1] for message in found} == {-1}


def _until_retention_has_taken(consumer: confluent_kafka.Consumer, place: confluent_kafka.TopicPartition) -> None:
    """Return when a check of all logs has deleted what is too old."""
    eventually(
        lambda: consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[0] > 0,
        within_s=DEADLINE_S,
        what="retention has deleted old records",
    )
