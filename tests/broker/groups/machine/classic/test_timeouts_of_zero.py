"""Members with a rebalance timeout of zero, which the protocol allows, do not keep the coordinator busy (M6)."""

import pytest

from odradek.broker.coordinators.machine import Now, Reply
from odradek.broker.groups.machine import GroupSettings, State
from odradek.broker.groups.machine.messages import JoinReply, JoinRequest, LeaveRequest, LeavingMember, SyncRequest
from tests.broker.groups.machine.machine_log import MachineLog

SESSION_MS = 30_000


def join_request(name: str, instance_id: str | None = None) -> JoinRequest:
    return JoinRequest(
        member_id="", new_member_id=name, instance_id=instance_id, session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=0, protocol_type="consumer", protocols=(("range", b""),), requires_member_id=False,
        can_skip_assignment=True,
    )  # fmt: skip


@pytest.mark.timeout(60)
def test_static_members_that_are_away_do_not_keep_the_coordinator_busy() -> None:
    replies: list[Reply] = []
    log = MachineLog(GroupSettings(initial_rebalance_delay_ms=0), replies.append)
    log.handle("g", join_request("a", "i"), "join of a", 0)
    log.handle("g", SyncRequest(member_id="a", generation=1, assignments=(("a", b"x"),)), "sync of a", 0)
    log.handle("g", join_request("b"), "join of b", 0)
    log.expire(0)
    log.commit()
    assert [each.value.generation for each in replies if isinstance(each.value, JoinReply)] == [1, 2]
    log.handle("g", LeaveRequest(members=(LeavingMember(member_id="b"),)), "leave of b", 0)
    decisions = now_ms = 0
    while (group := log.group("g")) is not None and group.state is not State.EMPTY:
        due_ms = log.machine.next_deadline_ms
        assert due_ms is not None
        now_ms = max(now_ms, due_ms)
        assert now_ms <= SESSION_MS
        while (result := log.machine.expire(Now(now_ms, now_ms))) is not None:
            for record in result.records:
                log.machine.apply(record, 0, -1)
            decisions += 1
            assert decisions < 100
    assert now_ms == SESSION_MS
