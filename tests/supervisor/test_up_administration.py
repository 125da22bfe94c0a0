"""`odradek up --brokers 3`, administered by the command as a user has it, in processes of their own (M10)."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.testing import eventually
from tests.supervisor.test_up import DEADLINE_S, Up, up

pytestmark = pytest.mark.long


def command_for(running: Up) -> Callable[..., list[Any]]:
    def command(*arguments: str, stdin: str = "") -> list[Any]:
        full = [sys.executable, "-m", "odradek", *arguments, "--bootstrap-server", running.bootstrap_servers]
        done = subprocess.run(full, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S * 2, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return command


def test_partitions_are_moved_led_again_and_a_broker_is_drained(tmp_path: Path):
    options = ("-o", "auto.leader.rebalance.enable=false", "-o", "offsets.topic.replication.factor=2")
    with up(tmp_path, "--brokers", "3", *options) as running:
        command = command_for(running)
        command("topics", "create", "t", "--partitions", "4", "--replication-factor", "2")
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(400):
            producer.produce("t", str(number).encode(), partition=number % 4)
        assert producer.flush(DEADLINE_S) == 0
        [plan] = command("partitions", "reassign", "--generate", "--topic", "t", "--broker-list", "0,1")
        command("partitions", "reassign", "--file", "-", "--wait", "--json", stdin=json.dumps(plan))
        verify = ("partitions", "reassign", "--file", "-", "--verify", "--json")
        eventually(
            lambda: [each["state"] for each in command(*verify, stdin=json.dumps(plan))] == ["done"] * 4,
            within_s=DEADLINE_S,
        )
        command("partitions", "elect", "--topic", "t")
        eventually(
            lambda: all(
                each["leader"] == each["replicas"][0] for each in command("partitions", "describe", "t", "--json")
            ),
            within_s=DEADLINE_S,
        )
        lines = command("brokers", "drain", "1", "--json")
        assert lines[-1] == {"broker_id": 1, "replica_count": 0}
        eventually(
            lambda: all(1 not in each["replicas"] for each in command("partitions", "describe", "--json")),
            within_s=DEADLINE_S,
        )
        for number in range(4):
            consumer = Consumer({"bootstrap.servers": running.bootstrap_servers, "group.id": "g"})
            consumer.assign([TopicPartition("t", number, 0)])
            found = consumer.consume(100, DEADLINE_S)
            consumer.close()
            assert [int(each.value()) for each in found] == list(range(number, 400, 4))
