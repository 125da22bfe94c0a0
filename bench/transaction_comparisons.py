"""Comparisons of transactions on one broker of each side: their rate, reading them, and a coordinator's recovery."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

from bench.clients.processes import run_client
from bench.comparisons import COMMIT, PER_CORE, THROUGHPUT, Bench, throughput, with_cpu
from bench.measure import Aim, Row, Run
from bench.peers.sides import Side, running

SHAPES: Final = tuple({"records": records, "producers": producers} for producers in (1, 16) for records in (1, 10, 100))
CLIENTS: Final = {"transactions": "librdkafka", "our_transactions": "our producer"}
"""The names of the clients, by workload."""
_FETCHED: Final = {"records": 100, "producers": 4, "count": 4_000, "abort_every": 10}
"""The transactions of the topic that is read: a partition for each producer."""
_READ_RECORDS: Final = 350_000
"""How many of its 400,000 records are read; a tenth of them is aborted."""
_OPEN: Final = 10_000
_AS_SOON: Final = Aim(1, at_most=True)


def transactions(bench: Bench) -> Iterator[Row]:
    """Commit transactions by librdkafka and by our producer, and read what is committed."""
    for workload, client in CLIENTS.items():
        for shape in SHAPES:
            what = f"{client}, {shape['records']} records, {shape['producers']} producers"
            yield from _transactions(bench, what, workload, shape)
    yield from _transactions(bench, "consume, process, produce; 100 records", "process", {"records": 100})


def _transactions(bench: Bench, what: str, workload: str, shape: Mapping[str, object]) -> Iterator[Row]:
    arguments = {**shape, "seconds": bench.seconds}
    figures = bench.measure(what, {server.name: with_cpu(server, workload, arguments) for server in bench.servers()})
    cpu = {side: {"us": by["cpu_seconds"] / by["transactions"] * 1e6} for side, by in figures.items()}
    yield bench.row(what, "transactions/s", figures, "transactions_per_second", THROUGHPUT)
    yield bench.row(what, "commit p50, ms", figures, "p50_ms", COMMIT)
    yield bench.row(what, "commit p99, ms", figures, "p99_ms", COMMIT)
    yield bench.row(what, "broker CPU µs", cpu, "us", COMMIT)


def isolation(bench: Bench) -> Iterator[Row]:
    """Read a topic of which a tenth of the transactions is aborted, with both isolation levels."""
    with ExitStack() as topics:
        places: dict[str, Mapping[str, object]] = {}
        for server in bench.servers():
            name = f"bench-{uuid.uuid4().hex[:8]}"
            where = places[server.name] = {"bootstrap_servers": server.bootstrap_servers, "topic": name}
            run_client("create_topic", {**where, "partitions": _FETCHED["producers"]})
            topics.callback(run_client, "delete_topic", where)
            bench.say(f"filling {server.name}")
            run_client("transactions", {**where, **_FETCHED})
        yield from _isolation_of_librdkafka(bench, places)
        for workload in ("arrow", "poll"):
            rates = {}
            for level in ("read_uncommitted", "read_committed"):
                read = {"count": _READ_RECORDS, "partitions": _FETCHED["producers"], "isolation_level": level}
                runs = {side: _client_run(workload, {**where, **read}) for side, where in places.items()}
                what = f"our consumer, {workload}, {level}"
                rates[level] = bench.measure(what, runs)
                yield bench.row(what, "records/s", rates[level], "records_per_second")
            yield _share(bench, f"our consumer, {workload}", rates, "records_per_second")


def _isolation_of_librdkafka(bench: Bench, places: Mapping[str, Mapping[str, object]]) -> Iterator[Row]:
    read = {"partitions": _FETCHED["producers"], "record_bytes": 100, "records": _READ_RECORDS}
    rates = {}
    for level in ("read_uncommitted", "read_committed"):
        runs = {
            server.name: with_cpu(server, "fetch", {**places[server.name], **read, "isolation_level": level})
            for server in bench.servers()
        }
        what = f"librdkafka, {level}"
        rates[level] = bench.measure(what, runs)
        yield from throughput(bench, what, rates[level])
    yield _share(bench, "librdkafka", rates, "mib_per_second")


def _share(bench: Bench, client: str, rates: Mapping[str, Mapping[str, Mapping[str, float]]], name: str) -> Row:
    """Return the rate of read_committed as a share of that of read_uncommitted."""
    committed, all_records = rates["read_committed"], rates["read_uncommitted"]
    share = {side: {"share": by[name] / all_records[side][name]} for side, by in committed.items()}
    return bench.row(f"{client}, read_committed", "of read_uncommitted", share, "share", PER_CORE)


def _client_run(workload: str, arguments: Mapping[str, object]) -> Run:
    return lambda: run_client(workload, arguments)


def coordinator(bench: Bench) -> Iterator[Row]:
    """Kill a broker that coordinates 10,000 open transactions, until it describes each of them as ongoing again."""

    def run_of(side: Side) -> Run:
        def run() -> Mapping[str, float]:
            with side.broker() as broker, running(broker):
                where = {"bootstrap_servers": broker.bootstrap_servers, "topic": "bench"}
                run_client("create_topic", {**where, "partitions": 1})
                opened = run_client("open_transactions", {**where, "count": _OPEN})
                broker.kill()
                began = time.time()
                broker.start()
                serves = time.time() - began
                again = {"bootstrap_servers": broker.bootstrap_servers, "count": _OPEN}
                described = run_client("await_transactions", again)
                return {"serves": serves, "ongoing": described["at"] - began, "opened": opened["per_second"]}

        return run

    what = f"{_OPEN:,} open transactions"
    figures = bench.measure(what, {side.name: run_of(side) for side in bench.sides})
    yield bench.row(what, "opened/s", figures, "opened")
    yield bench.row(f"{what}, from start after SIGKILL until it serves", "s", figures, "serves")
    yield bench.row(f"{what}, until all are described as ongoing", "s", figures, "ongoing", _AS_SOON)
