"""The faults of a round, in one table, and the schedule that a seed draws from it: several may overlap.

Each fault is a context manager: it begins with the block and is healed at its end, a drawn time later. A target is a
server's name or a role ("the controller"); which server has the role is looked up when the fault begins.
"""

import os
import random
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.soak.soak_cluster import CONTROLLER, LEADER, ZOOKEEPER_LEADER, BusyError, SoakCluster
from conformance.soak.soak_network import CLIENTS
from conformance.soak.soak_servers import BROKERS, ZOOKEEPERS

BROKER_TARGETS: Final = (*BROKERS, CONTROLLER, LEADER)
ZOOKEEPER_TARGETS: Final = (*ZOOKEEPERS, ZOOKEEPER_LEADER)
_RESTART_WAITS_S: Final = 10.0
_SPARE_DESCRIPTORS: Final = 2
_SPARE_BYTES: Final = 1 << 20
_SECONDS_A_FAULT: Final = 3.5
"""A schedule of so many seconds has one fault for each of these."""


@contextmanager
def broker_killed(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.broker(target) as broker:
        broker.kill()
        yield broker.name
        broker.launch()


@contextmanager
def broker_stopped(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.broker(target) as broker:
        broker.pause()
        yield broker.name
        if broker.runs:
            broker.resume()


@contextmanager
def broker_restarted(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.broker(target) as broker:
        cluster.stop(broker)
        yield broker.name
        broker.launch()


@contextmanager
def rolling_restart(cluster: SoakCluster, target: str) -> Iterator[str]:
    """Restart all brokers, each when the one before is in sync again, or a bounded time later."""
    for name in BROKERS:
        with cluster.broker(name, wait_s=_RESTART_WAITS_S) as broker:
            cluster.stop(broker)
            broker.launch()
        cluster.wait_until_whole(_RESTART_WAITS_S)
    yield target


@contextmanager
def all_brokers_killed(cluster: SoakCluster, target: str) -> Iterator[str]:
    with ExitStack() as stack:
        brokers = [stack.enter_context(cluster.broker(name)) for name in BROKERS]
        for broker in brokers:
            broker.kill()
        yield target
        for broker in brokers:
            broker.launch()


@contextmanager
def disk_full(cluster: SoakCluster, target: str) -> Iterator[str]:
    broker = cluster.brokers[BROKERS.index(cluster.resolve(target))]
    broker.fill_disk()
    yield broker.name
    broker.free_disk()


@contextmanager
def descriptors_short(cluster: SoakCluster, target: str) -> Iterator[str]:
    def limit(pid: int) -> int:
        return len(os.listdir(f"/proc/{pid}/fd")) + _SPARE_DESCRIPTORS

    with _limited(cluster, target, resource.RLIMIT_NOFILE, limit) as name:
        yield name


@contextmanager
def memory_short(cluster: SoakCluster, target: str) -> Iterator[str]:
    """No more address space: neither for objects nor for a thread's stack."""

    def limit(pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize() + _SPARE_BYTES

    with _limited(cluster, target, resource.RLIMIT_AS, limit) as name:
        yield name


@contextmanager
def _limited(cluster: SoakCluster, target: str, which: int, limit: Callable[[int], int]) -> Iterator[str]:
    with ExitStack() as stack:
        with cluster.broker(target) as broker:
            if not broker.serves():
                raise BusyError(f"{broker.name} is starting")
            stack.enter_context(broker.limited(which, limit))
        yield broker.name


@contextmanager
def zookeeper_killed(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.zookeeper(target) as (name, server):
        cluster.check_ensemble_is_settled()
        server.kill()
        yield name
        server.launch()


@contextmanager
def zookeeper_stopped(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.zookeeper(target) as (name, server):
        server.pause()
        yield name
        server.resume()


@contextmanager
def zookeeper_restarted(cluster: SoakCluster, target: str) -> Iterator[str]:
    with cluster.zookeeper(target) as (name, server):
        cluster.check_ensemble_is_settled()
        server.stop()
        yield name
        server.launch()


@contextmanager
def zookeeper_quorum_lost(cluster: SoakCluster, target: str) -> Iterator[str]:
    """The target and one more are killed: the third server serves nobody."""
    with cluster.zookeeper(target) as (name, server), cluster.zookeeper(_after(name, ZOOKEEPERS)) as (other, second):
        cluster.check_ensemble_is_settled()
        server.kill()
        second.kill()
        yield f"{name} and {other}"
        server.launch()
        second.launch()


Ways = Sequence[tuple[str, str]]


def _both(source: str, targets: Sequence[str]) -> Ways:
    return [way for target in targets if target != source for way in ((source, target), (target, source))]


def _after(name: str, names: Sequence[str]) -> str:
    return names[(names.index(name) + 1) % len(names)]


def _cut(ways: Callable[[str], Ways]) -> "Inflict":
    """A fault that cuts the ways of one server."""

    @contextmanager
    def inflict(cluster: SoakCluster, target: str) -> Iterator[str]:
        name = cluster.resolve(target)
        with cluster.cut(ways(name)):
            yield name

    return inflict


Inflict = Callable[[SoakCluster, str], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its action, target, longest duration, and weight among the others."""

    inflict: Inflict
    targets: Sequence[str]
    most_s: float = 8.0
    weight: int = 2


ALL: Final = ("all",)
FAULTS: Final = {
    "broker killed": Fault(inflict=broker_killed, targets=BROKER_TARGETS, weight=4),
    "broker stopped": Fault(inflict=broker_stopped, targets=BROKER_TARGETS, most_s=10.0, weight=4),
    "broker restarted": Fault(inflict=broker_restarted, targets=BROKER_TARGETS, weight=3),
    "rolling restart": Fault(inflict=rolling_restart, targets=ALL, weight=2),
    "all brokers killed": Fault(inflict=all_brokers_killed, targets=ALL, weight=1),
    "disk full": Fault(inflict=disk_full, targets=BROKER_TARGETS, weight=4),
    "descriptors short": Fault(inflict=descriptors_short, targets=BROKER_TARGETS, weight=3),
    "memory short": Fault(inflict=memory_short, targets=BROKER_TARGETS, weight=3),
    "ZooKeeper killed": Fault(inflict=zookeeper_killed, targets=ZOOKEEPER_TARGETS, weight=3),
    "ZooKeeper stopped": Fault(inflict=zookeeper_stopped, targets=ZOOKEEPER_TARGETS, weight=3),
    "ZooKeeper restarted": Fault(inflict=zookeeper_restarted, targets=ZOOKEEPER_TARGETS, weight=2),
    "ZooKeeper quorum lost": Fault(inflict=zookeeper_quorum_lost, targets=ZOOKEEPER_TARGETS, weight=1),
    "broker cut off from brokers": Fault(inflict=_cut(lambda name: _both(name, BROKERS)), targets=BROKER_TARGETS),
    "broker does not reach brokers": Fault(
        inflict=_cut(lambda name: [(name, other) for other in BROKERS if other != name]), targets=BROKER_TARGETS
    ),
    "broker cut off from another": Fault(
        inflict=_cut(lambda name: _both(name, [_after(name, BROKERS)])), targets=BROKER_TARGETS
    ),
    "broker cut off from ZooKeeper": Fault(inflict=_cut(lambda name: _both(name, ZOOKEEPERS)), targets=BROKER_TARGETS),
    "broker does not reach ZooKeeper": Fault(
        inflict=_cut(lambda name: [(name, other) for other in ZOOKEEPERS]), targets=BROKER_TARGETS, weight=1
    ),
    "broker does not hear ZooKeeper": Fault(
        inflict=_cut(lambda name: [(other, name) for other in ZOOKEEPERS]), targets=BROKER_TARGETS, weight=1
    ),
    "broker cut off from clients": Fault(inflict=_cut(lambda name: _both(name, [CLIENTS])), targets=BROKER_TARGETS),
    "broker cut off from all": Fault(
        inflict=_cut(lambda name: _both(name, [*BROKERS, *ZOOKEEPERS, CLIENTS])), targets=BROKER_TARGETS
    ),
    "ZooKeeper cut off from ZooKeeper": Fault(
        inflict=_cut(lambda name: _both(name, ZOOKEEPERS)), targets=ZOOKEEPER_TARGETS
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fault of a schedule, in seconds from its beginning."""

    at_s: float
    lasts_s: float
    fault: str
    target: str

    def __str__(self) -> str:
        return f"{self.at_s:5.1f} s, for {self.lasts_s:4.1f} s: {self.fault}: {self.target}"


def draw_schedule(seed: int, seconds: float) -> list[Event]:
    """The faults of one round, by the time they begin."""
    chance = random.Random(f"{seed} faults")
    weights = {name: fault.weight for name, fault in FAULTS.items()}
    events = []
    for _ in range(max(1, round(seconds / _SECONDS_A_FAULT))):
        (name,) = chance.choices(list(weights), list(weights.values()))
        if FAULTS[name].targets is ALL:
            del weights[name]
        lasts_s = chance.uniform(0.5, FAULTS[name].most_s)
        at_s = chance.uniform(0.0, max(0.0, seconds - lasts_s))
        target = chance.choice(list(FAULTS[name].targets))
        events.append(Event(at_s=at_s, lasts_s=lasts_s, fault=name, target=target))
    return sorted(events, key=lambda event: event.at_s)


class Schedule:
    """Lets events happen, each in a thread of its own; `done` tells what became of each, in order."""

    def __init__(self, cluster: SoakCluster, events: Sequence[Event], clock: Callable[[], float]) -> None:
        self.done: list[str] = []
        self.inflicted: list[str] = []
        self.failures: list[str] = []
        """Faults that could not be healed or inflicted: the harness is at fault."""
        self._cluster = cluster
        self._clock = clock
        self._threads = [threading.Thread(target=self._run, args=(event,), name=str(event)) for event in events]

    def play(self, within_s: float) -> None:
        """Return when all of them were healed."""
        self._began_at = self._clock()
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(within_s)
            if thread.is_alive():
                self.failures.append(f"not done within {within_s:g} s: {thread.name}")

    def _run(self, event: Event) -> None:
        pause = threading.Event()
        pause.wait(event.at_s)
        began = f"{self._clock() - self._began_at:5.1f} s: {event.fault}"
        try:
            with FAULTS[event.fault].inflict(self._cluster, event.target) as victim:
                self.inflicted.append(event.fault)
                self.done.append(f"{began}: {victim}")
                pause.wait(event.lasts_s)
        except BusyError as error:
            self.done.append(f"{began}: left out: {error}")
            return
        except Exception as error:
            self.failures.append(f"{event}: {type(error).__name__}: {error}")
            return
        self.done.append(f"{self._clock() - self._began_at:5.1f} s: healed: {event.fault}: {victim}")
