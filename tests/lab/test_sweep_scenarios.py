"""One scenario of a sweep: its group, its failure, its figures."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab_commands import lab_json
from sweeps import rows_here, sweep_of

from odradek.lab.case import LabError
from odradek.lab.sweep.groups import make_case, shares, steps_of
from odradek.lab.sweep.scenarios import SCHEMA, compute_row, encode
from odradek.lab.sweep.settings import Value
from odradek.runtime import SystemClock

pytestmark = pytest.mark.long

SETTING: Mapping[str, Value] = {
    "members": 6, "topics": 4, "partitions": 40, "skew": 1.0, "subscribed": 0.5, "racks": 3, "replicas": 2,
    "failure": "none", "seed": 0,
}  # fmt: skip


def row(directory: Path, text: str, strategy: str) -> dict[str, Any]:
    sweep = sweep_of(directory, text)
    assert sweep.setting_count == 1
    return compute_row(sweep, sweep.setting(0), strategy, SystemClock())


@pytest.mark.parametrize(
    ("partitions", "topics", "skew", "counts"),
    [
        (12, 3, 0.0, [4, 4, 4]),
        (13, 3, 0.0, [5, 4, 4]),
        (14, 3, 1.0, [7, 4, 3]),
        (3, 3, 2.0, [1, 1, 1]),
        (5, 1, 3.0, [5]),
    ],
)
def test_skew_gives_the_first_topics_more_partitions_and_every_topic_one(
    partitions: int, topics: int, skew: float, counts: list[int]
) -> None:
    assert shares(partitions, topics, skew) == counts


def test_a_group_is_as_its_setting_says() -> None:
    case = make_case(SETTING, Random(1)).checked()
    assert case.partition_count == 40
    assert len(case.members) == 6
    assert {len(member.topics) for member in case.members.values()} == {2}
    assert sorted(str(member.rack) for member in case.members.values()) == ["r0", "r0", "r1", "r1", "r2", "r2"]
    assert {len(racks) for some in case.replica_racks.values() for racks in some} == {2}
    assert make_case(SETTING, Random(1)) == case
    assert make_case(SETTING, Random(2)) != case


@pytest.mark.parametrize(
    ("failure", "members", "partitions", "steps"),
    [
        ("none", 6, 40, 0), ("member-leaves", 5, 40, 1), ("member-joins", 7, 40, 1), ("member-restarts", 6, 40, 2),
        ("rack-fails", 4, 40, 1),
    ],
)  # fmt: skip
def test_a_failure_changes_the_group(failure: str, members: int, partitions: int, steps: int) -> None:
    before = case = make_case(SETTING, Random(1))
    made = steps_of(failure, case, Random(3))
    assert len(made) == steps
    for step in made:
        case = step.apply(case).checked()
    assert (len(case.members), case.partition_count) == (members, partitions)
    if failure == "member-restarts":
        (old,), (new,) = before.members.keys() - case.members.keys(), case.members.keys() - before.members.keys()
        assert (case.members[new].topics, case.members[new].rack) == (
            before.members[old].topics,
            before.members[old].rack,
        )
    if failure == "rack-fails":
        (lost,) = {"r0", "r1", "r2"} - {str(member.rack) for member in case.members.values()}
        assert not any(lost in racks for some in case.replica_racks.values() for racks in some)


def test_a_topic_that_grows_has_twice_its_partitions() -> None:
    case = make_case(SETTING, Random(1))
    (step,) = steps_of("topic-grows", case, Random(3))
    ((topic, count),) = step.topics.items()
    assert count == 2 * case.topics[topic]
    after = step.apply(case).checked()
    assert after.topics[topic] == len(after.replica_racks[topic]) == count


def test_the_last_member_cannot_leave_and_no_rack_cannot_fail() -> None:
    case = make_case({**SETTING, "members": 1, "racks": 0}, Random(1))
    with pytest.raises(LabError, match="no member is left"):
        steps_of("member-leaves", case, Random(1))[0].apply(case)
    with pytest.raises(LabError, match="no member is on a rack that could fail"):
        steps_of("rack-fails", case, Random(1))


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky", "zookeeper-range"])
def test_a_given_group_has_the_figures_of_what_if_and_assign(tmp_path: Path, strategy: str) -> None:
    (tmp_path / "group.toml").write_text("topics = { t = 7, u = 4 }\nmembers = 4\n")
    found = row(tmp_path, "group = 'group.toml'\nfailure = ['member-leaves']", strategy)
    options = ["--file", str(tmp_path / "group.toml"), "-s", strategy]
    figures = []
    for leaver in ("c0", "c1", "c2", "c3"):
        (made,) = lab_json("what-if", *options, "--remove-member", leaver)
        moved = sum(move["from"] is not None for move in made["moves"])
        figures.append((moved, len(made["stopping_partitions"]), len(made["stopping_members"]), made["generations"]))
    assert tuple(found[key] for key in ("moved", "stopped", "members_stopped", "rebalances")) in figures
    assert (found["members"], found["members_after"], found["partitions"], found["topics"]) == (4, 3, 11, 2)


def test_figures_of_a_group_at_rest(tmp_path: Path) -> None:
    found = row(tmp_path, "members = 5\npartitions = 3\nfailure = ['none']", "range")
    expected = {
        "fewest": 0,
        "most": 1,
        "idle": 2,
        "unread": 0,
        "moved": 0,
        "stopped": 0,
        "rebalances": 0,
        "local": None,
    }
    assert {key: found[key] for key in expected} == expected
    assert found["assign_ms"] > 0


def test_sticky_moves_what_a_restart_must_move_and_cooperative_stops_no_more(tmp_path: Path) -> None:
    text = "members = 4\npartitions = 12\nfailure = ['member-restarts']"
    eager, cooperative = row(tmp_path, text, "sticky"), row(tmp_path, text, "cooperative-sticky")
    assert eager["moved"] == cooperative["moved"] == 3 + 3
    assert eager["stopped"] == 2 * 12
    assert cooperative["stopped"] == 6


def test_a_strategy_that_refuses_a_group_has_its_reason_in_the_row(tmp_path: Path) -> None:
    """M8: zookeeper-roundrobin needs equal streams."""
    text = "members = 3\ntopics = 4\nsubscribed = 0.5\nfailure = ['none']"
    found = row(tmp_path, text, "zookeeper-roundrobin")
    assert found["refused"].startswith("Round-robin assignment is allowed only if")
    assert "moved" not in found
    assert row(tmp_path, "members = 1\nfailure = ['member-leaves']", "range")["refused"] == "no member is left"


def test_scenarios_are_the_same_each_time_and_fit_the_table(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "members = [1, 4]\ntopics = [1, 3]\nracks = [0, 3]\nsubscribed = [0.5, 1]")
    assert rows_here(sweep) == rows_here(sweep)
    assert {key for found in rows_here(sweep) for key in found} <= set(SCHEMA.names)
    assert encode(sweep, "range", 0, 3, SystemClock())[:4] == b"PAR1"
