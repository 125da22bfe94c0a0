"""Truncation of diverged logs (M1): a follower removes exactly what its leader does not have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.replication.machine.divergence import divergence, truncation_offset
from odradek.model import KafkaError


def end_offset_of(log: list[int]):
    """OffsetForLeaderEpoch over a list of each record's epoch, said without haste."""

    def find(epoch: int) -> tuple[int, int]:
        if not log or epoch > max(log):
            return -1, -1
        if epoch < log[0]:
            return epoch, 0
        known = max(each for each in log if each <= epoch)
        return known, next((offset for offset, each in enumerate(log) if each > known), len(log))

    return find


def agree(follower: list[int], leader: list[int]) -> list[int]:
    """Rounds of fetches until the leader sends records."""
    log = list(follower)
    for _ in range(100):
        last_epoch = log[-1] if log else -1
        found = divergence(end_offset_of(leader), fetch_offset=len(log), last_fetched_epoch=last_epoch)
        if found is None:
            return log
        before = len(log)
        del log[truncation_offset(found, end_offset_of(log), log_end_offset=len(log)) :]
        assert len(log) < before, "every round cuts something"
    raise AssertionError("no end")


@pytest.mark.parametrize(
    ("follower", "leader", "kept"),
    [
        ([], [0, 0], 0),
        ([0, 0], [0, 0, 0], 2),
        ([0, 0, 0], [0, 0, 1], 2),
        ([0, 0, 1, 1], [0, 0, 0, 2], 2),
        ([0, 0, 0, 1, 1, 3], [0, 0, 0, 1, 2, 4, 4], 4),
        ([1, 1, 1], [0, 0, 2], 0),
        ([0, 1, 1, 1, 3], [0, 1, 1, 2, 4], 3),
    ],
)
def test_the_logs_agree_after_a_few_rounds(follower, leader, kept) -> None:
    assert agree(follower, leader) == leader[:kept]


def test_a_leader_with_only_older_epochs_returns_no_end_offset() -> None:
    with pytest.raises(KafkaError, match="nothing of epoch 7"):
        divergence(end_offset_of([0, 0]), fetch_offset=2, last_fetched_epoch=7)


def test_a_follower_without_epochs_gets_records() -> None:
    assert divergence(end_offset_of([0]), fetch_offset=0, last_fetched_epoch=-1) is None


@st.composite
def histories(draw) -> tuple[list[int], list[int]]:
    """Two logs as leaders leave them: each leader continues a part of an existing log in its own epoch.

    Records of one epoch at one offset are equal, since one leader wrote them.
    """
    logs: list[list[int]] = [[], [], []]
    for epoch in range(draw(st.integers(1, 6))):
        who = draw(st.integers(0, 2))
        logs[who] += [epoch] * draw(st.integers(1, 4))
        for other in range(3):
            if other != who and draw(st.booleans()):
                kept = 0
                while kept < min(len(logs[other]), len(logs[who])) and logs[other][kept] == logs[who][kept]:
                    kept += 1
                logs[other] = logs[who][: draw(st.integers(kept, len(logs[who])))]
    leader = max(range(3), key=lambda each: (logs[each][-1] if logs[each] else -1, len(logs[each])))
    follower = draw(st.sampled_from([each for each in range(3) if each != leader]))
    return logs[follower], logs[leader]


@given(histories())
def test_a_follower_truncates_exactly_what_its_leader_does_not_have(logs) -> None:
    follower, leader = logs
    common = 0
    while common < min(len(follower), len(leader)) and follower[common] == leader[common]:
        common += 1
    assert agree(follower, leader) == leader[:common]
