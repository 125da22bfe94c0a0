"""Kafka's own consumer as a member of groups: `java/Members.java`, one process for many members."""

import itertools
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from bench.peers.kafka_peer import kafka_home
from conformance.interop.group_members import DEADLINE_S, HEARTBEAT_MS, SESSION_MS, GroupMember

_SOURCE: Final = Path(__file__).parent / "java" / "Members.java"
_PACKAGE: Final = "org.apache.kafka.clients.consumer"
_ASSIGNORS: Final = {
    "range": f"{_PACKAGE}.RangeAssignor",
    "roundrobin": f"{_PACKAGE}.RoundRobinAssignor",
    "sticky": f"{_PACKAGE}.StickyAssignor",
    "cooperative-sticky": f"{_PACKAGE}.CooperativeStickyAssignor",
    "consumer": "consumer",
}
"""`consumer` is the consumer protocol, with the topic as a regular expression."""


class JavaMember(GroupMember):
    """A consumer in the process, which polls by itself."""

    def __init__(self, name: str, commands: IO[str], group: str, topic: str, assignor: str) -> None:
        super().__init__()
        self.failures: list[str] = []
        self._name = name
        self._commands = commands
        self._owned: set[int] = set()
        self._has_left = threading.Event()
        self._is_closed = False
        self._tell(f"join {name} {group} {topic} {_ASSIGNORS[assignor]}")

    def owned(self) -> set[int]:
        return self._owned

    def poll(self) -> None:
        assert not self.failures

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._tell(f"leave {self._name}")
            assert self._has_left.wait(DEADLINE_S)
        assert not self.failures

    def hear(self, event: str, value: str) -> None:
        """Note what the process says about this member."""
        if event == "owns":
            self._owned = {int(number) for number in value.split(",") if number}
        elif event == "read":
            self.read.append(value)
        else:
            self.failures += [value] if event == "failed" else []
            self._has_left.set()

    def _tell(self, command: str) -> None:
        self._commands.write(f"{command}\n")
        self._commands.flush()


class JavaMembers:
    """The running process; called to have a member join."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands, self._lines = process.stdin, process.stdout
        self._members: dict[str, JavaMember] = {}
        self._names = (f"member-{number}" for number in itertools.count())
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def __call__(self, servers: str, group: str, topic: str, assignor: str) -> JavaMember:
        del servers  # those of the process
        name = next(self._names)
        self._members[name] = member = JavaMember(name, self._commands, group, topic, assignor)
        return member

    def join(self) -> None:
        """Wait for the end of the process's output."""
        self._thread.join(DEADLINE_S)

    def _listen(self) -> None:
        for line in self._lines:
            name, event, value = (*line.split(maxsplit=2), "")[:3]
            self._members[name].hear(event, value.strip())


@contextmanager
def java_members(servers: str, log: Path) -> Iterator[JavaMembers]:
    """Run the process, whose consumers have these bootstrap servers; its errors go to `log`."""
    properties = (
        f"bootstrap.servers={servers}",
        f"session.timeout.ms={SESSION_MS}",
        f"heartbeat.interval.ms={HEARTBEAT_MS}",
        "auto.offset.reset=earliest",
        "enable.auto.commit=false",
    )
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            kafka_home().command(str(_SOURCE), *properties),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        members = JavaMembers(process)
        try:
            yield members
        finally:
            process.kill()
            members.join()
