"""`odradek lab` with live groups of both protocols (M6, M7)."""

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import eventually
from tests.lab.lab_commands import lab, lab_json, shares


@contextmanager
def living_group(
    servers: str, group: str, members: int = 2, *, topic: str | None = None, **settings: str
) -> Iterator[None]:
    """A group whose members have shared the four partitions of a topic, by default of the group's name."""
    topic = topic or group
    client = {"bootstrap.servers": servers}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    named = {key.replace("_", "."): value for key, value in settings.items()}
    consumers = [confluent_kafka.Consumer(client | {"group.id": group} | named) for _ in range(members)]

    def is_at_rest() -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return all(len(consumer.assignment()) * members == 4 for consumer in consumers)

    try:
        for consumer in consumers:
            consumer.subscribe([topic])
        assert eventually(is_at_rest, what="the members share the partitions")
        yield
    finally:
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_is_a_case_with_what_its_members_own(servers: str, protocol: str) -> None:
    group = f"live-{protocol}"
    strategy = {"partition_assignment_strategy": "roundrobin"} if protocol == "classic" else {}
    with living_group(servers, group, group_protocol=protocol, client_rack="a", **strategy):
        found = shares("--group", group, "-b", servers)
        assert sorted(len(each[group]) for each in found.values()) == [2, 2]
        (row,) = lab_json("compare", "--group", group, "-b", servers, "-s", "sticky")
        assert (row["moved"], row["stopped"], row["fewest"]) == (0, 4, 2)
        table = lab("assign", "--group", group, "-b", servers)
        assert ("roundrobin: 4 partitions" if protocol == "classic" else "uniform: 4 partitions") in table
        more = shares("--group", group, "-b", servers, "-m", "new", "-t", "u=1")
        assert set(more) == {*found, "new"}
        change = ("what-if", "--group", group, "-b", servers, "--remove-member", min(found))
        assert eventually(lambda: "with the cause" in lab(*change) or "of any cause" in lab(*change), what="a journal")
        (cost,) = lab_json(*change)
        assert {each["from"] for each in cost["moves"]} >= {min(found)}
        assert cost["past"]["count"] >= 1


def test_a_group_that_does_not_exist_or_has_no_members_is_refused(servers: str) -> None:
    assert "nothing" in lab("assign", "--group", "nothing", "-b", servers, code=1)
    with living_group(servers, "gone"):
        pass
    assert "group gone has no members" in lab("assign", "--group", "gone", "-b", servers, code=1)
