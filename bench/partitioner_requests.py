"""`odradek bench partitioners`: requests and batches for each partitioner, counted in a simulation, without rounds."""

import asyncio
import json
from typing import NamedTuple

import click

from odradek.clients import Admin
from odradek.partitioners import PARTITIONER_NAMES
from odradek.simulation.world import World


class Counts(NamedTuple):
    """The Produce requests and record batches of a run."""

    requests: int
    batches: int


def count_requests(
    partitioner: str, *, records: int = 10_000, per_second: int = 10_000, partitions: int = 12, brokers: int = 3
) -> Counts:
    """Return the requests and batches of a producer with Kafka's defaults, for keyless records at a steady rate."""
    counted: list[Counts] = []

    async def scene(world: World) -> None:
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.create_topic("bench", partitions=partitions, replication_factor=1)
        async with world.producer("client", partitioner=partitioner) as producer:
            await producer.partitions_for("bench")
            started = world.now_s
            for number in range(records):
                await producer.send("bench", b"x" * 100)
                if (ahead := started + number / per_second - world.now_s) > 0:
                    await asyncio.sleep(ahead)
            await producer.flush()
            metrics = producer.metrics()
            batches = round(metrics["byte_total"] / metrics["batch_size_avg"])
            counted.append(Counts(int(metrics["request_total"]), batches))

    World(1, brokers=brokers).play(scene)
    return counted[0]


@click.command(name="partitioners")
@click.option("--records", default=10_000, show_default=True, metavar="N", help="Records of 100 bytes, without keys.")
@click.option("--per-second", multiple=True, type=int, default=(1_000, 10_000, 100_000), metavar="N", help="Rates.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per row.")
def partitioners(*, records: int, per_second: tuple[int, ...], as_json: bool) -> None:
    """Count requests and batches for each partitioner: 12 partitions, 3 brokers, linger.ms 5, batch.size 16 KiB."""
    for rate in per_second:
        for name in PARTITIONER_NAMES:
            counts = count_requests(name, records=records, per_second=rate)
            if as_json:
                click.echo(json.dumps({"partitioner": name, "per_second": rate, **counts._asdict()}))
            else:
                click.echo(f"{rate:>9,}/s  {name:15} {counts.requests:>6,} requests {counts.batches:>6,} batches")
