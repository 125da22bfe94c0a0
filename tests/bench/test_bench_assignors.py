"""`bench assignors`, with few members; constants stand in for Kafka's figures."""

import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from click.testing import CliRunner

from bench import assignor_grid, assignor_speed
from bench.peers.kafka_assignors import Case, GridCell
from odradek.cli import main

pytestmark = pytest.mark.long


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


def test_the_grid_has_each_group_with_at_least_one_partition_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    cells: list[GridCell] = []

    def kafkas(asked: Sequence[GridCell], warm_up_s: float, measured_s: float) -> list[float]:
        cells.extend(asked)
        return [1e6] * len(asked)

    monkeypatch.setattr(assignor_grid, "run_kafka_grid", kafkas)
    sizes = ["--members", "4", "--members", "9", "--ratio", "5", "--topics", "5", "--topics", "30"]
    asked = ["bench", "assignor-grid", *sizes, "--warm-up", "0", "--seconds", "0"]
    done = CliRunner().invoke(main, [*asked, "--json"], catch_exceptions=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["what"] == "uniform, homogeneous, full: 4 × 5, 5 topics"
    assert rows[-1]["what"] == "range, heterogeneous, incremental: 9 × 5, 30 topics"
    assert len(rows) == len(cells) == 2 * 2 * 2 * 3
    assert all(row["met"] and row["odradek"] > 0 for row in rows)
    means = CliRunner().invoke(main, asked, catch_exceptions=False).stdout
    assert "geometric means" in means
