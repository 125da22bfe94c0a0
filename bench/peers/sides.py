"""The two sides of a comparison: what makes a broker of each, where it runs, and how it ends."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from bench.peers.kafka_peer import KafkaBroker, kafka_home
from bench.peers.servers import Server
from odradek.model import UnavailableError
from odradek.model.values import dataclass
from odradek.testing.process import ServedBroker

OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    # What a round leaves must not fill the disk, nor be removed while another is measured.
    "log.segment.delete.delay.ms": "100",
}
"""Of both sides; whatever else there is, is at its default."""


class BrokerProcess(Protocol):
    """A broker over `data_dir`, in a process of its own, that can be started again."""

    data_dir: Path

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, once it runs."""

    @property
    def pid(self) -> int:
        """The number of the running process."""

    def start(self) -> None:
        """Return when it serves."""

    def stop(self) -> int:
        """End it as an operator does; returns its exit status."""

    def kill(self) -> None:
        """End it as a crash does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """`make(data_dir, options)` gives a broker that has not started yet, over a directory that is made ready."""

    name: str
    make: Callable[[Path, Mapping[str, str]], BrokerProcess]

    @contextmanager
    def broker(self, options: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
        """A broker on a temporary directory; `running` starts it, as often as needed."""
        with tempfile.TemporaryDirectory(prefix=f"odradek-bench-{self.name}-", ignore_cleanup_errors=True) as folder:
            yield self.make(Path(folder) / "data", {**OPTIONS, **(options or {})})

    @contextmanager
    def server(self, options: Mapping[str, str] | None = None) -> Iterator[Server]:
        """The same, running."""
        with self.broker(options) as broker, running(broker):
            yield Server(name=self.name, bootstrap_servers=broker.bootstrap_servers, pid=broker.pid)


@contextmanager
def running(broker: BrokerProcess) -> Iterator[None]:
    """Start a broker, and kill it at the end. Raises `UnavailableError` if it does not serve."""
    try:
        broker.start()
    except RuntimeError as error:
        raise UnavailableError(str(error)) from error
    try:
        yield
    finally:
        broker.kill()


def odradek_side(own: Mapping[str, str] | None = None) -> Side:
    """Ours; `own` is configuration that only this side gets."""
    return Side(
        name="odradek", make=lambda data_dir, options: ServedBroker(data_dir, options={**options, **(own or {})})
    )


def kafka_side() -> Side:
    """Apache Kafka: one node, broker and controller. Raises `UnavailableError` where there is none to be had."""
    kafka_home()
    return Side(name="kafka", make=_kafka)


def _kafka(data_dir: Path, options: Mapping[str, str]) -> BrokerProcess:
    broker = KafkaBroker(data_dir, options=options)
    broker.format()
    return broker
