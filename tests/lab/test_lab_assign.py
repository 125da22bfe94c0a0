"""`odradek lab assign` and `compare`, with SPEC 3's and 4's worked examples (M3, M4)."""

from pathlib import Path

import pytest

from odradek.assignors import ASSIGNOR_NAMES, Assignment, Assignor, GroupSubscription
from tests.lab.lab_commands import lab, lab_json, shares


class FirstTakesAll(Assignor):
    """Gives everything to the first member."""

    name = "first-takes-all"

    def assign(self, group: GroupSubscription) -> Assignment:
        first, *others = sorted(group.members)
        places = [(topic, number) for topic, count in group.partitions.items() for number in range(count)]
        return {first: places, **{member: [] for member in others}}  # type: ignore[dict-item]


class Fails(Assignor):
    """Raises what no caller expects."""

    name = "fails"

    def assign(self, group: GroupSubscription) -> Assignment:
        raise KeyError("secret")


THREE_TOPICS = ("-t", "t0=1", "-t", "t1=2", "-t", "t2=3", "-m", "C0=t0", "-m", "C1=t0,t1", "-m", "C2=t0,t1,t2")


def test_five_partitions_of_two_members_are_split_as_spec_3_says() -> None:
    assert shares("-t", "t=5", "-m", "2") == {"c0": {"t": [0, 1, 2]}, "c1": {"t": [3, 4]}}
    assert shares("-t", "t=5", "-m", "2", "-s", "roundrobin") == {"c0": {"t": [0, 2, 4]}, "c1": {"t": [1, 3]}}


def test_two_topics_of_three_give_the_first_member_four_by_range_and_three_by_roundrobin() -> None:
    two = ("-t", "t0=3", "-t", "t1=3", "-m", "2")
    assert shares(*two) == {"c0": {"t0": [0, 1], "t1": [0, 1]}, "c1": {"t0": [2], "t1": [2]}}
    assert shares(*two, "-s", "roundrobin") == {"c0": {"t0": [0, 2], "t1": [1]}, "c1": {"t0": [1], "t1": [0, 2]}}


def test_roundrobin_passes_over_members_without_the_topic() -> None:
    topics = ("-t", "T0=3", "-t", "T1=2", "-t", "T2=4", "-m", "C0=T0,T1", "-m", "C1=T1,T2", "-m", "C2=T2,T0")
    assert shares(*topics, "-s", "roundrobin") == {
        "C0": {"T0": [0, 2], "T1": [1]},
        "C1": {"T1": [0], "T2": [0, 2]},
        "C2": {"T0": [1], "T2": [1, 3]},
    }
    assert shares(*THREE_TOPICS, "-s", "roundrobin") == {
        "C0": {"t0": [0]},
        "C1": {"t1": [0]},
        "C2": {"t1": [1], "t2": [0, 1, 2]},
    }


def test_a_member_that_leaves_moves_nothing_of_the_others_with_sticky() -> None:
    owned = ("--owned", "c0=t:0-1", "--owned", "c2=t:4-5")
    (row,) = lab_json("compare", "-t", "t=6", "-m", "c0", "-m", "c2", *owned, "-s", "sticky")
    assert (row["moved"], row["stopped"], row["fewest"], row["most"]) == (0, 4, 3, 3)


@pytest.mark.parametrize(
    ("threads", "strategy", "expected"),
    [
        ("1", "zookeeper-range", {"c0": {"t": [0, 1]}, "c1": {"t": [2]}, "c2": {"t": [3]}}),
        ("1", "ceiling-range", {"c0": {"t": [0, 1]}, "c1": {"t": [2, 3]}, "c2": {}}),
        ("2", "zookeeper-range", {"c0": {"t": [0, 1]}, "c1": {"t": [2, 3]}, "c2": {}}),
    ],
)
def test_three_consumers_of_generation_1_share_four_partitions(
    threads: str, strategy: str, expected: dict[str, dict[str, list[int]]]
) -> None:
    """M4, SPEC 4."""
    assert shares("-t", "t=4", "-m", "3", "--threads", threads, "-s", strategy) == expected


def test_a_table_of_generation_1_has_a_row_for_each_thread() -> None:
    table = lab("assign", "-t", "t=4", "-m", "3", "--threads", "2", "-s", "zookeeper-range")
    assert [line.split()[0] for line in table.splitlines()[1:7]] == ["c0-0", "c0-1", "c1-0", "c1-1", "c2-0", "c2-1"]
    assert "1 idle" in table


def test_compare_has_a_row_for_each_strategy_and_says_what_stops() -> None:
    rows = lab_json("compare", "-t", "t=6", "-m", "3", "--owned", "c0=t:0-2", "--owned", "c1=t:3-5")
    assert [row["strategy"] for row in rows] == list(ASSIGNOR_NAMES)
    by_name = {row["strategy"]: row for row in rows}
    assert (by_name["sticky"]["moved"], by_name["sticky"]["stopped"]) == (2, 6)
    assert (by_name["cooperative-sticky"]["moved"], by_name["cooperative-sticky"]["stopped"]) == (2, 2)
    assert by_name["cooperative-sticky"]["generations"] == 2
    assert (by_name["uniform"]["moved"], by_name["uniform"]["stopped"]) == (2, 2)
    assert by_name["ceiling-range"]["stopped"] == 6


def test_a_cooperative_assignment_says_which_partitions_wait() -> None:
    text = lab(
        "assign", "-t", "t=6", "-m", "3", "--owned", "c0=t:0-2", "--owned", "c1=t:3-5", "-s", "cooperative-sticky"
    )
    assert "2 moved; 2 rebalances: in the first, 2 partitions that change hands get no owner" in text


def test_racks_are_counted_where_they_are_known() -> None:
    racks = ("--rack", "a,b,c", "--replica-rack", "t=c,b,a")
    rows = {row["strategy"]: row["local"] for row in lab_json("compare", "-t", "t=6", "-m", "3", *racks)}
    assert rows["range"] == rows["sticky"] == 6
    assert rows["zookeeper-range"] == 0
    assert {row["local"] for row in lab_json("compare", "-t", "t=6", "-m", "3")} == {None}


def test_compare_leaves_out_a_strategy_that_cannot_assign_the_case_and_says_why() -> None:
    table = lab("compare", *THREE_TOPICS)
    assert "zookeeper-roundrobin " not in table
    assert len(table.splitlines()) == len(ASSIGNOR_NAMES)
    refused = lab("compare", *THREE_TOPICS, "-s", "zookeeper-roundrobin", code=2)
    assert "Topic t0 has the following available consumer streams: [C0-0, C1-0, C2-0]" in " ".join(refused.split())


def test_a_strategy_of_ones_own_is_named_by_its_import_path() -> None:
    path = f"{__name__}:FirstTakesAll"
    assert shares("-t", "t=2", "-m", "2", "-s", path) == {"c0": {"t": [0, 1]}, "c1": {}}
    (row,) = lab_json("compare", "-t", "t=2", "-m", "2", "-s", path)
    assert (row["idle"], row["most"]) == (1, 2)
    (change,) = lab_json("what-if", "-t", "t=2", "-m", "c1", "-s", path, "--add-member", "c0")
    assert {each["to"] for each in change["moves"]} == {"c0"}
    assert "failed: KeyError: 'secret'" in lab("assign", "-t", "t=2", "-m", "2", "-s", f"{__name__}:Fails", code=1)


def test_a_hundred_thousand_members_are_counted_and_a_few_of_them_shown() -> None:
    table = lab("assign", "-t", "t=12", "-m", "100000", "--limit", "3")
    assert table.splitlines()[1:] == [
        "c0          1  t:0",
        "c1          1  t:1",
        "c10         1  t:2",
        "shown: 3 of 100,000 members; --limit shows more of them, --json shows all",
        "  99,988 of them have 0 partitions",
        "  12 of them have 1 partition",
        "range: 12 partitions, 100,000 members, 0 to 1 each, 99,988 idle",
    ]


def test_a_long_list_of_partitions_is_cut_and_says_by_how_many() -> None:
    table = lab("assign", "-t", "t=1000", "-m", "2", "-s", "roundrobin")
    assert "t:0,2,4,6,8,10,12,14,16,18,20,22 and 488 more" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "t=4", "-m", "c0=u"), "member c0 subscribes to the topic u, which does not exist: the topics are t"),
        (("-t", "t", "-m", "2"), "'t' is not a topic: write TOPIC=PARTITIONS"),
        (("-t", "t=5", "-t", "t=6", "-m", "2"), "topic t has 5 partitions and 6: name it once"),
        (("-t", "t=x", "-m", "2"), "'x' is not a number of partitions"),
        (("-t", "t=0", "-m", "2"), "topic t has 0 partitions"),
        (("-t", "a/b=1", "-m", "2"), "Topic name is invalid: 'a/b' contains"),
        (("-t", "t=1000001", "-m", "2"), "the topics have 1,000,001 partitions: use at most 1,000,000"),
        (("-t", "t=1", "-m", "1000001"), "1000001 is not a number of members"),
        (("-t", "t=1", "-m", "0"), "0 is not a number of members"),
        (("-t", "t=1", "-m", "2", "--threads", "1001"), "has 1001 threads"),
        (("-t", "t=1", "-m", "20000", "--threads", "100"), "the members have 2,000,000 threads"),
        (("-t", "t=1", "-m", "2", "--threads", "x"), "'x' is not a number of threads"),
        (("-t", "t=1"), "the case has no member"),
        (("-m", "1"), "the case has no topic"),
        (("-t", "t=4", "-m", "2", "--owned", "c0=t:4"), "member c0 owns t-4, which does not exist: t has 4 partitions"),
        (("-t", "t=4", "-m", "2", "--owned", "c7=t:1"), "there is no member c7: name it with --member c7"),
        (("-t", "t=4", "-m", "2", "--owned", "c0=3"), "'3' is not a list of partitions"),
        (("-t", "t=4", "-m", "2", "--owned", "c0=t:3-1"), "write the lower number first"),
        (("-t", "t=4", "-m", "2", "--rack", "a,,b"), "has an empty place among its racks"),
        (("-t", "t=4", "-m", "2", "--replica-rack", "u=a"), "racks are given for the replicas of the topic u"),
        (("-t", "t=4", "-m", "=t"), "'=t' is not a member"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_clear_sentence(arguments: tuple[str, ...], message: str) -> None:
    usage, error = lab("assign", *arguments, code=2).split("\nError: ")
    assert usage.startswith("Usage: ")
    assert message in error
    assert len(error.splitlines()) == 1


FILE = """\
strategy = "roundrobin"

[topics]
t = 5
u = { partitions = 2, racks = ["a+b", "c"] }

[members]
c0 = ["t"]
c1 = { topics = ["t", "u"], rack = "a", owned = "t:0-1,u:1", instance_id = "i", generation = 3, threads = 2 }
"""


def test_a_file_describes_a_case_and_options_add_to_it(tmp_path: Path) -> None:
    path = tmp_path / "case.toml"
    path.write_text(FILE)
    assert shares("--file", str(path)) == {"c1": {"t": [0, 2, 4], "u": [0, 1]}, "c0": {"t": [1, 3]}}
    assert set(shares("--file", str(path), "-m", "c2=u")) == {"c0", "c1", "c2"}
    path.write_text("members = 3\n[topics]\nt = 3")
    assert shares("--file", str(path)) == {f"c{number}": {"t": [number]} for number in range(3)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("t = 5", "t = = 5", ": not TOML: Invalid value (at line 4, column 5)"),
        ('c0 = ["t"]', 'c0 = ["x"]', ":8: member c0 subscribes to the topic x, which does not exist"),
        ("t = 5", "t = true", ":4: topics.t.partitions: expected a whole number, got true or false"),
        ("t = 5", "t = 0", ":4: topic t has 0 partitions"),
        ("rack =", "rak =", ":9: there is no key members.c1.rak: did you mean rack?"),
        ("generation = 3", "generation = 'x'", ":9: members.c1.generation: expected a whole number, got a text"),
        ("t:0-1,u:1", "t:9", ":9: member c1 owns t-9, which does not exist"),
        ("t:0-1,u:1", "9", ":9: '9' is not a list of partitions"),
        ('["t"]', '"t"', ":8: members.c0.topics: expected a list, got a text in quotes"),
        ("[members]", "[member]", ":7: there is no key member: did you mean members?"),
        ('"roundrobin"', "1", ":1: strategy: expected a text in quotes, got a whole number"),
    ],
)
def test_a_wrong_file_names_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "case.toml"
    path.write_text(FILE.replace(old, new))
    error = lab("assign", "--file", str(path), code=2)
    assert f"{path.name}{message}" in error.replace("\n", " ")
    assert len(error.splitlines()) == 1


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "case.toml"
    assert "does not exist" in lab("assign", "--file", str(path), code=2)
    path.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in lab("assign", "--file", str(path), code=2)
    assert "give --file or --group, not both" in lab("assign", "--file", str(path), "--group", "g", code=2)


@pytest.mark.parametrize("text", ["-1", "2.5", "1_0", "0"])
def test_a_text_like_a_number_is_no_name_of_a_member(text: str) -> None:
    assert f"{text} is not a number of members: use from 1 to 1,000,000" in lab(
        "assign", "-t", "t=3", "-m", text, code=2
    )


def test_the_racks_of_a_file_count_for_a_number_of_members_too(tmp_path: Path) -> None:
    file = tmp_path / "group.toml"
    file.write_text('members = 2\n[topics]\nt = { partitions = 4, racks = ["a", "b"] }\n')
    assert "4 with a replica on the member's rack" in lab(
        "assign", "--file", str(file), "--rack", "a,b", "-s", "sticky"
    )


def test_a_rack_without_a_name_is_refused(tmp_path: Path) -> None:
    refused = lab("assign", "-t", "t=3", "-m", "2", "--replica-rack", "t=+", code=2)
    assert "'t=+' has an empty place among its racks" in refused
    file = tmp_path / "group.toml"
    file.write_text("members = 2\n[topics]\nt = { partitions = 4, racks = [] }\n")
    assert f"{file}:3: topics.t.racks: expected a list of length >= 1" in lab("assign", "--file", str(file), code=2)
