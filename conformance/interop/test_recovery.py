"""Recovery in a process: stopped in the middle, and continued by the next start. Row M1."""

import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from conformance.interop.existing_clients import BROKER_OPTIONS, CLIENTS
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

PARTITIONS = 30
DEADLINE_S = 60.0

STUCK = """
import os, sys, threading
from odradek.cli import main
from odradek.broker.log.directories.loading_progress import LoadingProgress
opened, stop, stopped, number = LoadingProgress.opened, LoadingProgress.stop, threading.Event(), iter(range(1000))
def open_five_and_wait(self, **what):
    opened(self, **what)
    os.write(1, b"a log is open\\n")
    if next(number) >= 4:
        stopped.wait()
def stop_and_go_on(self):
    stop(self)
    stopped.set()
LoadingProgress.opened, LoadingProgress.stop = open_five_and_wait, stop_and_go_on
sys.argv[0] = "odradek"
main()
"""
"""`odradek`, whose recovery blocks after a few logs until it is stopped."""


def produce(servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(PARTITIONS):
        producer.produce(topic, b"x" * 100, partition=number)
    assert producer.flush(DEADLINE_S) == 0


def watermarks(servers: str, topic: str) -> list[tuple[int, int]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "none"})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = [consumer.get_watermark_offsets(place, timeout=DEADLINE_S) for place in places]
    consumer.close()
    return found


def test_a_broker_stopped_during_recovery_exits_cleanly_and_continues_at_the_next_start(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        data = tmp_path / number.name
        broker = ServedBroker(data, options=BROKER_OPTIONS)
        broker.start()
        CLIENTS[0].create(broker.bootstrap_servers, "t", PARTITIONS)
        produce(broker.bootstrap_servers, "t")
        broker.kill()
        command = [sys.executable, "-c", STUCK, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for _ in range(5):
                assert process.stdout.readline() == "a log is open\n"
            process.send_signal(number)
            output, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
        assert "ready" not in output
        assert "Traceback" not in errors
        assert "Stopped by a signal before the broker was ready" in errors
        with broker:
            assert watermarks(broker.bootstrap_servers, "t") == [(0, 1)] * PARTITIONS
        recovered = int(
            broker.errors.read_text().split("logs are open after")[-1].split(": ")[1].split(" recovered")[0]
        )
        assert 0 < recovered <= PARTITIONS - 5
