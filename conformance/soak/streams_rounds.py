"""Kafka Streams counts words exactly once, while its instances and the brokers of `odradek up` are killed.

Two instances of `WordCount.java` copy lines and count their words, with a repartition topic and a changelog; their
stores are in memory, so that they are restored after each death. Whatever happens, the committed counts of a
word are 1, 2, 3, … in this order, and the copies of each partition are its lines. By hand:
`PYTHONPATH=. python conformance/soak/streams_rounds.py`.
"""

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import confluent_kafka

from bench.peers.kafka_peer import kafka_home
from conformance.soak.chain_rounds import OPTIONS, Committed, Faults, Worker, create_topics, play_rounds
from conformance.soak.fault_clients import CLOCK
from odradek.testing.servers.odradek_process import SupervisedBrokers

BROKERS: Final = 3
WORDS: Final = 20
WORDS_OF_A_LINE: Final = 3
AHEAD: Final = 60
"""Lines that are written ahead of the copies: records flow until the end."""
DEADLINE_S: Final = 240.0
SETTINGS: Final = {
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",
    "num.stream.threads": "1",
    "session.timeout.ms": "3000",
    "heartbeat.interval.ms": "300",
    "auto.offset.reset": "earliest",
}
FAULTS: Final = ("instance killed", "instance stopped", "broker killed", "both killed")
_SOURCE: Final = Path(__file__).parents[1] / "peers" / "java" / "WordCount.java"


def instance(name: str, servers: str, topics: Sequence[str], directory: Path) -> Worker:
    """Return one process of Kafka Streams."""
    settings = {"bootstrap.servers": servers, "application.id": f"streams-{topics[0]}"}
    settings |= {"state.dir": str(directory / name), **SETTINGS}
    command = kafka_home().command(str(_SOURCE), *topics, *(f"{key}={value}" for key, value in settings.items()))
    return Worker(name, command, directory / f"{name}.err")


class Streams:
    """One round: `play` returns what is wrong with the copies and the counts of `lines` lines, or an empty text."""

    def __init__(
        self, cluster: SupervisedBrokers, directory: Path, seed: int, *, lines: int, faults: Sequence[str]
    ) -> None:
        self.done: list[str] = []
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._topics = [f"{name}-{seed}" for name in ("lines", "copies", "counts")]
        self._instances = [
            instance(f"{seed}-{name}", cluster.bootstrap_servers, self._topics, directory) for name in ("a", "b")
        ]
        due = [(lines * number // (len(faults) + 1), what) for number, what in enumerate(faults, 1)]
        self._faults = Faults(self._instances, due, self.done)
        words = [f"word-{number}" for number in range(WORDS)]
        self._lines = [self._chance.choices(words, k=WORDS_OF_A_LINE) for _ in range(lines)]

    def play(self) -> str:
        create_topics(self._cluster.bootstrap_servers, self._topics)
        lines, copies, counts = (Committed(self._cluster.bootstrap_servers, topic) for topic in self._topics)
        try:
            for instance in self._instances:
                instance.launch()
            wrong = self._flow(copies, counts)
            for instance in self._instances:
                instance.stop()  # which ends its transactions
            if not wrong:
                for reader in (lines, copies, counts):
                    reader.read_to_end()
                wrong = self._wrong(lines, copies, counts)
            return wrong
        finally:
            for instance in self._instances:
                instance.kill()
            for reader in (lines, copies, counts):
                reader.close()

    def _flow(self, copies: Committed, counts: Committed) -> str:
        """Write the lines, and inflict the faults, until all is counted."""
        settings = {"bootstrap.servers": self._cluster.bootstrap_servers, "enable.idempotence": True}
        settings |= {"partitioner": "murmur2_random", "reconnect.backoff.max.ms": 500, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        written, total = 0, len(self._lines)
        give_up_at = CLOCK.monotonic() + DEADLINE_S
        while copies.count < total or counts.count < total * WORDS_OF_A_LINE:
            for words in self._lines[written : copies.count + AHEAD]:
                producer.produce(self._topics[0], " ".join(words), str(self._chance.randrange(100)))
                written += 1
            producer.poll(0)
            copies.poll(0)
            counts.poll(0.05)
            if (fault := self._faults.take(copies.count)) is not None:
                self._inflict(fault)
            if CLOCK.monotonic() > give_up_at:
                return f"{copies.count} copies and {counts.count} counts within {DEADLINE_S:g} s"
        return ""

    def _inflict(self, what: str) -> None:
        instance = self._chance.choice(self._instances)
        if what == "instance stopped":
            self._faults.stop(instance)
        elif what != "broker killed":
            instance.kill()
        if what in ("broker killed", "both killed"):
            broker_id = self._chance.randrange(BROKERS)
            with suppress(ProcessLookupError):  # it was killed before, and has not started again
                self._cluster.kill_broker(broker_id)
            what = f"{what}: {broker_id}"
        self.done.append(what)

    def _wrong(self, lines: Committed, copies: Committed, counts: Committed) -> str:
        wrong = [
            f"partition {number} has {len(copies.values[number])} copies of {len(values)} lines, or another order"
            for number, values in lines.values.items()
            if copies.values[number] != values
        ]
        found: dict[str, list[int]] = defaultdict(list)
        for values in counts.values.values():
            for value in values:
                word, count = value.split(" ")
                found[word].append(int(count))
        expected = Counter(word for words in self._lines for word in words)
        wrong += [
            f"the counts of {word} are {found[word]} instead of 1 to {count}"
            for word, count in expected.items()
            if found[word] != list(range(1, count + 1))
        ]
        return "\n".join(wrong)


@contextmanager
def brokers(directory: Path) -> Iterator[SupervisedBrokers]:
    """Yield three brokers of `odradek up`; afterwards none of them may have logged a traceback."""
    with SupervisedBrokers(directory / "brokers", brokers=BROKERS, options=OPTIONS) as cluster:
        yield cluster
    assert "Traceback" not in cluster.errors.read_text(), cluster.errors


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The first round's; one more each.")
@click.option("--lines", type=click.IntRange(min=1), default=3000, show_default=True, metavar="N", help="Per round.")
@click.option("--faults", type=click.IntRange(min=0), default=6, show_default=True, metavar="N", help="Per round.")
@click.option("--first-protocol", is_flag=True, help="With transaction.version 1.")
def main(*, rounds: int, seed: int, lines: int, faults: int, first_protocol: bool) -> None:
    """Play rounds on one cluster, and end with 1 at the first wrong one, whose files are kept."""
    directory = Path(tempfile.mkdtemp(prefix="odradek-streams-"))
    with brokers(directory) as cluster:
        if first_protocol:
            arguments = ["--bootstrap-server", cluster.bootstrap_servers, "downgrade"]
            kafka_home().tool("org.apache.kafka.tools.FeatureCommand", *arguments, "--feature", "transaction.version=1")

        def new_round(number: int) -> Streams:
            chosen = random.Random(number).choices(FAULTS, k=faults)
            return Streams(cluster, directory, number, lines=lines, faults=chosen)

        play_rounds(seed, rounds, directory, new_round)


if __name__ == "__main__":
    main()
