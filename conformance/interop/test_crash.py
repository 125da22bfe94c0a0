"""`kill -9` (M1, SPEC 12): every acknowledged record is there once, in order, after every restart.

`ODRADEK_KILLS=200 pytest conformance/interop/test_crash.py -k segments` plays so many kills of each mode;
`ODRADEK_SEED` chooses other moments.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

PARTITIONS = 3
DEADLINE_S = 60.0
KILLS = int(os.environ.get("ODRADEK_KILLS", "2"))
SMALL_SEGMENTS = {
    **BROKER_OPTIONS,
    "log.segment.bytes": "4096",
    "log.retention.bytes": "20000",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
}
"""Segments begin and go all the time."""


@pytest.fixture
def broker(tmp_path: Path):
    """A broker of this test's own, to be killed."""
    with ServedBroker(tmp_path / "data", options=BROKER_OPTIONS) as broker:
        yield broker


def create(servers: str, topic: str) -> None:
    CLIENTS[0].create(servers, topic, PARTITIONS)


def read_all(servers: str, topic: str) -> dict[int, list[int]]:
    """The numbers in each partition, in the order of their offsets; from the earliest to the end at this moment.

    A producer that tries again may be adding to it: each partition is read to its own end, however far others are.
    """
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=DEADLINE_S)[1] for place in places}
    consumer.assign(places)
    numbers: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    next_offsets = dict.fromkeys(ends, 0)
    while any(next_offsets[number] < end for number, end in ends.items()):
        polled = consumer.consume(500, 0.1) or consumer.consume(1, DEADLINE_S)
        assert polled, f"read to {next_offsets} of {ends}"
        for message in polled:
            assert message.error() is None
            assert message.offset() >= next_offsets[message.partition()]
            next_offsets[message.partition()] = message.offset() + 1
            numbers[message.partition()].append(int(message.value()))
    consumer.close()
    return numbers


class Writer:
    """An idempotent producer that counts 0, 1, 2, … and remembers which numbers were acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.failed: list[object] = []
        self.written = 0
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "delivery.timeout.ms": int(DEADLINE_S * 1000),
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def write_until_acknowledged(self, count: int) -> None:
        """Write on until `count` more numbers are acknowledged, and stop there, with more in flight."""
        wanted = self.count() + count
        while self.count() < wanted and not self.failed:
            if len(self._producer) < 500:
                self._producer.produce(
                    self._topic,
                    str(self.written),
                    partition=self.written % PARTITIONS,
                    on_delivery=self._delivered,
                )
                self.written += 1
            self._producer.poll(0 if len(self._producer) < 500 else 0.01)

    def finish(self) -> None:
        """Wait until everything written is acknowledged."""
        assert self._producer.flush(DEADLINE_S) == 0

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition()].append(int(message.value()))


def test_acknowledged_records_survive_a_kill_once_and_in_order(broker: ServedBroker, seed: int):
    """M1. One idempotent producer continues through four kills; retried batches are written once."""
    create(broker.bootstrap_servers, "counted")
    chance = random.Random(seed)
    writer = Writer(broker.bootstrap_servers, "counted")
    for _ in range(4):
        writer.write_until_acknowledged(chance.randrange(1, 2000))
        broker.kill()
        acknowledged = {number: list(some) for number, some in writer.acknowledged.items()}
        broker.start()
        found = read_all(broker.bootstrap_servers, "counted")
        for number, some in acknowledged.items():
            assert found[number][: len(some)] == some
    writer.finish()
    assert not writer.failed
    assert read_all(broker.bootstrap_servers, "counted") == {
        number: list(range(number, writer.written, PARTITIONS)) for number in range(PARTITIONS)
    }


def delete_records(servers: str, topic: str, partition: int, offset: int) -> None:
    place = confluent_kafka.TopicPartition(topic, partition, offset)
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.delete_records([place]).values():
        answer.result(DEADLINE_S)


def check_what_is_left(servers: str, topic: str, acknowledged: dict[int, int]) -> None:
    """Each partition has `Writer`'s numbers, each at its own offset, from where it begins to all that is acknowledged.

    Retention may take more of it meanwhile.
    """
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "auto.offset.reset": "earliest", "check.crcs": True}
    )
    for partition, count in acknowledged.items():
        place = confluent_kafka.TopicPartition(topic, partition)
        place.offset, end = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
        assert end >= count, f"{partition} lost {end} to {count}"
        consumer.assign([place])
        last = place.offset - 1
        while last < end - 1:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None
            assert message.offset() > last
            assert int(message.value()) == partition + PARTITIONS * message.offset()
            last = message.offset()
    consumer.close()


@pytest.mark.parametrize("mode", ["none", "group"])
def test_kills_during_segment_rolls_and_deletions_lose_nothing(tmp_path: Path, seed: int, mode: str):
    """M1. Rolls, DeleteRecords and retention between the kills; `odradek log verify` finds no damage after a start."""
    chance = random.Random(f"{seed} {mode}")
    broker = ServedBroker(tmp_path / "data", options={**SMALL_SEGMENTS, "log.flush.mode": mode})
    with broker:
        create(broker.bootstrap_servers, "counted")
        writer = Writer(broker.bootstrap_servers, "counted")
        for _ in range(KILLS):
            writer.write_until_acknowledged(chance.randrange(2000, 5000))
            partition = chance.randrange(PARTITIONS)
            end = len(writer.acknowledged[partition])
            delete_records(broker.bootstrap_servers, "counted", partition, chance.randrange(end // 2, end + 1))
            writer.write_until_acknowledged(chance.randrange(1, 1000))
            broker.kill()
            acknowledged = {number: len(some) for number, some in writer.acknowledged.items()}
            broker.start()
            verify(broker.data_dir)
            check_what_is_left(broker.bootstrap_servers, "counted", acknowledged)
        writer.finish()
        assert not writer.failed
        assert writer.acknowledged == {
            number: list(range(number, writer.written, PARTITIONS)) for number in range(PARTITIONS)
        }
        check_what_is_left(
            broker.bootstrap_servers, "counted", {number: len(some) for number, some in writer.acknowledged.items()}
        )
        # DeleteRecords has left whole segments without a record that is still readable.
        eventually(lambda: "retention deleted" in broker.errors.read_text(), within_s=DEADLINE_S)
        assert broker.stop() == 0
        verify(broker.data_dir)
        broker.start()
    assert "Traceback" not in broker.errors.read_text()


def verify(directory: Path) -> None:
    command = [sys.executable, "-m", "odradek", "log", "verify", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_torn_tail_is_truncated_and_never_served(broker: ServedBroker):
    """M1. A half-written batch is removed; the log continues after the last whole one."""
    create(broker.bootstrap_servers, "torn")
    writer = Writer(broker.bootstrap_servers, "torn")
    writer.write_until_acknowledged(300)
    writer.finish()
    broker.kill()
    segment = broker.data_dir / "torn-0" / f"{0:020}.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:200])
    broken = broker.data_dir / "torn-1" / f"{0:020}.log"
    broken.write_bytes(broken.read_bytes() + bytes(random.Random(1).randbytes(1000)))
    broker.start()
    before = {number: list(range(number, writer.written, PARTITIONS)) for number in range(PARTITIONS)}
    assert read_all(broker.bootstrap_servers, "torn") == before
    assert segment.read_bytes() == whole
    writer.write_until_acknowledged(30)
    writer.finish()
    after = {number: list(range(number, writer.written, PARTITIONS)) for number in range(PARTITIONS)}
    assert read_all(broker.bootstrap_servers, "torn") == after


def test_committed_offsets_survive_a_kill(broker: ServedBroker):
    """M8. An offset whose commit was answered is there after the restart."""
    create(broker.bootstrap_servers, "read")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "enable.auto.commit": False}
    places = [confluent_kafka.TopicPartition("read", number, 10 + number) for number in range(PARTITIONS)]
    consumer = confluent_kafka.Consumer(settings)
    consumer.commit(offsets=places, asynchronous=False)
    broker.kill()
    broker.start()
    consumer.close()
    again = confluent_kafka.Consumer(settings)
    committed = again.committed(places, timeout=DEADLINE_S)
    again.close()
    assert [place.offset for place in committed] == [10, 11, 12]


def test_a_broker_stops_cleanly_on_sigterm_and_restarts_on_its_port(broker: ServedBroker):
    address = broker.bootstrap_servers
    create(address, "kept")
    assert broker.stop() == 0
    broker.start()
    assert broker.bootstrap_servers == address
    assert "kept" in AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE_S).topics
    assert broker.stop() == 0


def test_a_second_broker_on_a_directory_in_use_fails_with_an_error_that_names_the_first(broker: ServedBroker):
    command = [Path(sys.executable).with_name("odradek"), "serve", "--listen", "127.0.0.1:0", "--data-dir"]
    second = subprocess.run(
        [*command, broker.data_dir], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert second.returncode != 0
    assert second.stdout == ""
    assert str(broker.pid) in second.stderr
    assert "Traceback" not in second.stderr
