"""Kafka's class names of assignors, as `partition.assignment.strategy` has them in clients of Java."""

import pytest

from odradek.assignors import create_assignor


@pytest.mark.parametrize(
    ("kafkas", "name"),
    [
        ("RangeAssignor", "range"),
        ("RoundRobinAssignor", "roundrobin"),
        ("StickyAssignor", "sticky"),
        ("CooperativeStickyAssignor", "cooperative-sticky"),
    ],
)
def test_kafkas_class_names_stand_for_assignors(kafkas: str, name: str) -> None:
    """M3."""
    assert create_assignor(f"org.apache.kafka.clients.consumer.{kafkas}").name == name


def test_another_class_of_java_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"unknown assignor .org\.apache\.kafka\.clients\.Foo.: use one of range"):
        create_assignor("org.apache.kafka.clients.Foo")
