"""The brokers and ZooKeeper servers of a round: each with a namespace, brokers with a small disk of their own, too.

A broker that ends by itself is started again, as a supervisor does; `exits` keeps what it said.
"""

import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from conformance.soak.soak_network import Network
from odradek.testing.servers.odradek_process import ServedBroker

BROKERS: Final = ("broker-0", "broker-1", "broker-2")
ZOOKEEPERS: Final = ("zookeeper-0", "zookeeper-1", "zookeeper-2")
PORT: Final = 9092
DISK_BYTES: Final = 128 << 20
_BALLAST: Final = "ballast"
_SUPERVISED_S: Final = 1.0
_LAST_LINES: Final = 3
_COMMAND_S: Final = 60.0

REPLICATED: Final = {
    "replica.fetch.wait.max.ms": "100",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
"""Options of three brokers whose faults are tested."""
OPTIONS: Final = REPLICATED | {
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "1000",
    "log.segment.bytes": "262144",
    "log.index.size.max.bytes": "65536",
}


class Claims:
    """Which servers a fault has in its hands, so that no other fault starts or ends the process meanwhile."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {name: threading.Lock() for name in (*BROKERS, *ZOOKEEPERS)}

    @contextmanager
    def claim(self, name: str, *, wait_s: float = 0.0) -> Iterator[bool]:
        """Claim a server until the end of the block, and yield whether that succeeded within `wait_s`."""
        lock = self._locks[name]
        had = lock.acquire(timeout=wait_s) if wait_s else lock.acquire(blocking=False)
        try:
            yield had
        finally:
            if had:
                lock.release()


class SoakBroker(ServedBroker):
    """A broker in its namespace, its data on a tmpfs of `DISK_BYTES` below `directory`."""

    def __init__(self, name: str, directory: Path, network: Network, metadata: str) -> None:
        self.name = name
        self.number = BROKERS.index(name)
        self._serving_pid = 0
        self.disk = directory / name
        self.disk.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self.disk)], check=True, timeout=_COMMAND_S
        )
        super().__init__(
            self.disk / "data",
            options=OPTIONS,
            listen=f"{network.addresses[name]}:{PORT}",
            metadata=metadata,
            launcher=network.launcher(name),
            arguments=["--broker-id", str(self.number), "--allow-anonymous-network"],
            errors=directory / f"{name}.err",
        )

    def serves(self) -> bool:
        """Whether the running process has become ready, which is looked for now."""
        if self._serving_pid != self.pid and self._is_ready():
            self._serving_pid = self.pid
        return self._serving_pid == self.pid

    def fill_disk(self) -> None:
        """Leave no page of its disk free."""
        with (self.disk / _BALLAST).open("ab", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(4096)):
                pass

    def free_disk(self) -> None:
        """Give the room back that `fill_disk` took."""
        (self.disk / _BALLAST).unlink(missing_ok=True)

    @contextmanager
    def limited(self, which: int, limit: Callable[[int], int]) -> Iterator[None]:
        """Lower one limit of the running process to `limit(pid)`; give it the soak's own at the end."""
        pid = self.pid
        soft, hard = resource.getrlimit(which)
        resource.prlimit(pid, which, (limit(pid), hard))
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, which, (soft, hard))

    def unmount(self, *, keep: bool) -> None:
        """Take the disk away, after its files were copied to where it was if they are to be kept."""
        copy = self.disk.with_name(f"{self.name}.kept")
        if keep:
            shutil.copytree(self.disk, copy, symlinks=True)
        subprocess.run(["umount", "--lazy", str(self.disk)], check=True, timeout=_COMMAND_S)
        self.disk.rmdir()
        if keep:
            copy.rename(self.disk)


class Supervisor:
    """Starts brokers again that ended by themselves; in a thread, from `with` on."""

    def __init__(self, brokers: Sequence[SoakBroker], claims: Claims) -> None:
        self.exits: list[str] = []
        self.crashes: list[str] = []
        """Brokers that a signal ended that was not the soak's."""
        self._brokers = brokers
        self._claims = claims
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(_SUPERVISED_S):
            for broker in self._brokers:
                with self._claims.claim(broker.name) as had:
                    if had and not broker.runs:
                        self._start(broker)

    def _start(self, broker: SoakBroker) -> None:
        status = broker.exit_status
        last = broker.errors.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        said = f"{broker.name} ended by itself with status {status}; it said: {' | '.join(last)}"
        self.exits.append(said)
        if status is not None and status < 0:
            self.crashes.append(said)
        broker.launch()
