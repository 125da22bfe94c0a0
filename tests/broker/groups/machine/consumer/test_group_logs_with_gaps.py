"""Coordinators that load a log with gaps: records of later versions, and what a damaged disk has lost (M7, M8).

`ODRADEK_SEEDS=1000 pytest tests/broker/groups/machine/consumer/test_group_logs_with_gaps.py` tries so many.
"""

from typing import Any, Final

import pytest

from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.internal_records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.broker.groups.machine.both_protocols.test_mixed_invariants import MixedHistory
from tests.broker.groups.machine.consumer.protocol_world import GROUP, Coordinator, Member, settle
from tests.broker.groups.machine.consumer.test_model_invariants import History
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

_SEEDS: Final = len(seeds(30))


def with_gaps(history: History) -> None:
    """Lose some committed records of the group, and let another coordinator load the rest."""
    log = history.at.log
    log.commit()
    whole = log.committed
    log.committed = [record for record in whole if history.entropy.random() < 0.8]
    assert len(log.committed) < len(whole) or len(whole) < 100
    history.collect()
    history.waiting.clear()
    history.lose()


class DamagedHistory(History):
    """The events of `History`, with a gap in the log before everything heals."""

    def heal(self) -> None:
        with_gaps(self)
        super().heal()


class DamagedMixedHistory(MixedHistory):
    """The events of `MixedHistory`, with a gap in the log before everything heals."""

    def heal(self) -> None:
        with_gaps(self)
        super().heal()


@pytest.mark.parametrize("kind", [DamagedHistory, DamagedMixedHistory])
@pytest.mark.parametrize("block", range(5))
def test_a_group_whose_log_lost_records_converges(block: int, kind: type[History]) -> None:
    """M7. SPEC 6: the state is what the records say; a gap must not leave a group that nobody can use."""
    for seed in range(block * _SEEDS // 5, (block + 1) * _SEEDS // 5):
        try:
            history = kind(seed)
            history.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert not history.waiting


class WholeHistory(History):
    """The events of `History`; a coordinator that loads a whole log appends nothing."""

    def lose(self) -> None:
        super().lose()
        assert not self.at.log.appended


def test_a_whole_log_needs_no_repair() -> None:
    """M8."""
    for seed in range(_SEEDS):
        history = WholeHistory(seed)
        history.run()
        assert not history.at.log.appended


@pytest.mark.parametrize(
    "lost",
    [
        ConsumerGroupMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ],
)
def test_members_of_a_group_one_kind_of_whose_records_a_later_release_wrote_share_all_partitions(lost: type) -> None:
    """M7. A downgrade: this release skips values of versions that it does not know."""
    at = Coordinator({"a": 4})
    members = [Member("m1", "a"), Member("m2", "a")]
    settle(at, members)
    at.log.committed = [each for each in at.log.committed if not isinstance(getattr(each, "key", None), lost)]
    at.log.lose(at.now_ms, ErrorCode.not_coordinator)
    for _ in range(5):
        at.wait(2_000)
        for member in members:
            member.heartbeat(at)
            member.revoke()
    members.append(Member("m3", "a"))
    settle(at, members)
    assert sorted(number for member in members for number in member.numbers("a")) == [0, 1, 2, 3]


def test_a_member_of_whom_only_the_partitions_are_known_has_to_join_again() -> None:
    """M7. Its next heartbeat may say nothing about its subscription, so that it would get no partition any more."""
    at = Coordinator({"a": 2})
    member = Member("m", "a")
    settle(at, [member])
    at.log.committed = [
        each for each in at.log.committed if not isinstance(getattr(each, "key", None), ConsumerGroupMemberMetadataKey)
    ]
    at.log.lose(at.now_ms, ErrorCode.not_coordinator)
    at.log.commit()
    reply: Any = at.ask(ConsumerGroupHeartbeatRequest(member_id="m", member_epoch=member.epoch))
    assert isinstance(reply, KafkaError)
    assert reply.code is ErrorCode.unknown_member_id
    assert at.log.consumer_group(GROUP) is not None


def test_a_member_of_an_empty_group_whose_epoch_is_lost_gets_its_partitions_at_once() -> None:
    """M7. Otherwise its first heartbeats wait until the group's epoch passes the epoch of the old targets."""
    at = Coordinator({"a": 2})
    for name in "xyz":
        member = Member(name, "a")
        settle(at, [member])
        member.leave(at)
    at.log.commit()
    at.log.committed = [
        each for each in at.log.committed if not isinstance(getattr(each, "key", None), ConsumerGroupMetadataKey)
    ]
    at.log.lose(at.now_ms, ErrorCode.not_coordinator)
    at.log.commit()
    late = Member("late", "a")
    settle(at, [late])
    assert late.numbers("a") == [0, 1]
