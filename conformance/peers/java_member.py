"""Kafka's console consumer in a process of its own."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

from bench.peers.kafka_peer import kafka_home

CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class JavaMember:
    """Kafka's console consumer as a member of a group. `output` gets the partition and offset of each record."""

    def __init__(self, servers: str, topic: str, group: str, *, output: Path | None = None, **properties: str) -> None:
        settings = {"auto.offset.reset": "earliest"}
        if "group_protocol" not in properties:
            settings |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
        settings |= {key.replace("_", "."): value for key, value in properties.items()}
        flags = [part for key, value in settings.items() for part in ("--consumer-property", f"{key}={value}")]
        arguments = ["--bootstrap-server", servers, "--topic", topic, "--group", group, *flags]
        self._output = output
        if output is not None:
            printed = ("partition=true", "offset=true", "value=false")
            arguments += [part for each in printed for part in ("--property", f"print.{each}")]
        with (output or Path(os.devnull)).open("wb") as out:
            command = kafka_home().command(CONSUMER, *arguments)
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    @property
    def seen(self) -> set[tuple[int, int]]:
        """Return the partitions and offsets of the records that it printed."""
        assert self._output is not None
        pattern = re.compile(r"Partition:(\d+)\s+Offset:(\d+)")
        return {(int(number), int(offset)) for number, offset in pattern.findall(self._output.read_text())}

    def end(self, sign: signal.Signals) -> None:
        """Send a signal, and wait for the end."""
        if self._process.poll() is None:
            os.kill(self._process.pid, sign)
        self._process.wait(30)
