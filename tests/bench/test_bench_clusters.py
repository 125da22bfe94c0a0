"""The benchmarks of clusters, with real processes and next to nothing to do; ours stands in for the peer."""

import json
import signal
from typing import Any

import pytest
from click.testing import CliRunner

from bench import cluster_commands, cluster_comparisons
from bench.peers.clusters import ClusterSide, odradek_cluster_side
from odradek.cli import main
from odradek.model import UnavailableError

pytestmark = pytest.mark.long

pytest.importorskip("confluent_kafka")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Any:
    """Runs a benchmark, and returns its rows; nothing may be left of it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(*arguments: str) -> list[dict[str, Any]]:
        asked = ["bench", *arguments, "--rounds", "1", "--json"]
        result = CliRunner().invoke(main, asked, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert list(tmp_path.iterdir()) == []
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_failover_kills_a_leader_under_a_producer_and_restarts_it(bench, monkeypatch: pytest.MonkeyPatch):
    """M1."""
    faults = [("leader and controller killed", signal.SIGKILL, True)]
    monkeypatch.setattr(cluster_comparisons, "_FAULTS", faults)
    rows = bench("failover")
    assert [row["what"] for row in rows] == [f"{what}, {figure}" for what, _, _ in faults for figure in ("p50", "max")]
    assert all(row["odradek"] > 0 and row["unit"] == "ms" and "ratio" not in row for row in rows)


def test_two_clusters_take_turns_in_producing_to_three_replicas(bench, monkeypatch: pytest.MonkeyPatch):
    """Figures of both, and their ratio."""
    other = odradek_cluster_side(name="other")
    monkeypatch.setitem(cluster_commands.PEERS, "kafka", lambda: other)
    monkeypatch.setattr(cluster_comparisons, "_RECORDS", (1024,))
    monkeypatch.setattr(cluster_comparisons, "_PARTITIONS", (3,))
    monkeypatch.setattr(cluster_comparisons, "settle", lambda: None)
    rows = bench("replicated", "--peer", "kafka", "--mib", "2", "--warm-up", "0")
    assert [row["unit"] for row in rows] == ["MiB/s", "CPU ms/MiB, all brokers"]
    assert rows[0]["odradek"] > 0
    assert rows[0]["other"] > 0
    assert rows[0]["aim"] == "≥ 1.5"


def test_many_partitions_are_created_and_elected_in_few_tree_operations(bench):
    rows = {row["what"]: row for row in bench("many-partitions", "--partitions", "30")}
    killed = rows["elect after a broker died"], rows["elect after the controller died"]
    assert all(row["odradek"] > 0 for row in (*killed, rows["create"]))
    # A third of the partitions, and the topic's replicas that are no longer in sync: a node each.
    assert 10 <= rows["nodes of the tree written after a broker died"]["odradek"] <= 60
    assert rows["transactions for that after a broker died"]["odradek"] <= 10
    assert rows["memory of a broker, idle"]["unit"] == "MiB"


def test_an_unavailable_cluster_peer_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    def unreachable() -> ClusterSide:
        raise UnavailableError("there is no peer today")

    monkeypatch.setitem(cluster_commands.PEERS, "kafka", unreachable)
    result = CliRunner().invoke(main, ["bench", "failover", "--peer", "kafka"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "odradek: there is no peer today")
