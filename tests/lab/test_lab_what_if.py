"""`odradek lab what-if`: the cost of a change, before it is made."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.assignors import ASSIGNOR_NAMES
from odradek.lab.case import Case, Member
from odradek.lab.what_if import Change, pauses, what_if
from tests.lab.lab_commands import lab, lab_json


def changed(*arguments: str) -> dict[str, Any]:
    (found,) = lab_json("what-if", *arguments)
    return found


def moves(found: dict[str, Any]) -> list[str]:
    return [f"{each['topic']}-{each['partition']}: {each['from']} → {each['to']}" for each in found["moves"]]


def test_a_member_that_leaves_a_sticky_group_moves_only_what_it_had() -> None:
    """M3: when C1 of C0 C1 C2 leaves, C0 and C2 keep all they had."""
    found = changed("-t", "t=6", "-m", "3", "-s", "sticky", "--remove-member", "c1")
    assert moves(found) == ["t-1: c1 → c0", "t-4: c1 → c2"]
    assert len(found["stopping_partitions"]) == 6, "eager members stop reading all"
    assert found["stopping_members"] == ["c0", "c2"]


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "uniform"])
def test_a_new_member_stops_only_the_partitions_that_it_gets(strategy: str) -> None:
    found = changed("-t", "t=6", "-m", "2", "-s", strategy, "--add-member", "1")
    assert moves(found) == ["t-4: c0 → c2", "t-5: c1 → c2"]
    assert found["stopping_partitions"] == [["t", 4], ["t", 5]]
    assert found["stopping_members"] == ["c0", "c1"]


def test_more_partitions_are_new_and_move_nothing_of_a_sticky_group() -> None:
    found = changed("-t", "t=6", "-m", "3", "-s", "uniform", "--add-partitions", "t=2")
    assert moves(found) == ["t-6: None → c0", "t-7: None → c1"]
    assert found["stopping_partitions"] == []
    assert "0 partitions move, 2 partitions new" in lab(
        "what-if", "-t", "t=6", "-m", "3", "-s", "uniform", "--add-partitions", "t=2"
    )


def test_members_of_all_topics_subscribe_to_a_new_topic_and_others_do_not() -> None:
    found = changed("-t", "t=1", "-t", "u=1", "-m", "c0=t,u", "-m", "c1=u", "-s", "uniform", "--add-topic", "v=2")
    assert {each["to"] for each in found["moves"] if each["topic"] == "v"} == {"c0"}


def test_another_strategy_may_move_partitions_and_stops_all_if_one_of_the_two_is_eager() -> None:
    found = changed("-t", "t=6", "-m", "3", "--to-strategy", "cooperative-sticky")
    assert (moves(found), found["protocol"], len(found["stopping_partitions"])) == ([], "eager", 6)
    assert len(changed("-t", "t=6", "-m", "3", "--to-strategy", "roundrobin")["moves"]) == 4


def test_another_rack_moves_partitions_to_members_beside_a_replica() -> None:
    racks = ("--rack", "a,b", "--replica-rack", "t=a,b", "--to-rack", "b,a", "-s", "uniform")
    assert moves(changed("-t", "t=2", "-m", "2", *racks)) == ["t-0: c0 → c1", "t-1: c1 → c0"]


def test_a_topic_that_is_deleted_is_no_longer_read_and_the_others_are_shared_out_anew() -> None:
    two = ("-t", "t=4", "-t", "u=1", "-m", "2", "--remove-topic", "u")
    found = changed(*two, "-s", "cooperative-sticky")
    assert moves(found) == ["u-0: c0 → None"]
    assert "0 partitions move, 1 partition no longer read" in lab("what-if", *two)
    alone = ("-t", "t=2", "-t", "u=2", "-m", "c0=t", "-m", "c1=u", "--remove-topic", "u", "-s", "range")
    assert moves(changed(*alone)) == ["u-0: c1 → None", "u-1: c1 → None"], "c1 stays, and has nothing to read"


def test_a_rack_that_fails_takes_its_members_and_its_replicas() -> None:
    racks = ("--rack", "a,b", "--replica-rack", "t=a+b,b")
    found = changed("-t", "t=4", "-m", "4", *racks, "-s", "uniform", "--remove-rack", "a")
    assert {(each["from"], each["to"]) for each in found["moves"]} == {("c0", "c1"), ("c2", "c3")}
    assert found["stopping_members"] == []
    assert "there is no member c0" in lab(
        "what-if", "-t", "t=4", "-m", "4", *racks, "--remove-rack", "a", "--to-rack", "c0=b", code=2
    )


def test_a_member_on_a_new_rack_joins() -> None:
    racks = ("--rack", "a", "--replica-rack", "t=a,b", "--add-member", "new", "--to-rack", "new=b")
    assert moves(changed("-t", "t=2", "-m", "1", *racks, "-s", "uniform")) == ["t-1: c0 → new"]


def test_owned_partitions_take_precedence_over_those_of_the_strategy() -> None:
    found = changed("-t", "t=4", "-m", "2", "--owned", "c0=t:0-3", "-s", "uniform", "--add-member", "c2=t")
    assert {each["from"] for each in found["moves"]} == {"c0"}


def test_the_table_shows_members_before_and_after() -> None:
    assert lab("what-if", "-t", "t=6", "-m", "3", "--remove-member", "c0").splitlines() == [
        "MEMBER  BEFORE  AFTER  GIVES UP  GETS",
        "c0           2      -  t:0-1     -",
        "c1           2      3  t:3       t:0-1",
        "c2           2      3  -         t:3",
        "range, eager rebalance: 3 partitions move",
        "partitions that stop: 6 (t:0-5)",
        "members that stop: 2 (c1, c2)",
    ]
    many = lab("what-if", "-t", "t=6", "-m", "3000", "--add-member", "c9999", "--limit", "2")
    assert "shown: 2 of 3,001 members" in many


@given(
    counts=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    members=st.integers(1, 6),
    leaves=st.integers(0, 5),
    new=st.integers(0, 3),
    strategy=st.sampled_from(ASSIGNOR_NAMES),
)
def test_moves_lead_from_what_was_owned_to_what_is_assigned(
    counts: list[int], members: int, leaves: int, new: int, strategy: str
) -> None:
    topics = {f"t{number}": count for number, count in enumerate(counts)}
    case = Case(topics=topics, members={f"c{number}": Member(topics=tuple(topics)) for number in range(members)})
    leaving = (f"c{leaves}",) if leaves < members else ()
    made = what_if(case, strategy, Change(add_members=(str(new + 1),), remove_members=leaving))
    owners = {partition: member for member, some in made.before.items() for partition in some}
    for move in made.moves:
        assert owners.get(move.partition) == move.before
        owners[move.partition] = str(move.after)
    assert owners == made.run.owners()
    assert sum(map(len, made.run.settled.values())) == sum(counts)
    assert {move.partition for move in made.moved} <= set(made.stopping_partitions)
    assert not set(leaving) & set(made.stopping_members)


def rebalance(cause: str, duration_ms: int, longest_ms: int, outcome: str = "stable") -> dict[str, Any]:
    return {"cause": cause, "duration_ms": duration_ms, "longest_unowned_ms": longest_ms, "outcome": outcome}


def test_the_time_is_the_median_of_past_rebalances_of_such_a_cause() -> None:
    history = [
        rebalance("joined", 10, 1),
        rebalance("left", 1000, 500),
        rebalance("joined", 30, 3),
        rebalance("joined", 20, 9),
        rebalance("joined", 9999, 9999, "overtaken"),
    ]
    found = pauses(history, Change(add_members=("1",)).causes())
    assert found is not None
    assert (found.count, found.causes, found.duration_ms, found.longest_unowned_ms) == (3, ("joined",), 20, 3)
    other = pauses(history, Change(add_topics=("v=1",)).causes())
    assert other is not None
    assert (other.count, other.causes) == (4, ()), "no rebalance of this cause: all of them"
    assert pauses([], ("joined",)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--remove-member", "x"), "there is no member x: the members are c0, c1"),
        (("--remove-member", "c"), "2 members have ids that begin with c"),
        (("--remove-member", "c0", "--remove-member", "c1"), "no member is left"),
        (("--add-member", "c1=t"), "there is a member c1 already"),
        (("--remove-member", "c1", "--add-member", "c1"), "there is a member c1 already"),
        (("--add-member", "c9=x"), "member c9 subscribes to the topic x, which does not exist"),
        (("--add-partitions", "x=1"), "there is no topic x to give partitions to"),
        (("--add-topic", "t=1"), "there is a topic t already"),
        (("--to-strategy", "x"), "unknown assignor 'x'"),
        (("--add-member", "0"), "0 is not a number of new members: use from 1 to 1,000,000"),
        (("--add-member", "99999999"), "99999999 is not a number of new members"),
        (("--to-rack", "x=a"), "there is no member x"),
        (("--remove-topic", "x"), "there is no topic x to remove: the topics are t"),
        (("--remove-topic", "t"), "no topic is left"),
        (("--remove-rack", "x"), "nothing is on the rack x: the racks are not given"),
        (("--rack", "a", "--remove-rack", "b"), "nothing is on the rack b: the racks are a"),
        (("--rack", "a", "--remove-rack", "a"), "no member is left"),
    ],
)
def test_changes_that_do_not_fit_are_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in lab("what-if", "-t", "t=4", "-m", "2", *arguments, code=2)


def test_a_command_without_a_change_is_wrong_usage() -> None:
    assert "name a change, such as --add-member 1" in lab("what-if", "-t", "t=4", "-m", "2", code=2)


def test_no_new_partition_is_no_change() -> None:
    assert "t=0 adds no partition" in lab("what-if", "-t", "t=3", "-m", "2", "--add-partitions", "t=0", code=2)
