"""Sentences about rebalances of the journal."""

import asyncio
import json
import uuid
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.clients.admin.descriptions import GroupDescription, MemberDescription
from odradek.model import TopicPartition
from odradek.testing import eventually
from odradek.texts.group_texts import departures, rebalance_sentence, suspects, waited_for

RECORD = {
    "reason": "consumer-2 joined", "outcome": "stable", "duration_ms": 977, "moved": 3, "unowned_partition_ms": 3_036,
    "longest_unowned_ms": 1_012, "timed_out": [], "waited_for": {"consumer-2": 972}, "revocations": {},
}  # fmt: skip


def test_a_rebalance_is_a_sentence_on_its_cause_and_costs() -> None:
    assert rebalance_sentence(RECORD) == (
        "consumer-2 joined: the rebalance took 0.977 s, moved 3 partitions, and left partitions without a reader for "
        "3.036 partition-seconds in all, one of them for 1.012 s. It waited longest for consumer-2 0.972 s."
    )


def test_the_sentence_names_members_that_were_removed_and_another_outcome() -> None:
    record = RECORD | {"timed_out": ["consumer-1"], "outcome": "overtaken"}
    assert rebalance_sentence(record).endswith(
        " These members did not join in time: consumer-1 (timed out). It ended as overtaken."
    )


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"waited_for": {"a": 900}, "join_ms": 900, "assign_ms": 50, "duration_ms": 960}, "a 0.900"),
        (
            {"waited_for": {"a": 900}, "join_ms": 900, "assign_ms": 5_000, "duration_ms": 6_000},
            "the leader's assignment 5.000",
        ),
        ({"waited_for": {"a": 900}, "join_ms": 900, "assign_ms": 0, "duration_ms": 6_000}, "the last SyncGroup 5.100"),
        (
            {"waited_for": {}, "join_ms": 3_000, "assign_ms": 9, "duration_ms": 3_010},
            "group.initial.rebalance.delay.ms 3.000",
        ),
        ({"waited_for": {}, "join_ms": 0, "assign_ms": 0, "duration_ms": 0}, None),
    ],
)
def test_a_rebalance_waited_for_what_took_longest(times: dict[str, Any], expected: str | None) -> None:
    assert waited_for(RECORD | times) == expected


def record(at_s: int, cause: str, reason: str, member: str, **more: Any) -> dict[str, Any]:
    return RECORD | {
        "started_ms": at_s * 1000, "cause": cause, "reason": reason, "caused_by": [member],
        "clients": {member: "app", "other": "other"},
    } | more  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "reason", "expected"),
    [
        ("left", "m left (consumer poll timeout has expired.)", "max.poll.interval.ms was exceeded: poll more often"),
        ("left", "m left (the application has not polled for max.poll.interval.ms)", "max.poll.interval.ms was exceed"),
        ("rebalance timeout", "no SyncGroup from m", "max.poll.interval.ms was exceeded"),
        ("session expired", "m sent no heartbeat within its session timeout", "no heartbeat within session.timeout.ms"),
        ("left", "m left (the consumer is closed)", "its consumer was closed"),
        ("left", "m left (Scaled down)", "Scaled down"),
        ("left", "m left", "it gave no reason, so probably max.poll.interval.ms was exceeded"),
    ],
)
def test_a_client_that_leaves_again_and_again_is_one_line_with_the_likely_cause(
    cause: str, reason: str, expected: str
) -> None:
    history = []
    for number in range(9):
        history.append(record(20 * number, cause, reason, f"m{number}"))
        history.append(record(20 * number + 10, "joined", "m joined", f"m{number + 1}"))
    (line,) = departures(history)
    assert line.startswith(f"client app left the group 9 times within 160 s and joined it 9 times: {expected}")


def test_members_that_did_not_join_in_time_have_left_and_one_departure_is_no_line() -> None:
    silent = record(0, "joined", "other joined", "other", timed_out=["m1"], clients={"m1": "app", "other": "other"})
    assert departures([silent]) == []
    (line,) = departures([silent, silent | {"started_ms": 60_000}])
    assert line.startswith("client app left the group 2 times within 60 s and joined it 0 times: max.poll.interval.ms")
    assert departures([RECORD, RECORD]) == [], "an older broker names no clients"


def joining(*topics: tuple[str, ...]) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member_id=f"m{number}", group_instance_id=None, client_id="", client_host="/h", topics=each,
            assignment=(TopicPartition("t", number),),
        )
        for number, each in enumerate(topics)
    )  # fmt: skip
    return GroupDescription(
        group_id="g", group_state="PreparingRebalance", protocol_type="consumer", protocol="", coordinator=None,
        members=members,
    )  # fmt: skip


def test_a_member_that_has_joined_again_is_no_suspect() -> None:
    assert suspects(joining(("t",), ()))[0] == "Not joined again yet: m1 on h."
    assert "group.initial.rebalance.delay.ms" in suspects(joining(("t",), ("t",)))[0]
    assert suspects(joining((), ()))[0].startswith("Check whether these poll, which had partitions before: m0 on h, m1")


# ---- The command -----------------------------------------------------------------------------------------------------


async def consume(servers: str, group: str) -> None:
    """Join and leave a group of one member."""
    async with Consumer("history", bootstrap_servers=servers, group_id=group) as consumer:
        async with asyncio.timeout(60):
            while not consumer.assignment():
                await consumer.poll(100)


def test_the_history_of_a_group_names_causes_and_durations(shell: Any) -> None:
    group = f"g-{uuid.uuid4().hex}"
    if "history" not in shell.run("topics", "list"):
        shell.run("topics", "create", "history", "--partitions", "2")
    asyncio.run(consume(shell.servers, group))

    def both() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in shell.run("groups", "history", group, "--json").splitlines()]
        return found if len(found) == 2 else []

    first, last = eventually(both, what="the journal has both rebalances")
    assert (first["cause"], first["outcome"], first["generation"], first["members"]) == ("joined", "stable", 1, 1)
    assert (last["cause"], last["outcome"], last["generation"], last["members"]) == ("left", "empty", 2, 0)
    assert first["duration_ms"] >= first["join_ms"]
    table = shell.run("groups", "history", group, "--limit", "1")
    assert "left" in table
    assert "(empty)" in table
    assert len(table.splitlines()) == 2
    assert max(map(len, table.splitlines()[1].split()[:2])) <= 16  # a narrow column is folded between date and time
    assert shell.run("groups", "waiting", group).startswith(f"group {group}  state Empty  generation 2  members 0")
    waits = json.loads(shell.run("groups", "waiting", group, "--json"))
    assert (waits["group_type"], waits["epoch"], waits["members"]) == ("classic", 2, [])
    assert "--count needs --interval" in shell.run("groups", "waiting", group, "--count", "2", code=2)
    assert len(shell.run("groups", "waiting", group, "--interval", "0.1", "--count", "2").splitlines()) == 3


def test_a_group_without_a_history_and_a_wrong_limit_are_errors(shell: Any) -> None:
    assert "has no rebalance of the group nobody" in shell.run("groups", "history", "nobody", code=1)
    assert "0 is not in the range" in shell.run("groups", "history", "g", "--limit", "0", code=2)
