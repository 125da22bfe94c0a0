"""`odradek bench consumer`: the consumer's latency beside confluent-kafka's, and with and without fetch sessions."""

from collections.abc import Callable, Mapping

import click

from bench.clients.processes import run_client
from bench.measure import Aim, Row, cpu_seconds, print_rows, rounds
from bench.peers.servers import Server, odradek_server

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
_ROUNDS = click.option("--rounds", "count", default=5, show_default=True, help="Times each side runs; medians count.")
_SECONDS = click.option("--seconds", default=5.0, show_default=True, help="How long each measurement sends.")


@click.group()
def consumer() -> None:
    """Measure Odradek's consumer on its broker."""


@consumer.command()
@_SECONDS
@click.option("--per-second", default=1000, show_default=True, help="Records a second.")
@_ROUNDS
@_JSON
def latency(seconds: float, per_second: int, count: int, *, as_json: bool) -> None:
    """Measure from `send` to `poll` at a steady rate: Odradek's clients and confluent-kafka's on the same broker."""
    arguments = {"per_second": per_second, "seconds": seconds}
    with odradek_server() as server:
        sides = {name: _run(server, name, arguments) for name in ("our_latency", "latency")}
        figures = rounds(count, sides)
    rows = [
        Row(
            what=name.removesuffix("_ms"),
            unit="ms",
            figures={"odradek": figures["our_latency"][name], "confluent-kafka": figures["latency"][name]},
            of="odradek",
            to="confluent-kafka",
            aim=Aim(1, at_most=True),
        )
        for name in ("p50_ms", "p99_ms")
    ]
    print_rows(f"end to end at {per_second:,} records/s", rows, as_json=as_json)


@consumer.command()
@_SECONDS
@click.option("--partitions", default=1_000, show_default=True, help="Partitions, of which one has records.")
@click.option("--per-second", default=200, show_default=True, help="Records a second.")
@_ROUNDS
@_JSON
def sessions(seconds: float, partitions: int, per_second: int, count: int, *, as_json: bool) -> None:
    """Measure fetches of one busy partition among idle ones, with fetch sessions and from a broker without any."""
    arguments = {"partitions": partitions, "per_second": per_second, "seconds": seconds}
    without = {"max.incremental.fetch.session.cache.slots": "0"}
    with odradek_server("sessions") as server, odradek_server("none", options=without) as plain:
        figures = rounds(count, {each.name: _run(each, "idle_partitions", arguments) for each in (server, plain)})
    units = {
        "fetches": "1/s", "bytes_sent": "B/s", "bytes_received": "B/s", "client_ms": "ms/s", "broker_ms": "ms/s"
    }  # fmt: skip
    rows = [
        Row(
            what=name.replace("_ms", "'s CPU").replace("_", " "),
            unit=unit,
            figures={side: by[name] for side, by in figures.items()},
            of="sessions",
            to="none",
        )
        for name, unit in units.items()
    ]
    print_rows(f"{partitions:,} partitions, {per_second} records/s to one of them", rows, as_json=as_json)


def _run(server: Server, workload: str, arguments: Mapping[str, object]) -> Callable[[], Mapping[str, float]]:
    def run() -> Mapping[str, float]:
        before = cpu_seconds(server.pid)
        figures = run_client(workload, {**arguments, "bootstrap_servers": server.bootstrap_servers})
        seconds = arguments["seconds"]
        assert isinstance(seconds, float)
        return {**figures, "broker_ms": (cpu_seconds(server.pid) - before) * 1000 / seconds}

    return run
