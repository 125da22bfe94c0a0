"""Kafka's class names of assignors, as `partition.assignment.strategy` has them in clients of Java."""

import pytest

from odradek.assignors import create_assignor
from odradek.clients import Consumer
from odradek.model import ConfigurationError


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


@pytest.mark.parametrize(
    ("kafkas", "modern"),
    [("kafka.consumer.RangeAssignor", "range"), ("kafka.consumer.RoundRobinAssignor", "roundrobin")],
)
def test_a_class_of_kafka_0_8_is_refused_with_the_names_of_both_rules(kafkas: str, modern: str) -> None:
    simple = kafkas.rpartition(".")[2]
    both = rf"use {modern} \(org\.apache\.kafka\.clients\.consumer\.{simple}\), or zookeeper-{modern} for the rule"
    with pytest.raises(ConfigurationError, match=both):
        Consumer("t", group_id="g", partition_assignment_strategy=kafkas)


def test_another_class_of_java_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"unknown assignor .org\.apache\.kafka\.clients\.Foo.: use one of range"):
        create_assignor("org.apache.kafka.clients.Foo")
