"""`bench groups`, with few members; our broker stands in for the peer."""

import json

import pytest
from click.testing import CliRunner

from bench import group_rebalances
from bench.clients import members
from bench.peers.sides import Side, odradek_side
from odradek.cli import main


def test_rebalances_are_measured_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    def peer() -> Side:
        return Side(name="kafka", make=odradek_side().make)

    monkeypatch.setattr(group_rebalances, "kafka_side", peer)
    monkeypatch.setattr(group_rebalances, "_BEATS_S", 0.3)
    monkeypatch.setattr(members, "SESSION_MS", 1_000)
    asked = ["bench", "groups", "--members", "3", "--partitions", "6", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = {(row["what"], row["unit"]): row for row in map(json.loads, done.stdout.splitlines())}
    assert len(rows) == 10
    joins = rows["3 members: one joins", "s to stable"]
    assert joins["odradek"] > 0
    assert joins["kafka"] > 0
    dies = rows["3 members: a tenth dies (session 6 s)", "partition-seconds without an owner"]
    assert min(dies["odradek"], dies["kafka"]) > 0.5, "the dead one's, for its session"
