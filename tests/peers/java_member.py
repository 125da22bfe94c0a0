"""Kafka's console consumer in a process of its own."""

import os
import signal
import subprocess
from typing import Final

from bench.peers.kafka_peer import kafka_home

CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class JavaMember:
    """Kafka's console consumer as a member of a group."""

    def __init__(self, servers: str, topic: str, group: str, **properties: str) -> None:
        settings = {"auto.offset.reset": "earliest"}
        if "group_protocol" not in properties:
            settings |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
        settings |= {key.replace("_", "."): value for key, value in properties.items()}
        flags = [part for key, value in settings.items() for part in ("--consumer-property", f"{key}={value}")]
        arguments = ["--bootstrap-server", servers, "--topic", topic, "--group", group, *flags]
        self._process = subprocess.Popen(
            kafka_home().command(CONSUMER, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def end(self, sign: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        if self._process.poll() is None:
            os.kill(self._process.pid, sign)
        self._process.wait(30)
