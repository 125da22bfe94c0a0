"""Makes, starts and stops single brokers of both sides of a comparison."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from bench.peers.kafka_peer import KafkaBroker, kafka_home
from bench.peers.security import SECURED, BenchSecurity, SecuredKafka
from bench.peers.servers import Server
from odradek.model import UnavailableError
from odradek.testing.servers.odradek_process import ServedBroker

OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    # The data of a round must neither fill the disk nor be deleted while the next one is measured.
    "log.segment.delete.delay.ms": "100",
}
"""Options of both sides; all others have their defaults."""


class BrokerProcess(Protocol):
    """A broker with `data_dir`, in a process of its own, that can be started again."""

    data_dir: Path

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` of the running broker."""

    @property
    def pid(self) -> int:
        """The id of the running process."""

    def start(self) -> None:
        """Start the process, and wait until it serves."""

    def stop(self) -> int:
        """Stop the process as an operator does; return its exit status."""

    def kill(self) -> None:
        """Kill the process as a crash does."""


class Side(Struct, frozen=True, kw_only=True):
    """One side: `make(data_dir, options)` prepares a directory and returns a broker that has not started yet."""

    name: str
    make: Callable[[Path, Mapping[str, str]], BrokerProcess]
    security: BenchSecurity | None = None

    @contextmanager
    def broker(self, options: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
        """Yield a broker on a temporary directory, not started: use `running`, once or several times."""
        with tempfile.TemporaryDirectory(prefix=f"odradek-bench-{self.name}-", ignore_cleanup_errors=True) as folder:
            yield self.make(Path(folder) / "data", {**OPTIONS, **(options or {})})

    @contextmanager
    def server(self, options: Mapping[str, str] | None = None) -> Iterator[Server]:
        """Yield a running server on a temporary directory."""
        with self.broker(options) as broker, running(broker):
            if self.security is not None:
                self.security.create_acls(broker.bootstrap_servers)
            yield Server(name=self.name, bootstrap_servers=broker.bootstrap_servers, pid=broker.pid)


@contextmanager
def running(broker: BrokerProcess) -> Iterator[None]:
    """Start a broker, and kill it at the end. Raises `UnavailableError` if it does not start."""
    try:
        broker.start()
    except RuntimeError as error:
        raise UnavailableError(str(error)) from error
    try:
        yield
    finally:
        broker.kill()


def odradek_side(
    own: Mapping[str, str] | None = None, security: BenchSecurity | None = None, *, tree: Path | None = None
) -> Side:
    """Return Odradek's side; `own` is its additional configuration. With `tree`, the code is that of a source tree."""
    keys = {**({} if security is None else security.broker_keys("PLAINTEXT")), **(own or {})}
    launcher = () if tree is None else ("env", f"PYTHONPATH={tree / 'src'}")
    return Side(
        name="odradek" if tree is None else tree.name,
        make=lambda data_dir, options: ServedBroker(data_dir, options={**options, **keys}, launcher=launcher),
        security=security,
    )


def kafka_side(security: BenchSecurity | None = None) -> Side:
    """Return Apache Kafka's side: one node, broker and controller. Raises `UnavailableError` without Kafka."""
    kafka_home()

    def make(data_dir: Path, options: Mapping[str, str]) -> BrokerProcess:
        if security is None:
            broker = KafkaBroker(data_dir, options=options)
        else:
            broker = SecuredKafka(data_dir, {**options, **security.broker_keys(SECURED)})
        broker.format()
        return broker

    return Side(name="kafka", make=make, security=security)
