"""Comparisons of one broker of each side; each function yields rows. `storage_comparisons` has more.

Comparisons share one warm broker of each side; `start` and `memory` start new ones every round. The disk is synced
before each measurement, so that no side waits for the other's writes; fetched data was just written, and is in the page
cache. Topics are deleted after their measurement.
"""

import mmap
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct, field

from bench.clients.processes import background_client, run_client
from bench.measure import Aim, Row, Run, cpu_seconds, peak_resident_mib, resident_mib, rounds
from bench.peers.servers import Server
from bench.peers.sides import Side, running

_MIB: Final = 1024 * 1024
_SETTLE_S: Final = 0.5
_IDLE_S: Final = 3.0
_AT_HAND_MIB: Final = 1024
_RECORDS: Final = (100, 1024)
_BATCHES: Final = (1_000_000, 16_384)
_PARTITIONS: Final = (1, 32)
_REQUESTS: Final = 40_000
_PER_SECOND: Final = 1_000
_WARM_UP_MIB: Final = 32
_WARM_UP_REQUESTS: Final = 5_000

THROUGHPUT: Final = Aim(1.5)
PER_CORE: Final = Aim(1)
LATENCY: Final = Aim(0.5, at_most=True)
COMMIT: Final = Aim(1, at_most=True)
FOOTPRINT: Final = Aim(0.1, at_most=True)
"""The aims of docs/performance.md."""


class Bench(Struct, kw_only=True):
    """The options of a benchmark, and its running brokers. `say` prints progress."""

    ours: Side
    peer: Side
    rounds: int
    mib: int
    scale: float
    seconds: float
    warm_up_s: float
    compression: str
    say: Callable[[str], None]
    _working: ExitStack = field(default_factory=ExitStack)
    _servers: list[Server] = field(default_factory=list)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Return both sides, Odradek's first."""
        return self.ours, self.peer

    def servers(self) -> list[Server]:
        """Return a warm broker of each side; start and warm them up at the first call."""
        if not self._servers:
            for side in self.sides:
                self.say(f"starting {side.name}")
                self._servers.append(self._working.enter_context(side.server()))
            for server in self._servers:
                self.say(f"warming up {server.name} for {self.warm_up_s:g} s")
                _warm_up(server, self.warm_up_s)
        return self._servers

    def close(self) -> None:
        """Stop the running brokers; `servers` starts new ones."""
        self._servers.clear()
        self._working.close()

    def measure(self, what: str, runs: Mapping[str, Run]) -> dict[str, dict[str, float]]:
        """Return the medians of rounds, by side and figure; `settle` precedes each run."""

        def settled(run: Run) -> Run:
            def measured() -> Mapping[str, float]:
                settle()
                return run()

            return measured

        return rounds(
            self.rounds,
            {side: settled(run) for side, run in runs.items()},
            say=lambda where: self.say(f"{what}: {where}"),
        )

    def row(
        self, what: str, unit: str, figures: Mapping[str, Mapping[str, float]], name: str, aim: Aim | None = None
    ) -> Row:
        """Return a row with the figure `name` of both sides."""
        by_side = {side: by[name] for side, by in figures.items()}
        return Row(what=what, unit=unit, figures=by_side, of=self.ours.name, to=self.peer.name, aim=aim)


# ---- start and memory ----------------------------------------------------------------------------------------------


def start(bench: Bench) -> Iterator[Row]:
    """Measure from the start of a process on an empty directory to the first acknowledged record."""

    def run_of(side: Side) -> Run:
        def run() -> Mapping[str, float]:
            with side.broker() as broker:
                began = time.perf_counter()
                with running(broker):
                    ready = time.perf_counter() - began
                    first = run_client("first_record", {"bootstrap_servers": broker.bootstrap_servers})["seconds"]
                    return {"ready": ready, "first": first, "both": ready + first}

        return run

    figures = bench.measure("start", {side.name: run_of(side) for side in bench.sides})
    yield bench.row("start to the first acknowledged record", "s", figures, "both", FOOTPRINT)
    yield bench.row("of that, until it serves", "s", figures, "ready")


def memory(bench: Bench) -> Iterator[Row]:
    """Measure resident memory of a broker without any request, and of one that has worked."""

    def run_of(side: Side) -> Run:
        def run() -> Mapping[str, float]:
            with side.server() as server:
                time.sleep(_IDLE_S)
                idle = resident_mib(server.pid)
                for partitions in _PARTITIONS:
                    _produce_and_fetch(server, 1024, 16_384, partitions, bench.mib)
                loaded, peak = resident_mib(server.pid), peak_resident_mib(server.pid)
                return {"idle": idle, "loaded": loaded, "peak": peak}

        return run

    figures = bench.measure("memory", {side.name: run_of(side) for side in bench.sides})
    yield bench.row("resident memory, idle", "MiB", figures, "idle", FOOTPRINT)
    yield bench.row(f"the same after {2 * bench.mib} MiB in and out", "MiB", figures, "loaded")
    yield bench.row("the most it ever was meanwhile", "MiB", figures, "peak")


# ---- throughput ----------------------------------------------------------------------------------------------------


def produce(bench: Bench) -> Iterator[Row]:
    """Produce with acks=1 at full speed."""
    for record_bytes, batch_bytes, partitions in _shapes():
        shape = {"record_bytes": record_bytes, "batch_bytes": batch_bytes, "partitions": partitions}
        what = f"produce, {describe_shape(**shape)}{'' if bench.compression == 'none' else f', {bench.compression}'}"
        arguments = {**shape, "total_bytes": bench.mib * _MIB, "compression": bench.compression}
        runs = {server.name: with_cpu(server, "produce", arguments) for server in bench.servers()}
        yield from throughput(bench, what, bench.measure(what, runs))


def fetch(bench: Bench) -> Iterator[Row]:
    """Fetch from the beginning, at full speed, records that were just written."""
    for record_bytes, batch_bytes, partitions in _shapes():
        shape = {"record_bytes": record_bytes, "batch_bytes": batch_bytes, "partitions": partitions}
        what = f"fetch, {describe_shape(**shape)}"
        with ExitStack() as topics:
            runs = {}
            for server in bench.servers():
                bench.say(f"{what}: filling {server.name}")
                arguments = topics.enter_context(
                    _filled_topic(server, record_bytes, batch_bytes, partitions, bench.mib)
                )
                runs[server.name] = with_cpu(server, "fetch", arguments)
            figures = bench.measure(what, runs)
        yield from throughput(bench, what, figures)
        # Client and broker share the cores: no broker can use what the client takes.
        yield bench.row(what, "client CPU ms/MiB", figures, "client_ms_per_mib")


def _shapes() -> Iterator[tuple[int, int, int]]:
    return ((r, b, p) for p in _PARTITIONS for b in _BATCHES for r in _RECORDS)


def describe_shape(record_bytes: int, batch_bytes: int, partitions: int) -> str:
    """Return the sizes of records and batches and the number of partitions as text."""
    record = "1 KiB" if record_bytes == 1024 else f"{record_bytes} B"
    batch = "1 MB" if batch_bytes == 1_000_000 else f"{batch_bytes // 1000} KB"
    return f"{record} records, {batch} batches, {partitions} partition{'s' if partitions > 1 else ''}"


def throughput(bench: Bench, what: str, figures: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """Yield the rows of MiB/s, and of the broker's CPU ms for each MiB."""
    cpu = {side: {"ms": by["cpu_seconds"] / by["mib"] * 1000} for side, by in figures.items()}
    yield bench.row(what, "MiB/s", figures, "mib_per_second", THROUGHPUT)
    yield bench.row(what, "broker CPU ms/MiB", cpu, "ms")


def requests(bench: Bench) -> Iterator[Row]:
    """Produce one record per request, with many requests in flight on one connection."""
    what = "one record a request"
    runs = {
        server.name: with_cpu(server, "requests", {"count": _REQUESTS, "partitions": 1}) for server in bench.servers()
    }
    figures = bench.measure(what, runs)
    per_core = {
        side: {"rate": by["requests"] / by["cpu_seconds"], "client": by["requests"] / by["client_s"]}
        for side, by in figures.items()
    }
    yield bench.row(what, "requests/s", figures, "requests_per_second", PER_CORE)
    yield bench.row(what, "requests per s of broker CPU", per_core, "rate", PER_CORE)
    yield bench.row(what, "requests per s of client CPU", per_core, "client")


def logins(bench: Bench) -> Iterator[Row]:
    """Connect and log in, again and again. The rate is that of the client, which is Python."""
    what = "connections and logins"
    runs = {server.name: with_cpu(server, "logins", {"seconds": bench.seconds}) for server in bench.servers()}
    figures = bench.measure(what, runs)
    per_core = {side: {"rate": by["connections"] / by["cpu_seconds"]} for side, by in figures.items()}
    yield bench.row(what, "connections/s", figures, "connections_per_second", PER_CORE)
    yield bench.row(what, "connections per s of broker CPU", per_core, "rate", PER_CORE)


def latency(bench: Bench) -> Iterator[Row]:
    """Measure from `produce` to the consumer's `poll`, at a steady rate, alone and beside a saturating producer."""
    arguments = {"per_second": _PER_SECOND, "seconds": bench.seconds, "partitions": 1}
    for what, is_beside in (("alone", False), ("beside a saturating producer", True)):
        title = f"end to end at {_PER_SECOND:,} records/s, {what}"

        def run_of(server: Server, *, is_beside: bool = is_beside) -> Run:
            def run() -> Mapping[str, float]:
                where = {"bootstrap_servers": server.bootstrap_servers}
                with ExitStack() as stack:
                    if is_beside:
                        stack.enter_context(background_client("saturate", {**where, "partitions": 1}))
                    return run_client("latency", {**arguments, **where})

            return run

        figures = bench.measure(title, {server.name: run_of(server) for server in bench.servers()})
        yield bench.row(f"{title}, p50", "ms", figures, "p50_ms", LATENCY)
        yield bench.row(f"{title}, p99", "ms", figures, "p99_ms", LATENCY)


# ---- helpers -------------------------------------------------------------------------------------------------------


def with_cpu(server: Server, workload: str, arguments: Mapping[str, object]) -> Run:
    """Return a run whose figures include the server's CPU during the run, as `cpu_seconds`."""

    def run() -> Mapping[str, float]:
        before = cpu_seconds(server.pid)
        figures = run_client(workload, {**arguments, "bootstrap_servers": server.bootstrap_servers})
        return {**figures, "cpu_seconds": cpu_seconds(server.pid) - before}

    return run


@contextmanager
def _filled_topic(
    server: Server, record_bytes: int, batch_bytes: int, partitions: int, mib: int
) -> Iterator[Mapping[str, object]]:
    """Create a topic of `mib` MiB for the block; yield its arguments for the workload `fetch`."""
    where = {"bootstrap_servers": server.bootstrap_servers, "topic": f"bench-{uuid.uuid4().hex[:8]}"}
    run_client("create_topic", {**where, "partitions": partitions})
    shape = {"record_bytes": record_bytes, "partitions": partitions}
    try:
        filled = run_client("produce", {**where, **shape, "batch_bytes": batch_bytes, "total_bytes": mib * _MIB})
        yield {**shape, "topic": where["topic"], "records": int(filled["records"])}
    finally:
        run_client("delete_topic", where)


def _produce_and_fetch(server: Server, record_bytes: int, batch_bytes: int, partitions: int, mib: int) -> None:
    with _filled_topic(server, record_bytes, batch_bytes, partitions, mib) as arguments:
        run_client("fetch", {**arguments, "bootstrap_servers": server.bootstrap_servers})


def _warm_up(server: Server, seconds: float) -> None:
    """Warm up a broker, as a JVM needs frequent code compiled for full speed; Odradek's gets the same."""
    until = time.perf_counter() + seconds
    where = {"bootstrap_servers": server.bootstrap_servers}
    while time.perf_counter() < until:
        for record_bytes, batch_bytes, partitions in _shapes():
            _produce_and_fetch(server, record_bytes, batch_bytes, partitions, _WARM_UP_MIB)
            run_client("requests", {**where, "count": _WARM_UP_REQUESTS, "partitions": 1})
            if time.perf_counter() >= until:
                break
        run_client("latency", {**where, "per_second": _PER_SECOND, "seconds": 1, "partitions": 1})


def settle() -> None:
    """Let deletions finish, sync the disk, and touch free memory.

    A hypervisor may take back a guest's free memory (free page reporting): a write to the page cache then waits for the
    host, up to ten times as long as otherwise.
    """
    time.sleep(_SETTLE_S)
    os.sync()
    free_mib = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // _MIB
    at_hand_mib = max(1, min(_AT_HAND_MIB, free_mib // 4))
    with mmap.mmap(-1, at_hand_mib * _MIB) as pages:
        touched = bytes(_MIB)
        for _ in range(at_hand_mib):
            pages.write(touched)
