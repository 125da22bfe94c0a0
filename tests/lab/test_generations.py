"""M4, M6, M7. One change of membership in each generation: the faults of generation 1, and their absence later."""

import json
import logging
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.lab.costs import Change, Cost, Generation
from odradek.lab.generations import Measured, measure, measure_all

pytestmark = pytest.mark.long

LATER = (Generation.EAGER, Generation.COOPERATIVE, Generation.CONSUMER)


@cache
def measured(generation: Generation, change: Change, members: int = 4) -> Measured:
    return measure(generation, change, members=members, partitions=24)


def cost(generation: Generation, change: Change) -> Cost:
    return measured(generation, change).cost


def test_the_same_seed_gives_the_same_cost() -> None:
    first = measured(Generation.ZOOKEEPER, Change.LEAVES)
    assert measure(Generation.ZOOKEEPER, Change.LEAVES, members=4, partitions=24) == first


@pytest.mark.parametrize("change", Change)
def test_every_member_of_generation_1_stops_for_any_change(change: Change) -> None:
    """The herd effect."""
    stopped = cost(Generation.ZOOKEEPER, change).members_stopped
    assert stopped == (4 if change is Change.JOINS else 3)


@pytest.mark.parametrize("change", Change)
def test_only_members_that_give_a_partition_up_stop_in_a_cooperative_group(change: Change) -> None:
    stopped = cost(Generation.COOPERATIVE, change).members_stopped
    assert stopped == (4 if change is Change.JOINS else 0), "each gives a partition to the one that joins"


def test_each_member_of_generation_1_reads_all_the_others() -> None:
    """Reads of the tree grow with the square of the members."""
    few, many = (
        measure(Generation.ZOOKEEPER, Change.JOINS, members=members, partitions=2 * members).cost for members in (4, 16)
    )
    assert many.tree_reads / 16 - few.tree_reads / 4 > 8, "twelve more nodes to read"


@pytest.mark.parametrize("generation", LATER)
def test_members_of_later_generations_leave_the_tree_alone(generation: Generation) -> None:
    found = cost(generation, Change.JOINS)
    assert (found.tree_reads, found.tree_writes) == (0, 0)
    assert found.group_requests > 0
    assert cost(Generation.ZOOKEEPER, Change.JOINS).group_requests == 0


@pytest.mark.parametrize("generation", Generation)
def test_partitions_of_a_dead_member_wait_for_its_session(generation: Generation) -> None:
    found = cost(generation, Change.DIES)
    assert found.settled_s >= 5
    assert found.stopped_partition_s >= 6 * 5, "its six partitions, for most of six seconds"


def test_all_generations_are_measured_one_after_another() -> None:
    seen: list[Cost] = []
    found = measure_all([Change.LEAVES], members=[2, 3], partitions=4, measured=seen.append)
    assert [(each.members, each.generation) for each in found.costs] == [
        (members, generation) for members in (2, 3) for generation in Generation
    ]
    assert tuple(seen) == found.costs


@pytest.mark.parametrize("generation", Generation)
@pytest.mark.parametrize("change", Change)
def test_the_gaps_of_the_timeline_are_the_partition_seconds_of_the_cost(generation: Generation, change: Change) -> None:
    found, timeline = measured(generation, change)
    assert timeline.unowned_partition_ms / 1000 == pytest.approx(found.stopped_partition_s, abs=24 * 0.011)
    assert len(timeline.members) == (5 if change is Change.JOINS else 4)
    owners = {span.partition for span in timeline.spans if span.member and span.to_ms == timeline.end_ms}
    assert len(owners) == 24, "at the end, each partition has an owner"


# ---- The command -----------------------------------------------------------------------------------------------------


def generations(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner().invoke(main, ["lab", "generations", *arguments])
    assert result.exit_code == fails, result.output
    return result


def test_each_generation_has_a_line() -> None:
    small = ("--members", "2", "--partitions", "4", "--change", "leaves")
    shown = [json.loads(line) for line in generations(*small, "--json").stdout.splitlines()]
    assert [each["generation"][0] for each in shown] == ["1", "2", "2", "3"]
    table = generations(*small).stdout.splitlines()
    assert table[0].split()[:3] == ["CHANGE", "MEMBERS", "GENERATION"]
    assert len(table) == 5


def test_a_member_that_dies_leaves_no_errors_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("odradek").level
    small = ("--members", "2", "--partitions", "4", "--change", "dies", "--generation", "range")
    assert generations(*small).stderr == "one dies, 2 members, generation 2 range: done\n"
    assert capsys.readouterr().err == ""
    assert logging.getLogger("odradek").level == level


def test_fewer_partitions_than_members_are_refused() -> None:
    assert (
        "3 members need at least as many partitions, not 2"
        in generations("--members", "3", "--partitions", "2", fails=2).output
    )


def test_pictures_of_the_costs_and_of_the_owners_are_drawn(tmp_path: Path) -> None:
    costs, owners = tmp_path / "costs.svg", tmp_path / "owners.svg"
    small = ("--members", "2", "--partitions", "4", "--change", "leaves")
    generations(*small, "--picture", str(costs), "--timeline", str(owners))
    assert costs.read_bytes().startswith(b"<?xml")
    assert owners.read_bytes().startswith(b"<?xml")


def test_a_timeline_of_several_changes_is_refused_before_the_work_begins(tmp_path: Path) -> None:
    file = str(tmp_path / "owners.svg")
    assert "--timeline shows one change of one group" in generations("--timeline", file, fails=2).stderr
    assert "let the name end in .svg" in generations("--picture", "costs.jpg", fails=2).stderr
