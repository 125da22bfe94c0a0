"""One round of the soak: a cluster, clients, a schedule of faults, and the audit of everything at its end."""

import asyncio
import os
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from conformance.soak.fault_clients import CLOCK, ConfluentWriter, Reader, read_logs
from conformance.soak.soak_churn import Churn
from conformance.soak.soak_clients import Clients
from conformance.soak.soak_cluster import SoakCluster
from conformance.soak.soak_faults import Schedule, draw_schedule
from conformance.soak.soak_network import Network
from conformance.soak.soak_tree import View
from odradek.clients import Admin
from odradek.model import TopicPartition
from odradek.simulation.histories import verdict
from odradek.testing import eventually

TOPIC: Final = "t"
PARTITIONS: Final = 4
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
WHOLE_S: Final = 120.0
GET_ON_S: Final = 90.0
_COMMAND_S: Final = 120.0
_SHOWN: Final = 30
_NO_MEMORY: Final = ("MemoryError", "can't start new thread", "Cannot allocate memory")


@dataclass(slots=True, kw_only=True)
class Report:
    """The findings, actions and measurements of a round."""

    seed: int
    schedule: Sequence[str] = ()
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    administered: Counter[str] = field(default_factory=Counter)
    complaints: Counter[str] = field(default_factory=Counter)
    pauses: dict[str, float] = field(default_factory=dict)
    acknowledged: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    """How long each part of the round took, in seconds."""


class Round:
    """Plays one seed for `seconds` of faults, its files below `directory`."""

    def __init__(self, seed: int, seconds: float, directory: Path, network: Network) -> None:
        self.report = Report(seed=seed)
        self._seconds = seconds
        self._directory = directory
        self._network = network
        self._events = draw_schedule(seed, seconds)
        self.report.schedule = [str(event) for event in self._events]

    def play(self) -> Report:
        """Return when nothing of it runs any more. A round with findings keeps its files."""
        self._phase_began_at = CLOCK.monotonic()
        report = self.report
        try:
            self._play()
        except Exception as error:
            report.findings.append("".join(traceback.format_exception(error)))
        report.findings += [f"left running: {each}" for each in _left_running()]
        self._phase_ends("end")
        if not report.findings:
            shutil.rmtree(self._directory)
        return report

    def _play(self) -> None:
        with ExitStack() as stack:
            cluster = SoakCluster(self._directory, self._network)
            stack.push(partial(self._unmount, cluster))
            stack.enter_context(cluster)
            clients = Clients(cluster.servers, TOPIC, PARTITIONS, isolations=ISOLATIONS)
            clients.add_members(self.report.seed)
            self._churn = Churn(cluster.servers, {TOPIC: PARTITIONS}, clients.history, self.report.seed)
            stack.callback(clients.abandon)
            try:
                self._under_faults(cluster, clients)
                self._judge(cluster, clients)
            finally:
                self._take_down(cluster, clients)
            self.report.findings += _diverged(cluster, self._view)

    def _under_faults(self, cluster: SoakCluster, clients: Clients) -> None:
        asyncio.run(_create_topic(cluster.servers))
        self._expect(lambda: cluster.troubles(), WHOLE_S, "the topic is not whole")
        clients.start()
        self._churn.start()
        self._expect(clients.slow(), GET_ON_S, "clients do not get on at first")
        self._phase_ends("start")
        schedule = Schedule(cluster, self._events, CLOCK.monotonic)
        schedule.play(2 * self._seconds + WHOLE_S)
        self.report.faults += Counter(schedule.inflicted)
        self.report.notes += schedule.done
        self.report.findings += schedule.failures
        self._phase_ends("faults")
        self._expect(cluster.troubles, WHOLE_S, "the cluster is not whole")
        self._phase_ends("whole again")
        self._expect(clients.slow(), GET_ON_S, "clients do not get on in the end")
        self._phase_ends("clients get on")

    def _judge(self, cluster: SoakCluster, clients: Clients) -> None:
        history = clients.history
        self._churn.stop()
        for writer in clients.writers:
            writer.stop()
        self._churn.flush(GET_ON_S)
        self._expect(cluster.troubles, WHOLE_S, "the cluster is not whole after the writers")
        self._view = view = cluster.view()
        self.report.findings += [
            f"topic {name} was deleted, and is there" for name in self._churn.deleted & view.topics.keys()
        ]
        self.report.findings += [
            f"topic {name} was created, and is not there" for name in self._churn.created.keys() - view.topics.keys()
        ]
        for name, partitions in ({TOPIC: PARTITIONS} | self._churn.created).items():
            if name in view.topics:
                for place, log in read_logs(cluster.servers, name, partitions).items():
                    history.audit(place, log)
        ends = {place: log[-1][0] + 1 if log else 0 for place, log in history.logs.items()}
        for reader in clients.readers:
            self._expect(partial(_short, reader, ends), GET_ON_S, f"{reader.name} does not read to the end")
            reader.stop()
        self._expect(lambda: _missing(clients), GET_ON_S, "the group does not get records")
        for member in clients.members:
            member.stop()
        if anomalies := verdict(history):
            self.report.findings.append(anomalies)
        self._phase_ends("audit")

    def _take_down(self, cluster: SoakCluster, clients: Clients) -> None:
        """End the brokers as an operator does, and look at what they leave."""
        report = self.report
        report.acknowledged = clients.history.acknowledged()
        report.administered = self._churn.done
        report.complaints = clients.complaints()
        report.complaints += Counter({f"administrator: {error}": count for error, count in self._churn.errors.items()})
        report.pauses = clients.pauses()
        for writer in clients.writers:
            if isinstance(writer, ConfluentWriter):
                (self._directory / "confluent-kafka.log").write_text("\n".join(writer.said))
        cluster.supervisor.__exit__()
        for broker in cluster.brokers:
            if broker.runs:
                cluster.stop(broker)
        report.findings += cluster.findings + cluster.supervisor.crashes
        report.notes += cluster.supervisor.exits
        for broker in cluster.brokers:
            report.findings += _tracebacks(broker.name, broker.errors)
            report.findings += _damages(broker.name, broker.data_dir)

    def _expect(self, troubles: Callable[[], Any], within_s: float, what: str) -> None:
        """Wait until there are no troubles; a finding if there are some still."""
        last: list[Any] = []

        def is_fine() -> bool:
            last[:] = [troubles()]
            return not last[0]

        try:
            eventually(is_fine, within_s=within_s)
        except TimeoutError:
            self.report.findings.append(f"{what} within {within_s:g} s: {str(last[0])[:2000]}")

    def _phase_ends(self, name: str) -> None:
        now = CLOCK.monotonic()
        self.report.phases[name] = now - self._phase_began_at
        self._phase_began_at = now

    def _unmount(self, cluster: SoakCluster, kind: type[BaseException] | None, *_: object) -> None:
        for broker in cluster.brokers:
            broker.unmount(keep=kind is not None or bool(self.report.findings))


async def _create_topic(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)


def _short(reader: Reader, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """How far a reader is in the partitions that it has not read to their ends."""
    reader.check()
    reached = {place: reader.next_offset[place] for place in reader.places}
    return {place: f"{offset} of {ends[place]}" for place, offset in reached.items() if offset < ends[place]}


def _missing(clients: Clients) -> dict[TopicPartition, list[int]]:
    """The first offsets of each partition that no member of the group got."""
    for member in clients.members:
        member.check()
    found = {}
    for place, noted in clients.noted.items():
        missing = [offset for offset, _ in clients.history.logs.get(place, ()) if offset not in noted]
        if missing:
            found[place] = missing[:5]
    return found


def _tracebacks(name: str, log: Path) -> list[str]:
    """The first traceback of a broker's log, with the lines around it, and how many there are.

    One of a process that could get no memory does not count: what matters is whether the broker gets on afterwards.
    """
    lines = log.read_text(errors="replace").splitlines()
    blocks = {
        number: "\n".join(lines[max(0, number - 2) : number + _SHOWN])
        for number, line in enumerate(lines)
        if "Traceback" in line
    }
    blamed = [block for block in blocks.values() if not any(reason in block for reason in _NO_MEMORY)]
    return [f"{name} has {len(blamed)} tracebacks in its log, the first:\n{blamed[0]}"] if blamed else []


def _damages(name: str, data_dir: Path) -> list[str]:
    command = [sys.executable, "-m", "odradek", "log", "verify", "--records", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    return [f"{name} is damaged: {done.stdout}{done.stderr}"] if done.returncode else []


def _diverged(cluster: SoakCluster, view: View) -> list[str]:
    """Partitions whose replicas are not the same, byte for byte, after all brokers ended."""
    found = []
    for topic in view.topics.values():
        for number, state in topic.partitions.items():
            place = TopicPartition(topic.name, number)
            folders = [cluster.brokers[replica].data_dir / str(place) for replica in state.replicas]
            logs = [b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders]
            if len(set(logs)) > 1 and not topic.is_internal:
                sizes = dict(zip(state.replicas, map(len, logs), strict=True))
                found.append(f"replicas of {place} differ; bytes by broker: {sizes}")
    return found


def _left_running() -> list[str]:
    """Processes of this round: the soak has a process namespace of its own, in which there are no others."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command:
            found.append(f"{entry.name} {command[:200]}")
    return found
