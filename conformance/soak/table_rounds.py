"""`python -m conformance.soak.table_rounds`: a pipeline into a table, killed with SIGKILL in each round.

A round writes records, aborted ones among them, starts `odradek pipeline run`, and kills all of its processes at a
moment that its seed draws: Spark's JVM, its Python workers, the command. The last run ends by itself. Then `odradek
table check` compares the table with the topic. Exits with 1 if they differ.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from odradek.model import OdradekError
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

_PIPELINE: Final = """
kind = "real_time"
name = "orders"
checkpoint = "state"
guarantee = "exactly_once"
sql = "SELECT partition, offset, timestamp, key, number FROM orders"
[source]
bootstrap_servers = "{servers}"
max_offsets_per_trigger = {batch}
[trigger]
available_now = {is_last}
[streams.orders]
topics = ["orders"]
value = "number BIGINT"
[sink]
format = "odradek_iceberg"
path = "out"
partition_by = ["bucket(4, key)"]
"""
_COMMAND: Final = [sys.executable, "-c", "from odradek.cli import main; main(prog_name='odradek')"]
_LAST_RUN_S: Final = 600
_ROUND_S: Final = 120


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=50, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N")
@click.option("--records", type=click.IntRange(min=1), default=2000, show_default=True, help="In each round.")
def main(*, rounds: int, seed: int, records: int) -> None:
    """Kill a pipeline in each round, then compare its table with the topic."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="odradek-table-"))
    options = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1, "num.partitions": 3}
    with ServedBroker(folder / "data", options=options) as broker:
        for number in range(rounds):
            produce(broker.bootstrap_servers, number, records)
            wanted, delay_s = snapshots(folder) + chance.randrange(5), chance.uniform(0, 1.5)
            with start(folder, broker.bootstrap_servers, records // 10, is_last=False) as run:
                with suppress(TimeoutError):
                    eventually(lambda: snapshots(folder) >= wanted, within_s=_ROUND_S)  # noqa: B023
                with suppress(subprocess.TimeoutExpired):
                    run.wait(delay_s)
                os.killpg(run.pid, signal.SIGKILL)
            click.echo(f"round {number}: killed {delay_s:.1f} s after snapshot {wanted}, {snapshots(folder)} snapshots")
        with start(folder, broker.bootstrap_servers, records, is_last=True) as run:
            code = run.wait(_LAST_RUN_S)
        click.echo(f"the last run ended with {code}")
        check = ["table", "check", str(folder / "out"), "--topic", "orders", "-b", broker.bootstrap_servers]
        code = code or subprocess.run([*_COMMAND, *check], check=False).returncode
    if code:
        click.echo(f"its files are kept: {folder}")
    sys.exit(1 if code else 0)


def produce(servers: str, number: int, records: int) -> None:
    """Write records of a round in a transaction, and as many in another one that is aborted."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "transactional.id": "rounds"})
    producer.init_transactions(60)
    for is_committed in (False, True):
        producer.begin_transaction()
        for each in range(number * records, (number + 1) * records):
            producer.produce("orders", json.dumps({"number": each}), key=f"k{each % 97}", partition=each % 3)
            producer.poll(0)
        if is_committed:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)


def start(folder: Path, servers: str, batch: int, *, is_last: bool) -> "subprocess.Popen[bytes]":
    """Start the pipeline in a process group of its own."""
    file = folder / "orders.toml"
    file.write_text(_PIPELINE.format(servers=servers, batch=batch, is_last=str(is_last).lower()))
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [*_COMMAND, "pipeline", "run", str(file)], stdout=log, stderr=log, start_new_session=True
        )


def snapshots(folder: Path) -> int:
    from odradek.tables.location import TableLocation, load_table

    try:
        table = load_table(TableLocation(path=str(folder / "out")))
    except OdradekError:  # it is being made
        return 0
    return 0 if table is None else len(table.snapshots())


if __name__ == "__main__":
    main()
