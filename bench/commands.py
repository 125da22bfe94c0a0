"""The subcommands that compare one broker with librdkafka's mock cluster: their sides, workloads and rows."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import click

from bench.clients.processes import background_client, run_client
from bench.measure import Aim, Row, cpu_seconds, print_rows, resident_mib, rounds
from bench.peers.servers import Server, mock_server, odradek_server

_MIB = 1024 * 1024
_AS_FAST = Aim(0.9)
_AS_CHEAP = Aim(1.1, at_most=True)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
_ROUNDS = click.option(
    "--rounds", "count", default=3, show_default=True, help="Times each side runs; medians are shown."
)


@click.group()
def command() -> None:
    """Compare with a peer in the same run, by ratio."""


@command.command()
@click.option("--mib", default=256, show_default=True, help="How much is produced in each round.")
@_ROUNDS
@_JSON
def produce(mib: int, count: int, *, as_json: bool) -> None:
    """Produce to Odradek, with and without file writes, and librdkafka's mock: throughput, broker CPU per MiB."""
    rows = []
    with ExitStack() as stack:
        servers = [
            stack.enter_context(odradek_server()),
            stack.enter_context(odradek_server("no writes", options={"bench.discard.writes": "true"})),
            stack.enter_context(mock_server()),
        ]
        for record_bytes, batch_bytes in ((100, 1_000_000), (1024, 1_000_000), (100, 16_384), (1024, 16_384)):
            arguments = {"record_bytes": record_bytes, "batch_bytes": batch_bytes, "total_bytes": mib * _MIB}
            figures = rounds(count, {server.name: _with_cpu(server, "produce", arguments) for server in servers})
            what = f"{record_bytes} B records, {batch_bytes // 1000} kB batches"
            speed = {side: by["mib_per_second"] for side, by in figures.items()}
            cpu = {side: by["cpu_seconds"] / by["mib"] * 1000 for side, by in figures.items()}
            rows.append(Row(what=what, unit="MiB/s", figures=speed, of="no writes", to="mock", aim=_AS_FAST))
            rows.append(Row(what=what, unit="broker CPU ms/MiB", figures=cpu, of="no writes", to="mock", aim=_AS_CHEAP))
    print_rows("produce, acks=1, 1 partition, librdkafka as client", rows, as_json=as_json)


@command.command()
@click.option("--requests", "number", default=40_000, show_default=True, help="Requests in each round.")
@_ROUNDS
@_JSON
def requests(number: int, count: int, *, as_json: bool) -> None:
    """Measure single-record produce requests per second, and broker CPU per request."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(odradek_server()),
            stack.enter_context(odradek_server("no writes", options={"bench.discard.writes": "true"})),
            stack.enter_context(mock_server()),
        ]
        figures = rounds(count, {server.name: _with_cpu(server, "requests", {"count": number}) for server in servers})
    speed = {side: by["requests_per_second"] for side, by in figures.items()}
    cpu = {side: by["cpu_seconds"] / by["requests"] * 1e6 for side, by in figures.items()}
    rows = [
        Row(what="one record a request", unit="requests/s", figures=speed, of="no writes", to="mock", aim=_AS_FAST),
        Row(
            what="one record a request",
            unit="broker CPU µs/request",
            figures=cpu,
            of="no writes",
            to="mock",
            aim=_AS_CHEAP,
        ),
    ]
    print_rows("requests, acks=1, librdkafka as client", rows, as_json=as_json)


@command.command()
@click.option("--seconds", default=5.0, show_default=True, help="How long each measurement sends.")
@click.option("--per-second", default=1000, show_default=True, help="Records a second.")
@_ROUNDS
@_JSON
def latency(seconds: float, per_second: int, count: int, *, as_json: bool) -> None:
    """Measure end-to-end latency at a steady rate, alone and beside a saturating producer."""
    arguments = {"per_second": per_second, "seconds": seconds}
    rows = []
    with ExitStack() as stack:
        servers = [stack.enter_context(odradek_server()), stack.enter_context(mock_server())]
        for what, beside in (("alone", None), ("beside a saturating producer", ("saturate", {}))):
            figures = rounds(count, {server.name: _latency_of(server, arguments, beside=beside) for server in servers})
            rows += [
                Row(
                    what=f"{what}, {name.removesuffix('_ms')}",
                    unit="ms",
                    figures={side: by[name] for side, by in figures.items()},
                    of="odradek",
                    to="mock",
                )
                for name in ("p50_ms", "p99_ms")
            ]
    print_rows(f"end-to-end latency at {per_second:,} records/s, librdkafka as client", rows, as_json=as_json)


@command.command()
@click.option("--seconds", default=10.0, show_default=True, help="How long each measurement sends.")
@click.option("--per-second", default=200, show_default=True, help="Records a second of the measured client.")
@click.option("--connections", default=500, show_default=True, help="Connections of the crowd.")
@click.option("--requests", "pipelined", default=256, show_default=True, help="Requests a second on each of them.")
@_ROUNDS
@_JSON
def crowd(seconds: float, per_second: int, connections: int, pipelined: int, count: int, *, as_json: bool) -> None:
    """Measure end-to-end latency of one client, alone and beside many connections that pipeline Metadata requests."""
    arguments = {"per_second": per_second, "seconds": seconds}
    load = {"connections": connections, "per_second": pipelined}
    with ExitStack() as stack:
        server = stack.enter_context(odradek_server())
        sides = {
            "alone": _latency_of(server, arguments),
            "in the crowd": _latency_of(server, arguments, beside=("crowd", load)),
        }
        figures = rounds(count, sides)
    rows = [
        Row(
            what=f"one client's {name.removesuffix('_ms')}",
            unit="ms",
            figures={side: by[name] for side, by in figures.items()},
            of="in the crowd",
            to="alone",
            aim=Aim(5, at_most=True),
        )
        for name in ("p50_ms", "p99_ms")
    ]
    title = f"latency at {per_second:,} records/s beside {connections:,} connections of {pipelined:,} requests/s each"
    print_rows(title, rows, as_json=as_json)


@command.command()
@_ROUNDS
@_JSON
def start(count: int, *, as_json: bool) -> None:
    """Measure from starting the process to the first acknowledged record, and resident memory when idle."""
    figures = rounds(count, {"odradek": _start(odradek_server), "mock": _start(mock_server)})
    rows = [
        Row(what=what, unit=unit, figures={side: by[key] for side, by in figures.items()}, of="odradek", to="mock")
        for what, unit, key in (
            ("process started to ready", "s", "ready_seconds"),
            ("ready to first acknowledged record", "s", "seconds"),
            ("idle resident memory", "MiB", "idle_mib"),
        )
    ]
    print_rows("start", rows, as_json=as_json)


@command.command()
@click.option("--records", "number", default=3_000_000, show_default=True, help="Records in the topic.")
@click.option("--record-bytes", default=100, show_default=True, help="Bytes of a record's value.")
@click.option("--compression", default="none", show_default=True, help="none, gzip, snappy, lz4 or zstd.")
@_ROUNDS
@_JSON
def decode(number: int, record_bytes: int, compression: str, count: int, *, as_json: bool) -> None:
    """Read from Odradek into Arrow (and decode alone), beside other consumers: records per second."""
    with odradek_server() as server:
        fill = {"topic": "bench", "count": number, "record_bytes": record_bytes, "compression": compression}
        run_client("fill", fill | {"bootstrap_servers": server.bootstrap_servers})
        arguments = {"bootstrap_servers": server.bootstrap_servers, "topic": "bench", "count": number}
        names = ("arrow", "kernel", "poll", "confluent-kafka", "aiokafka", "kafka-python")
        figures = rounds(count, {name: _client(name, arguments) for name in names})
    speed = {side: by["records_per_second"] for side, by in figures.items()}
    what = f"{record_bytes} B records, {compression}"
    rows = [
        Row(what=what, unit="records/s", figures=speed, of=ours, to=peer, aim=None if ours == "poll" else Aim(10))
        for ours in names[:3]
        for peer in names[3:]
    ]
    print_rows("consume into Arrow, one partition", rows, as_json=as_json)


@command.command()
@click.option("--records", "number", default=500_000, show_default=True, help="Records of each client in a round.")
@_ROUNDS
@_JSON
def producers(number: int, count: int, *, as_json: bool) -> None:
    """Produce with Odradek's `send` and `send_arrow` and with other clients: records/s, client's CPU."""
    names = ("send_arrow", "send", "confluent-kafka", "aiokafka", "kafka-python")
    rows = []
    with odradek_server() as server:
        for record_bytes, records in ((100, number), (1024, number // 4)):
            arguments = {"bootstrap_servers": server.bootstrap_servers, "count": records, "record_bytes": record_bytes}
            sides = {
                name: _client(f"produce {name}", arguments | {"topic": f"bench-{name}-{record_bytes}"})
                for name in names
            }
            figures = rounds(count, sides)
            what = f"{record_bytes} B records"
            speed = {side: by["records_per_second"] for side, by in figures.items()}
            per_cpu = {side: 1e6 / by["cpu_us_per_record"] for side, by in figures.items()}
            for ours, aim in (("send_arrow", Aim(10)), ("send", Aim(1))):
                rows += [
                    Row(what=what, unit=unit, figures=by, of=ours, to=peer, aim=aim)
                    for unit, by in (("records/s", speed), ("records per CPU second of the client", per_cpu))
                    for peer in names[2:]
                ]
    print_rows("produce, acks=1, one partition, one client", rows, as_json=as_json)


@command.command()
@click.option("--records", "number", default=2_000_000, show_default=True, help="Records in the topic.")
@click.option("--record-bytes", default=100, show_default=True, help="Bytes of a record's value.")
@_ROUNDS
@_JSON
def spark(number: int, record_bytes: int, count: int, *, as_json: bool) -> None:
    """Read every column as a Spark batch, beside a plain read into Arrow without Spark: rows per second."""
    with odradek_server() as server:
        fill = {"topic": "bench", "count": number, "record_bytes": record_bytes}
        run_client("fill", fill | {"bootstrap_servers": server.bootstrap_servers})
        where = {"bootstrap_servers": server.bootstrap_servers, "topic": "bench"}
        arrow = rounds(count, {"arrow": _client("arrow", where | {"count": number})})["arrow"]
        batch = rounds(1, {"spark": _client("spark_batch", where | {"runs": count})})["spark"]
    figures = {"spark": batch["rows_per_second"], "arrow": arrow["records_per_second"]}
    rows = [Row(what=f"{number:,} rows of {record_bytes} B", unit="rows/s", figures=figures, of="spark", to="arrow")]
    print_rows("Spark batch read, local[*], one partition", rows, as_json=as_json)


def _client(workload: str, arguments: Mapping[str, object]) -> Callable[[], Mapping[str, float]]:
    return lambda: run_client(workload, dict(arguments))


def _with_cpu(server: Server, workload: str, arguments: Mapping[str, object]) -> Callable[[], Mapping[str, float]]:
    """Return a run whose figures include the server's CPU during the run."""

    def run() -> Mapping[str, float]:
        before = cpu_seconds(server.pid)
        figures = run_client(workload, {**arguments, "bootstrap_servers": server.bootstrap_servers})
        return {**figures, "cpu_seconds": cpu_seconds(server.pid) - before}

    return run


def _latency_of(
    server: Server, arguments: Mapping[str, object], *, beside: tuple[str, Mapping[str, object]] | None = None
) -> Callable[[], Mapping[str, float]]:
    """Return a run of the workload `latency`, with `beside`, a (workload, arguments), in the background if given."""
    where = {"bootstrap_servers": server.bootstrap_servers}

    def run() -> Mapping[str, float]:
        with ExitStack() as stack:
            if beside is not None:
                workload, load = beside
                stack.enter_context(background_client(workload, {**load, **where}))
            return run_client("latency", {**arguments, **where})

    return run


def _start(serve: Callable[[], object]) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        started = time.perf_counter()
        with ExitStack() as stack:
            server: Server = stack.enter_context(serve())  # type: ignore[arg-type]
            ready = time.perf_counter() - started
            idle = resident_mib(server.pid)
            figures = run_client("first_record", {"bootstrap_servers": server.bootstrap_servers})
            return {**figures, "ready_seconds": ready, "idle_mib": idle}

    return run
