"""Two topics filled from a third by groups of transactional processes, which are killed, as brokers are.

`lines` is read by the group of `words`, whose processes write to `words`; `words` is read by the group of `counts`. A
group has a process of Odradek's clients and one of librdkafka's. Whatever happens, partition by partition, the
committed records of the last topic are those of the first one. By hand:
`PYTHONPATH=. python conformance/soak/chain_rounds.py`.
"""

import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.soak.chain_processor import TIMEOUT_S, TRANSACTION_TIMEOUT_MS
from conformance.soak.fault_clients import CLOCK
from conformance.soak.soak_servers import REPLICATED
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.server_process import ServerProcess

PARTITIONS: Final = 3
RECORDS: Final = 100
"""In each partition."""
DEADLINE_S: Final = 120.0
CLIENTS: Final = ("odradek", "confluent")
OPTIONS: Final = REPLICATED | {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "group.min.session.timeout.ms": "500",
    "transaction.state.log.num.partitions": "6",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
FAULTS: Final = (
    "process killed", "process stopped",
    "broker killed", "broker stopped", "broker restarted",
    "coordinator killed", "coordinator stopped", "coordinator restarted",
)  # fmt: skip
"""`coordinator`: the broker that coordinates the transactions of one of the processes. A stopped process goes on at the
next fault, or at the end."""
_SCRIPT: Final = Path(__file__).with_name("chain_processor.py")


class ServedCluster:
    """Three times `odradek serve` over one tree in SQLite, with their data below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.brokers = [
            ServedBroker(
                directory / f"broker-{number}",
                metadata=f"sqlite:///{directory}/metadata.sqlite",
                options=OPTIONS,
                arguments=["--broker-id", str(number)],
            )
            for number in range(3)
        ]

    @property
    def servers(self) -> str:
        """All of them, for clients."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

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


class Worker(ServerProcess):
    """A process that reads, writes and is killed."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._arguments = command
        super().__init__(name, log=log)

    def _command(self) -> Sequence[str]:
        return self._arguments

    def _is_ready(self) -> bool:
        return True


class Faults:
    """The faults of a round, each due at a count of results, and its `workers`. At most one process is paused."""

    def __init__(self, workers: Sequence[Worker], due: Sequence[tuple[int, str]], done: list[str]) -> None:
        self._workers = workers
        self._due = list(due)
        self._done = done
        self._stopped: ServerProcess | None = None

    def take(self, count: int) -> str | None:
        """Start workers that have ended, and return the fault that is due. If one is due, resume the paused worker."""
        for worker in self._workers:
            if not worker.runs:
                if worker.exit_status is not None:
                    self._done.append(f"{worker.name} ended with {worker.exit_status}")
                worker.launch()
        if not self._due or count < self._due[0][0]:
            return None
        self.resume()
        return self._due.pop(0)[1]

    def stop(self, process: ServerProcess) -> None:
        """Pause a worker or a broker until the next fault."""
        process.pause()
        self._stopped = process

    def resume(self) -> None:
        if self._stopped is not None:
            self._stopped.resume()
            self._stopped = None


def create_topics(servers: str, names: Sequence[str]) -> None:
    """Create topics with three replicas."""
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names]).values():
        created.result(DEADLINE_S)


def play_rounds(first: int, rounds: int, directory: Path, new_round: Callable[[int], "Round"]) -> None:
    """Play rounds with the seeds from `first` on, and end with 1 at the first wrong one, whose files are kept."""
    for seed in range(first, first + rounds):
        began_at = CLOCK.monotonic()
        played = new_round(seed)
        wrong = played.play()
        click.echo(f"seed {seed}: {CLOCK.monotonic() - began_at:.1f} s; {'; '.join(played.done)}")
        if wrong:
            click.echo(f"  FOUND: {wrong}\n  its files are kept: {directory}")
            sys.exit(1)


class Round(Protocol):
    """One round; `done` has the faults that were inflicted."""

    done: list[str]

    def play(self) -> str:
        """Return what is wrong, or an empty text."""


class Chain:
    """One round: `play` returns when the last topic has all records, and says what is wrong with it."""

    def __init__(self, cluster: ServedCluster, directory: Path, seed: int, faults: int) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._topics = [f"{name}-{seed}" for name in ("lines", "words", "counts")]
        steps = sorted(self._chance.randrange(PARTITIONS * RECORDS) for _ in range(faults))
        due = [(step, self._chance.choice(FAULTS)) for step in steps]
        self._processors = []
        for source, target in zip(self._topics, self._topics[1:], strict=False):
            for kind in CLIENTS:
                transactional_id = f"{target}-{kind}"
                command = [sys.executable, str(_SCRIPT), kind, cluster.servers, source, target, transactional_id]
                self._processors.append(Worker(transactional_id, command, directory / f"{transactional_id}.err"))
        self._faults = Faults(self._processors, due, self.done)

    def play(self) -> str:
        expected = self._fill()
        reader = Committed(self._cluster.servers, self._topics[-1])
        try:
            for processor in self._processors:
                processor.launch()
            give_up_at = CLOCK.monotonic() + DEADLINE_S
            while reader.count < PARTITIONS * RECORDS:
                reader.poll()
                self._go_on(reader.count)
                if CLOCK.monotonic() > give_up_at:
                    return f"{reader.count} records within {DEADLINE_S:g} s"
            self._end()
            reader.read_to_end()
        finally:
            reader.close()
            for processor in self._processors:
                processor.kill()
        return "\n".join(
            f"partition {number} has {values[:3]}…, {len(values)} records, instead of {len(expected[number])}"
            for number, values in reader.values.items()
            if values != expected[number]
        )

    def _fill(self) -> dict[int, list[str]]:
        """Create the topics; return the records of the first one by partition."""
        create_topics(self._cluster.servers, self._topics)
        values = {number: [f"{number}-{each}" for each in range(RECORDS)] for number in range(PARTITIONS)}
        producer = confluent_kafka.Producer({"bootstrap.servers": self._cluster.servers, "acks": "all"})
        for number, texts in values.items():
            for text in texts:
                producer.produce(self._topics[0], text, partition=number)
        assert producer.flush(DEADLINE_S) == 0
        return values

    def _go_on(self, count: int) -> None:
        """Inflict the fault that is due; start what has ended."""
        if (fault := self._faults.take(count)) is not None:
            self._inflict(fault)
        for broker in self._cluster.brokers:
            if not broker.runs:
                broker.launch()

    def _inflict(self, what: str) -> None:
        processor = self._chance.choice(self._processors)
        role, deed = what.split()
        target: ServerProcess = processor
        if role == "broker":
            target = self._chance.choice(self._cluster.brokers)
        elif role == "coordinator":
            target = self._coordinator(processor.name)
        self.done.append(f"{what}: {processor.name}")
        if deed == "stopped":
            self._faults.stop(target)
        elif deed == "restarted":
            assert target.stop() in {0, -signal.SIGTERM}, what  # the signal, if it was just starting
        else:
            target.kill()

    def _coordinator(self, transactional_id: str) -> ServerProcess:
        """Return the broker that coordinates the id's transactions, or any that runs if none is known now."""
        running = [broker for broker in self._cluster.brokers if broker.runs]
        for broker in running:
            try:
                with BlockingWireClient(broker.bootstrap_servers) as client:
                    message = {"key_type": 1, "coordinator_keys": [transactional_id]}
                    (found,) = client.ask(ApiKey.FIND_COORDINATOR, message, 4).coordinators
            except OSError:
                continue
            if found.error_code == 0:
                coordinator: ServerProcess = self._cluster.brokers[found.node_id]
                return coordinator
        return running[0]

    def _end(self) -> None:
        """Kill the processes, and fence them, which ends the transactions that they left open."""
        self._faults.resume()
        for processor in self._processors:
            processor.kill()
            config = {"bootstrap.servers": self._cluster.servers, "transactional.id": processor.name}
            config |= {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), "log_level": "0"}
            confluent_kafka.Producer(config).init_transactions(DEADLINE_S)


class Committed:
    """A reader of the committed records of a topic; `values` has them by partition."""

    def __init__(self, servers: str, topic: str) -> None:
        config = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
        self._consumer = confluent_kafka.Consumer({**config, "reconnect.backoff.max.ms": "500", "log_level": "0"})
        start = confluent_kafka.OFFSET_BEGINNING
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, start) for number in range(PARTITIONS)])
        self._topic = topic
        self.values: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}

    @property
    def count(self) -> int:
        return sum(map(len, self.values.values()))

    def poll(self, within_s: float = 0.1) -> Any:
        message = self._consumer.poll(within_s)
        if message is not None and message.error() is None:
            self.values[message.partition()].append(message.value().decode())
        return message

    def read_to_end(self) -> None:
        """Read until each position is the end, which is that of an uncommitted reader: no transaction is open."""
        ends: dict[int, int] = {}

        def has_ends() -> bool:
            """The leaders of the partitions are known again."""
            for number in range(PARTITIONS):
                place = confluent_kafka.TopicPartition(self._topic, number)
                with suppress(confluent_kafka.KafkaException):
                    ends[number] = self._consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
            return len(ends) == PARTITIONS

        eventually(has_ends, within_s=DEADLINE_S)

        def is_at_end() -> bool:
            self.poll()
            places = self._consumer.position([confluent_kafka.TopicPartition(self._topic, each) for each in ends])
            return all(place.offset >= ends[place.partition] for place in places)

        eventually(is_at_end, within_s=DEADLINE_S, what=f"the end of {self._topic}")

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def chains(directory: Path) -> Iterator[ServedCluster]:
    """Yield three brokers; afterwards none of them may have logged a traceback."""
    with ServedCluster(directory) as cluster:
        yield cluster
    for broker in cluster.brokers:
        assert "Traceback" not in broker.errors.read_text(), broker.errors


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=50, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The first round's; one more each.")
@click.option("--faults", type=click.IntRange(min=0), default=4, show_default=True, metavar="N", help="Of each round.")
def main(*, rounds: int, seed: int, faults: int) -> None:
    """Play rounds on one cluster, and end with 1 at the first wrong one, whose files are kept."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-chains-"))
    with chains(directory) as cluster:
        play_rounds(seed, rounds, directory, lambda number: Chain(cluster, directory, number, faults))


if __name__ == "__main__":
    main()
