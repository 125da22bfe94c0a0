"""`odradek bench cluster`: the start and stop of a cluster in a test's process, to compare with containers."""

import json
import statistics
import subprocess
import sys
import time
from typing import Final

import click

from odradek.testing import Cluster

_FIRST: Final = """
import time
began = time.perf_counter()
from odradek.testing import Cluster
cluster = Cluster(brokers={brokers})
cluster.start()
print(time.perf_counter() - began)
cluster.stop()
"""
_PROCESS_S: Final = 300.0


@click.command(name="cluster")
@click.option("--brokers", default=3, show_default=True, metavar="N", help="Brokers of the cluster.")
@click.option("--rounds", default=9, show_default=True, metavar="N", help="How often; the figures are medians.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(*, brokers: int, rounds: int, as_json: bool) -> None:
    """Measure `odradek.testing.Cluster`: seconds to start first and again, to stop, to elect a new leader."""
    program = _FIRST.format(brokers=brokers)
    first = [float(_output(program)) for _ in range(rounds)]
    lives = [_life(brokers) for _ in range(rounds)]
    starts, leaders, stops = ([life[place] for life in lives] for place in range(3))
    figures = {
        "brokers": brokers,
        "seconds_to_first_start": statistics.median(first),
        "seconds_to_start": statistics.median(starts),
        "seconds_to_stop": statistics.median(stops),
    }
    if brokers > 1:
        figures["seconds_to_new_leader"] = statistics.median(leaders)
    if as_json:
        click.echo(json.dumps(figures))
        return
    click.echo(f"a cluster of {brokers} in the test's process, median of {rounds}:")
    for name, seconds in figures.items():
        if name != "brokers":
            click.echo(f"  {name.removeprefix('seconds_').replace('_', ' '):16} {seconds:6.3f} s")


def _output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=_PROCESS_S
    )
    return done.stdout


def _life(brokers: int) -> tuple[float, float, float]:
    """Return the seconds of one cluster to start, from a leader's death to the next leader (or 0), and to stop."""
    cluster = Cluster(brokers=brokers)
    began = time.perf_counter()
    cluster.start()
    started = time.perf_counter() - began
    try:
        failed_over = _fail_over(cluster, brokers) if brokers > 1 else 0.0
        began = time.perf_counter()
    finally:
        cluster.stop()
    return started, failed_over, time.perf_counter() - began


def _fail_over(cluster: Cluster, brokers: int) -> float:
    cluster.create_topic("bench", replication_factor=min(3, brokers))
    leader = cluster.wait_for_leader("bench", 0)
    began = time.perf_counter()
    cluster.kill(leader)
    cluster.wait_for_leader("bench", 0, not_in={leader})
    return time.perf_counter() - began
