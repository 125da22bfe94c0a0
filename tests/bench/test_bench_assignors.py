"""`bench assignors`, with few members; constants stand in for Kafka's figures."""

import json
from collections.abc import Callable, Mapping

import pytest
from click.testing import CliRunner

from bench import assignor_speed
from bench.peers.kafka_assignors import Case
from odradek.cli import main


def test_five_changes_of_a_group_are_measured_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    def kafkas(case: Case, limit_s: float) -> Callable[[], Mapping[str, float]]:
        groups.append(sum(len(member.owned) for member in case.group.members.values()))
        return lambda: {"seconds": 100.0, "peak_mib": 1e6}

    monkeypatch.setattr(assignor_speed, "_kafkas", kafkas)
    asked = ["bench", "assignors", "--members", "4", "--topics", "2", "--partitions", "8", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["what"] for row in rows[::2]] == [
        "fresh",
        "one leaves",
        "one joins",
        "one odd subscription",
        "all subscriptions different",
    ]
    assert groups == [0, 12, 16, 12, 0]
    assert all(row["met"] for row in rows)
