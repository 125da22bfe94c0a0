"""One round's cluster: three ZooKeeper servers, three brokers, the network between them, and what the tree says."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from conformance.soak.soak_network import Network
from conformance.soak.soak_servers import BROKERS, PORT, ZOOKEEPERS, Claims, SoakBroker, Supervisor
from conformance.soak.soak_tree import Tree, View, troubles
from odradek.model import OdradekError
from odradek.testing import eventually
from odradek.testing.servers.zookeeper import ZookeeperEnsemble, ZookeeperServer

CONTROLLER: Final = "the controller"
LEADER: Final = "the leader of t-0"
ZOOKEEPER_LEADER: Final = "the ZooKeeper leader"
_START_S: Final = 90.0


class BusyError(Exception):
    """Another fault has the server in its hands, or nobody has that role now."""


class SoakCluster:
    """The servers below `directory`; they run from `with` on. `findings` are what was wrong with how they ended."""

    def __init__(self, directory: Path, network: Network) -> None:
        self.network = network
        self.findings: list[str] = []
        hosts = [network.addresses[name] for name in ZOOKEEPERS]
        launchers = [network.launcher(name) for name in ZOOKEEPERS]
        self.ensemble = ZookeeperEnsemble(directory / "zookeeper", hosts=hosts, launchers=launchers)
        metadata = f"zookeeper://{self.ensemble.address}/soak"
        self.brokers = [SoakBroker(name, directory, network, metadata) for name in BROKERS]
        self.claims = Claims()
        self.supervisor = Supervisor(self.brokers, self.claims)
        self._metadata = metadata
        self._tree_lock = threading.Lock()
        self._stack = ExitStack()

    @property
    def addresses(self) -> Mapping[int, str]:
        """Where each broker serves, by id."""
        return {broker.number: f"{self.network.addresses[broker.name]}:{PORT}" for broker in self.brokers}

    @property
    def servers(self) -> str:
        """All brokers, for clients."""
        return ",".join(self.addresses.values())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.ensemble)
            self._tree = Tree(self._metadata)
            stack.callback(self._tree.close)
            for broker in self.brokers:
                stack.callback(broker.kill)
                broker.launch()
            stack.enter_context(self.supervisor)
            eventually(lambda: not self.troubles(), within_s=_START_S, what="the cluster is whole at first")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def view(self) -> View:
        """Return the tree's present content. Raise `OdradekError` while ZooKeeper does not respond."""
        with self._tree_lock:
            return self._tree.view()

    def troubles(self) -> list[str]:
        """Why the cluster is not whole now."""
        with self._tree_lock:
            return troubles(self._tree, self.addresses)

    @contextmanager
    def broker(self, target: str, *, wait_s: float = 0.0) -> Iterator[SoakBroker]:
        """A running broker, by its name or by its role, for one fault alone. Raises `BusyError`."""
        broker = self.brokers[BROKERS.index(self.resolve(target))]
        with self.claims.claim(broker.name, wait_s=wait_s) as had:
            if not had or not broker.runs:
                raise BusyError(broker.name)
            yield broker

    @contextmanager
    def zookeeper(self, target: str) -> Iterator[tuple[str, ZookeeperServer]]:
        """A ZooKeeper server and its name, likewise."""
        name = self.resolve(target)
        server = self.ensemble.servers[ZOOKEEPERS.index(name)]
        with self.claims.claim(name) as had:
            if not had or not server.runs:
                raise BusyError(name)
            yield name, server

    def check_ensemble_is_settled(self) -> None:
        """Raise `BusyError` unless every ZooKeeper server serves.

        In ZooKeeper 3.8.0, a follower that dies while it synchronises loses acknowledged transactions, and its tree
        differs from the others' from then on (ZOOKEEPER-4646, ZOOKEEPER-4785).
        """
        for name, server in zip(ZOOKEEPERS, self.ensemble.servers, strict=True):
            if not server.runs or server.mode() is None:
                raise BusyError(f"{name} does not serve now")

    def resolve(self, target: str) -> str:
        """The name of the server that has a role now. Raises `BusyError` if there is none."""
        if target == ZOOKEEPER_LEADER:
            leader = self.ensemble.leader()
            if leader is None:
                raise BusyError("no ZooKeeper server leads")
            return ZOOKEEPERS[self.ensemble.servers.index(leader)]
        if target not in (CONTROLLER, LEADER):
            return target
        try:
            view = self.view()
            number = view.controller if target == CONTROLLER else view.topics["t"].partitions[0].leader
        except (OdradekError, KeyError):
            number = -1
        if number not in range(len(BROKERS)):
            raise BusyError(f"there is no such broker: {target}")
        return BROKERS[number]

    @contextmanager
    def cut(self, ways: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Lose what goes these ways."""
        with ExitStack() as stack:
            for source, target in ways:
                self.network.cut(source, target)
                stack.callback(self.network.heal, source, target)
            yield

    def stop(self, broker: SoakBroker) -> None:
        """Stop a broker as an operator does; it is a finding if it does not end well.

        A broker that has only just been started may end by the signal itself.
        """
        allowed = {0} if broker.serves() else {0, -signal.SIGTERM}
        if (status := broker.stop()) not in allowed:
            self.findings.append(f"{broker.name} ended with status {status} when it was stopped")

    def wait_until_whole(self, within_s: float) -> list[str]:
        """Why the cluster is not whole after that time; nothing as soon as it is."""
        with contextlib.suppress(TimeoutError):
            eventually(lambda: not self.troubles(), within_s=within_s)
        return self.troubles()
