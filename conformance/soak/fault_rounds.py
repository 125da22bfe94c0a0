"""Three brokers as processes, clients that write and read without end, and a fault after the other (SPEC 12).

A round is one of each fault of `FAULTS`. After each of them the cluster must become whole again and every client must
get on, by a deadline; in the end the logs are audited and the history is judged.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka.admin import AdminClient, NewTopic

from conformance.soak.fault_clients import CLOCK, read_logs
from conformance.soak.soak_clients import Clients
from conformance.soak.soak_servers import REPLICATED
from conformance.soak.soak_tree import Tree, View
from odradek.simulation.histories import verdict
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

TOPIC: Final = "t"
PARTITIONS: Final = 2
BROKERS: Final = 3
DEADLINE_S: Final = 120.0

OPTIONS: Final = REPLICATED | {"zookeeper.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}
_LOG_TAIL: Final = 40


class Fault(NamedTuple):
    """A kind of fault and its target."""

    role: str
    what: str

    def __str__(self) -> str:
        return f"{self.role} {self.what}"


ROLES: Final = ("leader", "controller", "follower")
"""The leader and a follower are partition 0's."""

FAULTS: Final = tuple(Fault(*each) for each in product(ROLES, ("killed", "stopped", "restarted")))
"""Killed with -9; stopped past its session and let go on; restarted cleanly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one fault went: the longest time without an acknowledged write, by client, and all it took; seconds."""

    fault: Fault
    broker_id: int
    pauses: Mapping[str, float]
    seconds: float

    def __str__(self) -> str:
        pauses = ", ".join(f"{client} {seconds:.2f} s" for client, seconds in sorted(self.pauses.items()))
        return f"{self.fault} (broker {self.broker_id}): longest pauses {pauses}; whole after {self.seconds:.1f} s"


def is_whole(view: View) -> bool:
    """Whether every broker is there, and every replica of every partition in sync."""
    topic = view.topics.get(TOPIC)
    return topic is not None and len(topic.partitions) == PARTITIONS and not view.troubles(BROKERS)


class ServedCluster:
    """`BROKERS` times `odradek serve` over one tree, with their data below `directory`."""

    def __init__(self, directory: Path, metadata: str, options: Mapping[str, str]) -> None:
        self.metadata = metadata
        self.brokers = [
            ServedBroker(
                directory / f"broker-{number}",
                metadata=metadata,
                options=options,
                arguments=["--broker-id", str(number)],
            )
            for number in range(BROKERS)
        ]

    @property
    def servers(self) -> str:
        """All of them, for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def logs(self) -> str:
        """The last lines of each broker's log."""
        tails = []
        for number, broker in enumerate(self.brokers):
            lines = broker.errors.read_text(errors="replace").splitlines() if broker.errors.exists() else []
            tails.append("\n".join([f"---- broker {number}, its last lines:", *lines[-_LOG_TAIL:]]))
        return "\n".join(tails)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._end)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_until_ready()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for broker in self.brokers:
            if broker.runs:
                broker.kill()


class Trial:
    """One cluster, three writers, three readers; `inflict` faults, then `finish`."""

    def __init__(self, cluster: ServedCluster, tree: Tree, seed: int) -> None:
        self.clients = Clients(cluster.servers, TOPIC, PARTITIONS)
        self.outcomes: list[Outcome] = []
        self._cluster = cluster
        self._tree = tree
        self._chance = random.Random(seed)
        self._deeds: list[str] = []

    def start(self) -> None:
        """Create the topic and let the clients begin."""
        self._wait(lambda: len(self._tree.view().brokers) == BROKERS, "all brokers are registered")
        admin = AdminClient({"bootstrap.servers": self._cluster.servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(DEADLINE_S)
        self._wait(lambda: is_whole(self._tree.view()), "all replicas are in sync")
        self.clients.start()
        self._get_on("at first")

    def inflict(self, fault: Fault) -> Outcome:
        """Let one fault happen, and wait until the cluster is whole and every client has got on."""
        broker_id = self._victim(fault.role, self._whole_view())
        broker = self._cluster.brokers[broker_id]
        began_at = CLOCK.monotonic()
        self._deeds.append(f"{fault}: broker {broker_id}")
        if fault.what == "killed":
            broker.kill()
            self._lose(broker_id)
            broker.start()
        elif fault.what == "stopped":
            broker.pause()
            try:
                self._lose(broker_id)
            finally:
                broker.resume()
        else:
            assert broker.stop() == 0, f"broker {broker_id} did not end well"
            self._lose(broker_id)
            broker.start()
        self._wait(lambda: is_whole(self._tree.view()), f"the cluster is whole after: {fault}")
        self._get_on(f"after: {fault}")
        ended_at = CLOCK.monotonic()
        pauses = self.clients.pauses(since=began_at, until=ended_at)
        outcome = Outcome(fault=fault, broker_id=broker_id, pauses=pauses, seconds=ended_at - began_at)
        self.outcomes.append(outcome)
        return outcome

    def finish(self) -> str:
        """End the clients, audit the logs and judge: what is wrong, or nothing."""
        for writer in self.clients.writers:
            writer.stop()
        logs = read_logs(self._cluster.servers, TOPIC, PARTITIONS)
        ends = {place: log[-1][0] + 1 for place, log in logs.items()}
        for reader in self.clients.readers:
            self._wait(lambda reader=reader: ends.items() <= reader.next_offset.items(), f"{reader.kind} reads all")
            reader.stop()
        for place, log in logs.items():
            self.clients.history.audit(place, log)
        return verdict(self.clients.history)

    def describe(self) -> str:
        """All that one wants to know after a failure."""
        try:
            view: object = self._tree.view()
        except Exception as error:  # whatever it is, the rest of the story is worth more
            view = error
        progress = {worker.name: dict(worker.acknowledged) for worker in self.clients.writers}
        return "\n".join(
            [
                f"done so far: {'; '.join(self._deeds)}",
                f"the tree: {view}",
                f"acknowledged: {progress}",
                f"read: { {worker.name: dict(worker.next_offset) for worker in self.clients.readers} }",
                f"clients said: {dict(self.clients.complaints())}",
                self._cluster.logs(),
            ]
        )

    def _whole_view(self) -> View:
        """Of a cluster that is whole again: a short session may have ended by itself where the machine is busy."""
        seen: list[View] = []

        def is_seen_whole() -> bool:
            seen[:] = [self._tree.view()]
            return is_whole(seen[0])

        self._wait(is_seen_whole, "the cluster is whole")
        return seen[0]

    def _victim(self, role: str, view: View) -> int:
        leader = view.topics[TOPIC].partitions[0].leader
        if role == "leader":
            return leader
        if role == "controller":
            return view.controller
        followers = [number for number in sorted(view.brokers) if number != leader]
        return self._chance.choice([each for each in followers if each != view.controller] or followers)

    def _lose(self, broker_id: int) -> None:
        """Wait until the cluster does without it, and the clients get on."""

        def is_done_without() -> bool:
            view = self._tree.view()
            return view.controller not in (-1, broker_id) and all(
                broker_id != state.leader >= 0 and broker_id not in state.isr
                for state in view.topics[TOPIC].partitions.values()
            )

        self._wait(is_done_without, f"the cluster does without broker {broker_id}")
        self._get_on(f"without broker {broker_id}")

    def _get_on(self, when: str) -> None:
        """Wait until every writer has more acknowledged and every reader has read more, in every partition."""
        slow = self.clients.slow()
        self._wait(lambda: not slow(), f"the clients get on {when}", slow)

    def _wait(self, condition: Any, what: str, culprits: Any = lambda: "") -> None:
        try:
            eventually(condition, within_s=DEADLINE_S, what=what)
        except TimeoutError as error:
            error.add_note(str(culprits()))
            raise


@contextmanager
def trial(directory: Path, metadata: str, seed: int, options: Mapping[str, str] = OPTIONS) -> Iterator[Trial]:
    """Yield a started trial. Errors in the block carry the seed and the ends of the brokers' logs."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ServedCluster(directory, metadata, options))
        tree = Tree(metadata)
        stack.callback(tree.close)
        tried = Trial(cluster, tree, seed)
        stack.callback(tried.clients.abandon)
        try:
            tried.start()
            yield tried
        except BaseException as error:
            error.add_note(f"seed {seed}\n{tried.describe()}")
            raise
