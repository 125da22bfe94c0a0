"""Sentences about rebalances of the journal."""

from odradek.presentation.group_texts import rebalance_sentence

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
