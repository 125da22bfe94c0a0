"""Sentences about rebalances of the journal."""

from typing import Any

import pytest

from odradek.clients.admin.descriptions import GroupDescription, MemberDescription
from odradek.model import TopicPartition
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
