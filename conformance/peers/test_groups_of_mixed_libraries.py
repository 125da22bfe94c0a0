"""M3, M6. Groups of Kafka's own consumers, of four libraries, and with our own, on SPEC 4's walk."""

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.interop.group_members import (
    WALK_PARTITIONS,
    AiokafkaMember,
    ConfluentMember,
    Join,
    KafkaPythonMember,
    OdradekMember,
    walk,
    writer,
)
from conformance.peers.java_members import JavaMembers, java_members
from odradek.spark.local.java import find_java

pytestmark = pytest.mark.needs("kafka")

OTHERS: dict[str, tuple[Join, ...]] = {
    "range": (ConfluentMember, KafkaPythonMember, AiokafkaMember),
    "roundrobin": (ConfluentMember, AiokafkaMember, KafkaPythonMember),
    "sticky": (AiokafkaMember, KafkaPythonMember, AiokafkaMember),
    "cooperative-sticky": (ConfluentMember, KafkaPythonMember, ConfluentMember),
}
"""Beside Kafka's, by assignor, the members of libraries that have it; each leads the group in its turn."""


@pytest.fixture(scope="module")
def java(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaMembers]:
    if "jdk.compiler" not in find_java().identity:
        pytest.skip("java has no compiler: install a JDK")
    with java_members(kafka.bootstrap_servers, tmp_path_factory.mktemp("java") / "members.err") as members:
        yield members


@pytest.mark.parametrize("assignor", OTHERS)
@pytest.mark.parametrize("members", ["java", "mixed", "own"])
def test_members_of_all_libraries_share_the_partitions(
    kafka: Any, java: JavaMembers, assignor: str, members: str
) -> None:
    servers, topic = kafka.bootstrap_servers, f"walk.{members}.{assignor}"
    first, *others = OTHERS[assignor]
    joins = {
        "java": (java,) * 4,
        "mixed": (first, java, *others),
        "own": (OdradekMember, java, first, OdradekMember),
    }[members]
    with writer(servers, topic, WALK_PARTITIONS) as write:
        values, broadcast = walk(servers, topic, assignor, joins, write)
    assert sorted(broadcast) == sorted(values)
