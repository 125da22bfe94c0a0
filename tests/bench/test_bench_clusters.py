"""The benchmarks of clusters, with real processes and next to nothing to do; ours stands in for the peer."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from bench import cluster_commands, cluster_comparisons, group_commands, group_rebalances
from bench.clients import members
from bench.peers.clusters import ClusterSide, odradek_cluster_side
from bench.peers.sides import Side, odradek_side
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


# ---- A crowd of connections ------------------------------------------------------------------------------------------

pytest.importorskip("confluent_kafka")


def test_a_client_is_measured_alone_and_beside_connections_that_pipeline_requests():
    wanted = ["--rounds", "1", "--seconds", "0.5", "--connections", "60", "--requests", "20", "--json"]
    result = CliRunner().invoke(main, ["bench", "crowd", *wanted], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["what"], row["aim"]) for row in rows] == [("one client's p50", "≤ 5"), ("one client's p99", "≤ 5")]
    assert all(row["alone"] > 0 and row["in the crowd"] > 0 for row in rows)


# ---- Groups ----------------------------------------------------------------------------------------------------------

Rows = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(name="run")
def fixture_run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rows]:
    """Return a function that runs a subcommand for one round and returns its rows."""

    def peer() -> Side:
        return Side(name="kafka", make=odradek_side().make)

    def run(*arguments: str) -> Rows:
        asked = ["bench", "groups", *arguments, "--rounds", "1", "--json"]
        done = CliRunner().invoke(main, asked, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return {(row["what"], row["unit"]): row for row in map(json.loads, done.stdout.splitlines())}

    monkeypatch.setattr(group_commands, "kafka_side", peer)
    return run


@pytest.mark.parametrize("assignor", ["eager", "cooperative"])
def test_rebalances_are_measured_on_both_sides(
    run: Callable[..., Rows], monkeypatch: pytest.MonkeyPatch, assignor: str
) -> None:
    monkeypatch.setattr(group_rebalances, "_BEATS_S", 0.3)
    monkeypatch.setattr(members, "SESSION_MS", 1_000)
    rows = run("rebalances", "--members", "3", "--partitions", "6", "--assignor", assignor)
    assert len(rows) == 13
    joins = rows["3 members: one joins", "s to stable"]
    assert min(joins["odradek"], joins["kafka"]) > 0
    moved = rows["3 members: one joins", "partition-seconds without an owner"]
    assert min(moved["odradek"], moved["kafka"]) > 0, "the new member's partitions, until it has them"
    dies = rows["3 members: a tenth dies (session 6 s)", "partition-seconds without an owner"]
    assert min(dies["odradek"], dies["kafka"]) > 0.5, "the dead one's, for its session"


def test_heartbeats_and_commits_are_counted_on_both_sides(run: Callable[..., Rows]) -> None:
    kinds = "ConsumerGroupHeartbeat", "commits of 10 offsets"
    load = "--groups", "2", "--in-flight", "4", "--seconds", "0.3", "--warm-up", "0.1"
    rows = run("requests", *load, *(word for kind in kinds for word in ("--only", kind)))
    assert {what for what, _ in rows} == set(kinds)
    for what in kinds:
        row = rows[what, "per s"]
        assert min(row["odradek"], row["kafka"]) > 10


def test_loading_is_measured_until_an_offset_is_answered(run: Callable[..., Rows]) -> None:
    rows = run("loading", "--commits", "4000", "--keys", "200")
    row = rows["4,000 offsets committed, 200 different ones", "s from the start to the first OffsetFetch"]
    assert min(row["odradek"], row["kafka"]) > 0
