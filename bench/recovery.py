"""`odradek bench recovery`: the time that a broker needs to open its logs after `kill -9`.

One partition is written by `broker.log` and copied, which is much faster than a producer. Without a recovery point,
every byte is checked. Kafka can read the directory, too.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import SystemDisk
from odradek.testing.servers.odradek_process import ServedBroker

_MIB: Final = 1 << 20
_RECORD_BYTES: Final = 1000
_TIME_MS: Final = 1_800_000_000_000


@click.command(name="recovery")
@click.option("--partitions", default=100, show_default=True, help="How many logs there are.")
@click.option("--mib", default=10, show_default=True, help="How much is in each.")
@click.option("--batch-bytes", default=16_384, show_default=True, help="The size of a record batch.")
@click.option("--threads", default=2, show_default=True, help="num.recovery.threads.per.data.dir.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, partitions: int, mib: int, batch_bytes: int, threads: int, as_json: bool) -> None:
    """Measure the start of a killed broker: seconds, MiB/s checked, and the seconds of a start after a clean stop."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        data = Path(directory) / "data"
        size = fill(data, partitions=partitions, mib=mib, batch_bytes=batch_bytes)
        broker = ServedBroker(data, options={"num.recovery.threads.per.data.dir": str(threads)})
        killed, clean = _seconds_to_start(broker), _seconds_to_start(broker)
    rate = partitions * size / _MIB / max(killed - clean, 0.001)
    figures = {"partitions": partitions, "mib": partitions * size / _MIB, "batch_bytes": batch_bytes}
    figures |= {"threads": threads, "seconds_to_ready": killed, "seconds_to_ready_clean": clean, "mib_per_second": rate}
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo(
            f"{partitions} partitions of {mib} MiB in batches of {batch_bytes} B, {threads} threads: "
            f"{killed:.2f} s to ready after a crash, {clean:.2f} s after a clean end, {rate:.0f} MiB/s checked"
        )


def fill(data: Path, *, partitions: int, mib: int, batch_bytes: int) -> int:
    """Make `data` a data directory as after a crash; return the size of each log in bytes."""
    first = data / "bench-0"
    data.mkdir(parents=True)
    log = Log.open(SystemDisk(), str(first), LogConfig(), now_ms=_TIME_MS)
    records = [(_TIME_MS, None, bytes(_RECORD_BYTES), ())] * max(1, batch_bytes // _RECORD_BYTES)
    while log.segments.size < mib * _MIB:
        log.append_as_leader(encode_batch(records), leader_epoch=0, now_ms=_TIME_MS)
        if log.writer.pending.size >= _MIB:
            log.write()
    log.write()
    size = log.segments.size
    log.abandon()
    for number in range(1, partitions):
        shutil.copytree(first, data / f"bench-{number}")
    return size


def _seconds_to_start(broker: ServedBroker) -> float:
    began = time.perf_counter()
    broker.start()
    took = time.perf_counter() - began
    broker.stop()
    return took
