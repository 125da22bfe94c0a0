"""`bench groups`, with little load; our broker stands in for the peer."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from bench import group_commands, group_rebalances
from bench.clients import members
from bench.peers.sides import Side, odradek_side
from odradek.cli import main

pytestmark = pytest.mark.long

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
