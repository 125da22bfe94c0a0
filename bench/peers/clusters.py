"""Clusters of Odradek and of Kafka for comparisons: several brokers, each a local process.

Both sides get the same options and session timeout. Odradek's brokers share a metadata tree in SQLite. Kafka's nodes
are broker and controller in one process, so that on both sides the killed broker may be the controller.
"""

import asyncio
import re
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from bench.peers.kafka_peer import KafkaBroker, kafka_home
from bench.peers.sides import OPTIONS, BrokerProcess
from odradek.model import UnavailableError, parse_host_port
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import Message
from odradek.runtime import system_runtime
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.ports import free_ports
from odradek.wire.client_connection import open_connection

_ANSWER_MS: Final = 30_000
_MOST_ANSWER_BYTES: Final = 64 << 20
_TREE_OPERATIONS: Final = re.compile(r'^odradek_tree_operations_total\{operation="(\w+)"\} (\S+)$', re.MULTILINE)
_HEARTBEATS_PER_SESSION: Final = 6


class ClusterBroker(BrokerProcess, Protocol):
    """A broker of a cluster, which can start in parallel with others."""

    def launch(self) -> None:
        """Start the process, and return at once."""

    def wait_until_ready(self) -> None:
        """Wait until it serves."""

    def resume(self) -> None:
        """Resume the process after a signal stopped it."""

    @property
    def runs(self) -> bool:
        """Whether the process runs."""


class ProcessCluster(Struct, frozen=True, kw_only=True):
    """Brokers of one side, by id. `find_controller` takes a broker's address and returns the controller's id.

    `metrics` are the HOST:PORT of the brokers' metrics pages, by id; empty without metrics.
    """

    name: str
    brokers: Sequence[ClusterBroker]
    find_controller: Callable[[str], int]
    metrics: Sequence[str] = ()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def pids(self) -> list[int]:
        """The process ids, by broker id."""
        return [broker.pid for broker in self.brokers]

    def bootstrap_servers_without(self, dead: int) -> str:
        """Return the addresses of all brokers except `dead`."""
        return ",".join(broker.bootstrap_servers for broker_id, broker in enumerate(self.brokers) if broker_id != dead)

    def controller(self) -> int:
        """Return the id of the controller according to the first broker."""
        return self.find_controller(self.brokers[0].bootstrap_servers)

    def tree_operations(self, broker_ids: Iterable[int]) -> Counter[str]:
        """Return these brokers' counts of operations on the metadata tree, by operation; empty without metrics."""
        counts: Counter[str] = Counter()
        for broker_id in broker_ids if self.metrics else ():
            with urllib.request.urlopen(f"http://{self.metrics[broker_id]}/metrics") as page:
                for name, count in _TREE_OPERATIONS.findall(page.read().decode()):
                    counts[name] += int(float(count))
        return counts

    def revive(self) -> None:
        """Resume stopped brokers, and restart killed ones."""
        for broker in self.brokers:
            if broker.runs:
                broker.resume()
            else:
                broker.start()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start all brokers, and kill them at the end. Raises `UnavailableError` if a broker does not start."""
        try:
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_until_ready()
            yield
        except RuntimeError as error:
            raise UnavailableError(str(error)) from error
        finally:
            for broker in self.brokers:
                broker.kill()


class ClusterSide(Struct, frozen=True, kw_only=True):
    """A side: `make(folder, brokers, session_timeout_ms)` returns a cluster that has not started yet."""

    name: str
    make: Callable[[Path, int, int], ProcessCluster]

    @contextmanager
    def cluster(self, brokers: int, session_timeout_ms: int) -> Iterator[ProcessCluster]:
        """Yield a running cluster on a temporary directory."""
        with tempfile.TemporaryDirectory(prefix=f"odradek-bench-{self.name}-", ignore_cleanup_errors=True) as folder:
            cluster = self.make(Path(folder), brokers, session_timeout_ms)
            with cluster.running():
                yield cluster


def odradek_cluster_side(
    own: Mapping[str, str] | None = None,
    *,
    has_metrics: bool = False,
    name: str = "odradek",
    metadata: str | None = None,
) -> ClusterSide:
    """Return Odradek's side; `own` is its additional configuration. With metrics, requests cost a little more.

    `metadata` is the URL of the metadata tree, by default a new one in SQLite.
    """

    def make(folder: Path, brokers: int, session_timeout_ms: int) -> ProcessCluster:
        session = {"zookeeper.session.timeout.ms": str(session_timeout_ms)}
        options = {**OPTIONS, **session, **(own or {})}
        metrics = [f"127.0.0.1:{port}" for port in free_ports(brokers)] if has_metrics else []
        served = [
            ServedBroker(
                folder / f"broker-{number}",
                options=options,
                metadata=metadata or f"sqlite:///{folder}/metadata.sqlite",
                arguments=("--broker-id", str(number), *(("--metrics-listen", metrics[number]) if metrics else ())),
            )
            for number in range(brokers)
        ]
        return ProcessCluster(name=name, brokers=served, find_controller=_controller_by_metadata, metrics=metrics)

    return ClusterSide(name=name, make=make)


def kafka_cluster_side(heap: str = "1G") -> ClusterSide:
    """Return Apache Kafka's side, with `heap` for each broker. Raises `UnavailableError` without Kafka."""
    kafka_home()

    def make(folder: Path, brokers: int, session_timeout_ms: int) -> ProcessCluster:
        session = {
            "broker.session.timeout.ms": str(session_timeout_ms),
            "broker.heartbeat.interval.ms": str(session_timeout_ms // _HEARTBEATS_PER_SESSION),
        }
        options = {**OPTIONS, **session}
        nodes = [
            KafkaBroker(folder / f"broker-{number}", options=options, heap=heap, node_id=number)
            for number in range(brokers)
        ]
        for node in nodes:
            node.join(each.voter for each in nodes)
            node.format()
        return ProcessCluster(name="kafka", brokers=nodes, find_controller=_controller_by_quorum)

    return ClusterSide(name="kafka", make=make)


def _controller_by_metadata(address: str) -> int:
    flags = ("allow_auto_topic_creation", "include_topic_authorized_operations")
    return int(_ask(address, ApiKey.METADATA, {"topics": [], **dict.fromkeys(flags, False)}).controller_id)


def _controller_by_quorum(address: str) -> int:
    """Return the quorum's leader, because in Kafka's Metadata responses any broker may be the controller."""
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = _ask(address, ApiKey.DESCRIBE_QUORUM, {"topics": topics})
    return int(answer.topics[0].partitions[0].leader_id)


def _ask(address: str, api_key: ApiKey, message: Message) -> Any:
    async def ask() -> Any:
        host, port = parse_host_port(address)
        connection = await open_connection(
            system_runtime(),
            host,
            port,
            client_id="odradek-bench",
            request_timeout_ms=_ANSWER_MS,
            setup_timeout_ms=_ANSWER_MS,
            max_response_bytes=_MOST_ANSWER_BYTES,
        )
        try:
            return await connection.request(api_key, message)
        finally:
            connection.close()

    return asyncio.run(ask())
