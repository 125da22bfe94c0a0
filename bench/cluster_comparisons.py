"""Comparisons of clusters of three brokers, Odradek's and optionally a peer's; each function yields rows.

Both clusters run at the same time, but only one gets requests, so each side runs beside an idle cluster. Each round has
a topic of its own, which is deleted.
"""

import signal
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from msgspec import Struct, field

from bench.clients.processes import run_client
from bench.comparisons import THROUGHPUT, describe_shape, settle
from bench.measure import Aim, Row, Run, cpu_seconds, resident_mib, turns
from bench.peers.clusters import ClusterSide, ProcessCluster
from bench.transaction_comparisons import CLIENTS, SHAPES
from odradek.broker.cluster.counted_store import CHILDREN, GET, MULTI

BROKERS: Final = 3
_MIB: Final = 1024 * 1024
_WARM_UP_MIB: Final = 32
_RECORDS: Final = (1024, 100)
_PARTITIONS: Final = (1, 32)
_BATCH_BYTES: Final = 1_000_000
_TOPIC_PARTITIONS: Final = 1_000
_UNITS: Final = {"memory": "MiB", "nodes": "operations", "transactions": "operations"}
_READS: Final = (GET, CHILDREN)
_WRITES: Final = ("Create", "SetData", "Delete")
_AS_SOON: Final = Aim(1, at_most=True)
_FAULTS: Final = (
    ("leader killed", signal.SIGKILL, False),
    ("leader and controller killed", signal.SIGKILL, True),
    ("leader stopped", signal.SIGSTOP, False),
    ("leader and controller stopped", signal.SIGSTOP, True),
)
"""Faults of the leader: (name, signal, whether the leader is the controller)."""


class ClusterBench(Struct, kw_only=True):
    """The options of a benchmark, and its running clusters. `sides` begins with Odradek; `say` prints progress."""

    sides: Sequence[ClusterSide]
    rounds: int
    session_timeout_ms: int
    say: Callable[[str], None]
    _working: ExitStack = field(default_factory=ExitStack)
    _clusters: list[ProcessCluster] = field(default_factory=list)

    def clusters(self) -> list[ProcessCluster]:
        """Return a running cluster of each side; start them at the first call."""
        if not self._clusters:
            for side in self.sides:
                self.say(f"starting {BROKERS} brokers of {side.name}")
                cluster = self._working.enter_context(side.cluster(BROKERS, self.session_timeout_ms))
                self._clusters.append(cluster)
        return self._clusters

    def close(self) -> None:
        """Stop the running clusters."""
        self._clusters.clear()
        self._working.close()

    def measure(self, what: str, runs: Mapping[str, Run]) -> dict[str, dict[str, list[float]]]:
        """Return the figures of all rounds, by side and name."""
        return turns(self.rounds, runs, say=lambda where: self.say(f"{what}: {where}"))

    def row(self, what: str, unit: str, figures: Mapping[str, float], aim: Aim | None = None) -> Row:
        """Return a row with one figure of every side."""
        ours, *peers = (side.name for side in self.sides)
        return Row(what=what, unit=unit, figures=figures, of=ours, to=peers[0] if peers else None, aim=aim)


# ---- failover ------------------------------------------------------------------------------------------------------


def failover(bench: ClusterBench) -> Iterator[Row]:
    """Measure from a fault of the leader to the next acknowledged write, for every kind of fault."""
    clusters = bench.clusters()
    for what, sign, hits_controller in _FAULTS:
        runs = {each.name: _fail_over(each, sign, hits_controller=hits_controller) for each in clusters}
        figures = bench.measure(what, runs)
        for name, summary in (("p50", statistics.median), ("max", max)):
            pauses = {side: summary(by["pause_ms"]) for side, by in figures.items()}
            yield bench.row(f"{what}, {name}", "ms", pauses, _AS_SOON)


def _fail_over(cluster: ProcessCluster, sign: signal.Signals, *, hits_controller: bool) -> Run:
    def run() -> Mapping[str, float]:
        where = {"bootstrap_servers": cluster.bootstrap_servers, "topic": _new_topic()}
        fault = {"pids": cluster.pids, "sign": sign, "controller": cluster.controller()}
        try:
            figures = run_client("fail_over", {**where, **fault, "hits_controller": hits_controller})
        finally:
            cluster.revive()
        in_sync = {"bootstrap_servers": cluster.bootstrap_servers, "topics": [where["topic"]], "brokers": BROKERS}
        run_client("await_in_sync", in_sync)
        run_client("delete_topic", where)
        return figures

    return run


# ---- throughput ----------------------------------------------------------------------------------------------------


def replicated(bench: ClusterBench, *, mib: int, warm_up_s: float) -> Iterator[Row]:
    """Produce with `acks=all` to three replicas at full speed."""
    clusters = bench.clusters()
    for cluster in clusters:
        bench.say(f"warming up {cluster.name} for {warm_up_s:g} s")
        _warm_up(cluster, warm_up_s)
    for record_bytes in _RECORDS:
        for partitions in _PARTITIONS:
            shape = {"record_bytes": record_bytes, "batch_bytes": _BATCH_BYTES, "partitions": partitions}
            what = f"produce, acks=all, {describe_shape(**shape)}"
            runs = {each.name: _produce(each, shape, mib) for each in clusters}
            figures = bench.measure(what, runs)
            median = statistics.median
            speed = {side: median(by["mib_per_second"]) for side, by in figures.items()}
            cpu = {side: median(by["cpu_ms_per_mib"]) for side, by in figures.items()}
            yield bench.row(what, "MiB/s", speed, THROUGHPUT)
            yield bench.row(what, "CPU ms/MiB, all brokers", cpu)


def _produce(cluster: ProcessCluster, shape: Mapping[str, int], mib: int) -> Run:
    arguments = {**shape, "acks": "all", "replicas": BROKERS, "total_bytes": mib * _MIB}

    def run() -> Mapping[str, float]:
        settle()
        before = [cpu_seconds(pid) for pid in cluster.pids]
        figures = run_client("produce", {**arguments, "bootstrap_servers": cluster.bootstrap_servers})
        used = sum(cpu_seconds(pid) for pid in cluster.pids) - sum(before)
        return {**figures, "cpu_ms_per_mib": used / figures["mib"] * 1000}

    return run


def _warm_up(cluster: ProcessCluster, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for record_bytes in _RECORDS:
            for partitions in _PARTITIONS:
                shape = {"record_bytes": record_bytes, "batch_bytes": _BATCH_BYTES, "partitions": partitions}
                _produce(cluster, shape, _WARM_UP_MIB)()


def replicated_transactions(bench: ClusterBench, *, seconds: float, warm_up_s: float, only: str) -> Iterator[Row]:
    """Commit transactions to three replicas, by librdkafka and by our producer, in shapes whose name has `only`."""
    shapes = [
        (f"{client}, {_words(shape)}", workload, shape) for workload, client in CLIENTS.items() for shape in SHAPES
    ]
    shapes.append(("consume, process, produce; 100 records", "process", {"records": 100}))
    for cluster in bench.clusters():
        bench.say(f"warming up {cluster.name} for {warm_up_s:g} s")
        _transact(cluster, "transactions", {"records": 10, "producers": 16, "seconds": warm_up_s})()
    for what, workload, shape in shapes:
        if only not in what:
            continue
        runs = {each.name: _transact(each, workload, {**shape, "seconds": seconds}) for each in bench.clusters()}
        figures = bench.measure(what, runs)
        for name, unit, aim in (
            ("transactions_per_second", "transactions/s", THROUGHPUT),
            ("p50_ms", "commit p50, ms", _AS_SOON),
            ("p99_ms", "commit p99, ms", _AS_SOON),
            ("cpu_ms", "CPU ms, all brokers", _AS_SOON),
        ):
            yield bench.row(what, unit, {side: statistics.median(by[name]) for side, by in figures.items()}, aim)


def _words(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in shape.items())


def _transact(cluster: ProcessCluster, workload: str, arguments: Mapping[str, object]) -> Run:
    def run() -> Mapping[str, float]:
        settle()
        before = [cpu_seconds(pid) for pid in cluster.pids]
        where = {"bootstrap_servers": cluster.bootstrap_servers, "replicas": BROKERS}
        figures = run_client(workload, {**arguments, **where})
        used = sum(cpu_seconds(pid) for pid in cluster.pids) - sum(before)
        return {**figures, "cpu_ms": used / figures["transactions"] * 1000}

    return run


# ---- many partitions -----------------------------------------------------------------------------------------------


def many_partitions(bench: ClusterBench, *, partitions: int, replicas: int) -> Iterator[Row]:
    """Create many partitions, kill a broker that is not the controller, then one that is; measure time and memory."""
    runs = {each.name: _create_and_kill(each, partitions, replicas) for each in bench.clusters()}
    seen = bench.measure(f"{partitions:,} partitions", runs)
    names = list(next(iter(seen.values())))
    for name in names:
        unit = next((unit for word, unit in _UNITS.items() if word in name), "s")
        yield bench.row(name, unit, {side: statistics.median(by[name]) for side, by in seen.items()})


def _create_and_kill(cluster: ProcessCluster, partitions: int, replicas: int) -> Run:
    def run() -> Mapping[str, float]:
        each = min(partitions, _TOPIC_PARTITIONS)
        topics = [_new_topic() for _ in range(partitions // each)]
        many = {"topics": topics, "partitions": each}
        figures = {"memory of a broker, idle": _memory(cluster)}
        where = {"bootstrap_servers": cluster.bootstrap_servers}
        created = run_client("create_many", {**where, **many, "replicas": replicas})
        figures["create"] = created["seconds"]
        figures["memory of a broker, with its partitions"] = _memory(cluster)
        for what, is_controller in (("a broker", False), ("the controller", True)):
            controller = cluster.controller()
            dead = next(number for number in range(BROKERS) if (number == controller) is is_controller)
            fault = {"dead": dead, "pid": cluster.pids[dead], "sign": signal.SIGKILL}
            alive = {"bootstrap_servers": cluster.bootstrap_servers_without(dead)}
            survivors = [number for number in range(BROKERS) if number != dead]
            before = cluster.tree_operations(survivors)
            elected = run_client("await_elected", {**alive, **many, **fault})
            figures[f"elect after {what} died"] = elected["seconds"]
            if before:
                asked = cluster.tree_operations(survivors) - before
                figures[f"nodes of the tree read after {what} died"] = sum(map(asked.__getitem__, _READS))
                figures[f"nodes of the tree written after {what} died"] = sum(map(asked.__getitem__, _WRITES))
                figures[f"transactions for that after {what} died"] = asked[MULTI]
            began = time.perf_counter()
            cluster.revive()
            run_client("await_in_sync", {**where, "topics": topics, "brokers": replicas})
            figures[f"in sync again after {what} died"] = time.perf_counter() - began
        figures["memory of a broker, after that"] = _memory(cluster)
        return figures

    return run


def _memory(cluster: ProcessCluster) -> float:
    """Return the resident MiB of the broker with the most."""
    return max(map(resident_mib, cluster.pids))


def _new_topic() -> str:
    return f"bench-{uuid.uuid4().hex[:8]}"
