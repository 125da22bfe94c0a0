import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from odradek.assignors import (
    Assignment,
    Assignor,
    GroupSubscription,
    InvalidAssignmentError,
    RebalanceProtocol,
    assign,
    create_assignor,
    registry,
)
from odradek.model import TopicPartition
from tests.docs.fenced_blocks import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs" / "assignors.md"
Partitions = Mapping[str, Sequence[tuple[str, int]]]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> str:
    """The docs' example, in a module outside the package."""
    source = next(block for block in blocks("assignors.md", "python") if "class RandomAssignor" in block)
    assert len(source.splitlines()) < 20
    module = ModuleType("example_assignors")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "example_assignors:RandomAssignor"


def test_the_docs_example_is_chosen_by_its_import_path(example: str) -> None:
    """M3."""
    assignment = assign(example, {"t": 20, "empty": 0}, {"a": ["t"], "b": ["t", "empty"], "c": []})
    assert len(assignment["a"]) + len(assignment["b"]) == 20
    assert not assignment["c"]
    assert create_assignor(example.replace(":", ".")).name == "random"


def test_an_assignor_is_chosen_by_its_entry_point(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3."""
    entry = importlib.metadata.EntryPoint(name="chance", value=example, group="odradek.assignors")
    monkeypatch.setattr(registry, "_entry_points", lambda: [entry])
    assert create_assignor("chance").name == "random"
    with pytest.raises(ValueError, match=r"did you mean chance\?.* uniform .*chance,"):
        create_assignor("chanse")


def test_entry_points_are_those_of_the_group_that_the_docs_name() -> None:
    assert f'[project.entry-points."{registry.ENTRY_POINTS}"]' in DOCS.read_text()
    assert not registry._entry_points()


def test_built_in_assignors_are_found_by_import_path_too() -> None:
    assert create_assignor("odradek.assignors:RangeAssignor").name == "range"
    assert create_assignor("odradek.assignors.roundrobin.RoundRobinAssignor").name == "roundrobin"


def test_each_consumer_gets_an_assignor_of_its_own() -> None:
    assert create_assignor("sticky") is not create_assignor("sticky")


@pytest.mark.parametrize("name", ["fair", "no.such.Assignor", "odradek.assignors.Nobody", ""])
def test_an_unknown_assignor_is_refused_and_the_names_are_listed(name: str) -> None:
    with pytest.raises(ValueError, match="range roundrobin sticky cooperative-sticky"):
        assign(name, {}, {})


def test_the_nearest_name_is_proposed() -> None:
    with pytest.raises(
        ValueError, match=r"unknown assignor 'cooperative_sticky' \(did you mean cooperative-sticky\?\)"
    ):
        create_assignor("cooperative_sticky")


def test_a_class_that_is_no_assignor_is_refused() -> None:
    with pytest.raises(ValueError, match="is not an assignor"):
        create_assignor("collections:OrderedDict")


class Duck:
    """Has a name and `assign`, and nothing else."""

    name = "duck"

    def __init__(self, result: Callable[[GroupSubscription], Partitions]) -> None:
        self._result = result

    def assign(self, group: GroupSubscription) -> Partitions:
        return self._result(group)


class HalfDuck(Duck):
    def user_data(self, topics: Sequence[str]) -> bytes:
        return b""


def run(result: Partitions) -> Assignment:
    return assign(Duck(lambda _: result), {"t": 2, "u": 1}, {"a": ["t"], "b": ["t"]})  # type: ignore[arg-type]


def test_a_name_and_assign_are_enough() -> None:
    assert run({"a": [("t", 0), ("t", 1)]}) == {"a": [("t", 0), ("t", 1)], "b": ()}


def test_some_of_the_optional_parts_are_refused_without_the_others() -> None:
    with pytest.raises(ValueError, match="has user_data but not supported_protocols and on_assignment"):
        create_assignor(HalfDuck(lambda _: {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"a": [("t", 0)]}, "forgets partition t-1"),
        ({"a": [("t", 0), ("t", 1)], "b": [("t", 1)]}, "partition t-1 twice, to a and to b"),
        ({"a": [("t", 0), ("t", 1), ("t", 2)]}, "partition t-2, which does not exist"),
        ({"a": [("t", 0), ("t", 1), ("v", 0)]}, "partition v-0, which does not exist"),
        ({"a": [("t", 0), ("t", 1), ("u", 0)]}, "partition u-0 to a, which does not subscribe"),
        ({"c": [("t", 0)]}, "to c, which is not a member"),
    ],
)
def test_an_invalid_assignment_is_refused_and_the_partition_named(result: Partitions, message: str) -> None:
    """M3."""
    with pytest.raises(InvalidAssignmentError, match=message):
        run(result)


def test_an_error_of_a_custom_assignor_is_raised_to_the_caller() -> None:
    def fail(group: GroupSubscription) -> Partitions:
        raise ZeroDivisionError(f"{len(group.members)} members")

    with pytest.raises(ZeroDivisionError, match="1 members"):
        assign(Duck(fail), {"t": 1}, {"a": ["t"]})  # type: ignore[arg-type]


class Cooperative(Assignor):
    name = "mine"
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, result: Mapping[str, Sequence[TopicPartition]]) -> None:
        self._result = result

    def assign(self, group: GroupSubscription) -> Assignment:
        return self._result


def test_a_cooperative_assignor_leaves_out_what_another_member_has_to_revoke_first() -> None:
    """M3."""
    members = {"a": ["t"], "b": ["t"]}
    owned = {"a": [("t", 0), ("t", 1)]}
    kept: dict[str, list[TopicPartition]] = {"a": [TopicPartition("t", 0)], "b": []}
    assert assign(Cooperative(kept), {"t": 2}, members, owned) == kept
    early = {**kept, "b": [TopicPartition("t", 1)]}
    with pytest.raises(InvalidAssignmentError, match="t-1 to b while a has not revoked it"):
        assign(Cooperative(early), {"t": 2}, members, owned)
