"""The report of a rebalance: its cause, who was waited for, and how long each partition had no owner (M6)."""

from typing import Any

from odradek.broker.coordinators.machine import Reply
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.messages import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import (
    CauseKind,
    OwnershipChange,
    RebalanceCompleted,
    RebalanceOutcome,
)
from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from tests.broker.groups.machine.machine_log import MachineLog

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, traces_rebalances=True)


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


class Scene:
    """A group whose members a test drives; everything that is appended is committed at once."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.now_ms = 0
        self.replies: dict[str, Any] = {}
        self.reports: list[RebalanceCompleted] = []
        self.log = MachineLog(settings, self._learn)
        self.log.on_result = lambda result: self.reports.extend(
            each for each in result.events if isinstance(each, RebalanceCompleted)
        )

    def _learn(self, reply: Reply) -> None:
        assert isinstance(reply.to, list)
        self.replies[reply.to[0]] = reply.value

    def ask(self, name: str, request: Any, at_ms: int) -> None:
        self.now_ms = at_ms
        self.log.expire(at_ms)
        self.replies.pop(name, None)
        self.log.handle("g", request, [name], at_ms)
        self.log.commit()

    def join(self, name: str, at_ms: int, *, owned: tuple[int, ...] = (), topics: tuple[str, ...] = ("t",)) -> None:
        subscription = Subscription(topics=topics, owned_partitions=partitions(*owned))
        group = self.log.group("g")
        request = JoinRequest(
            member_id=name if group is not None and name in group.members else "",
            new_member_id=name,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("p", encode_subscription(subscription)),),
            requires_member_id=False,
            can_skip_assignment=False,
            reason="because" if name == "talkative" else "",
        )
        self.ask(name, request, at_ms)

    def sync(self, name: str, at_ms: int, **assignments: tuple[int, ...]) -> None:
        group = self.log.group("g")
        assert group is not None
        encoded = tuple(
            (member, encode_assignment(Assignment(partitions=partitions(*numbers))))
            for member, numbers in assignments.items()
        )
        self.ask(name, SyncRequest(member_id=name, generation=group.generation, assignments=encoded), at_ms)

    def beat(self, name: str, at_ms: int) -> None:
        group = self.log.group("g")
        assert group is not None
        self.ask(name, HeartbeatRequest(member_id=name, instance_id=None, generation=group.generation), at_ms)

    def leave(self, name: str, at_ms: int, reason: str | None = None) -> None:
        self.ask(name, LeaveRequest(members=(LeavingMember(member_id=name, reason=reason),)), at_ms)

    def expire(self, at_ms: int) -> None:
        self.log.expire(at_ms)
        self.log.commit()

    def stable(self) -> None:
        """Make a group of `a`, which leads and has 0 and 1, and `b`, which has 2 and 3, at 1,000 ms."""
        self.join("a", 0)
        self.sync("a", 0, a=(0, 1, 2, 3))
        self.join("b", 500)
        self.join("a", 900)
        self.sync("b", 950)
        self.sync("a", 1_000, a=(0, 1), b=(2, 3))
        assert isinstance(self.replies["b"], SyncReply)


def test_an_eager_rebalance_leaves_partitions_without_an_owner_from_each_join_to_each_sync() -> None:
    scene = Scene()
    scene.stable()
    first, second = scene.reports
    assert (first.cause.kind, first.cause.text, first.generation) == (CauseKind.JOINED, "a joined", 1)
    assert (first.waited_for, first.moved, first.unowned_ms) == ((), (), {})
    assert (second.cause.text, second.cause.members, second.started_ms) == ("b joined", ("b",), 500)
    assert (second.outcome, second.generation, second.members) == (RebalanceOutcome.STABLE, 2, 2)
    assert (second.duration_ms, second.join_ms, second.assign_ms) == (500, 400, 100)
    assert second.waited_for == (("a", 400),)
    assert sorted(second.moved) == list(partitions(2, 3))
    assert second.unowned_ms == dict.fromkeys(partitions(0, 1, 2, 3), 100), "a gave all up when it joined at 900"


def test_a_member_that_syncs_late_lengthens_the_time_without_an_owner_of_its_own_partitions() -> None:
    scene = Scene()
    scene.stable()
    scene.join("b", 2_000, topics=("t", "u"))
    scene.join("a", 2_300)
    scene.sync("a", 2_400, a=(0, 1), b=(2, 3))
    assert len(scene.reports) == 2
    scene.sync("b", 3_000)
    report = scene.reports[-1]
    assert (report.cause.kind, report.duration_ms, report.moved) == (CauseKind.REJOINED, 1_000, ())
    assert report.unowned_ms == {
        **dict.fromkeys(partitions(0, 1), 100),
        **dict.fromkeys(partitions(2, 3), 1_000),
    }


def test_a_cooperative_rebalance_stops_only_the_partitions_that_move() -> None:
    """KIP-429: what a member keeps has an owner all the time; the second rebalance hands over what was given up."""
    scene = Scene()
    scene.join("a", 0)
    scene.sync("a", 0, a=(0, 1, 2, 3))
    scene.join("b", 500)
    scene.join("a", 900, owned=(0, 1, 2, 3))
    scene.sync("b", 950)
    scene.sync("a", 1_000, a=(0, 1))
    assert (scene.reports[-1].moved, scene.reports[-1].unowned_ms) == ((), {})
    scene.join("a", 1_100, owned=(0, 1))
    scene.join("b", 1_300)
    scene.sync("a", 1_400, a=(0, 1), b=(2, 3))
    scene.sync("b", 1_500)
    report = scene.reports[-1]
    assert (report.cause.kind, report.cause.members) == (CauseKind.PARTITIONS_REVOKED, ("a",))
    assert sorted(report.moved) == list(partitions(2, 3))
    assert report.unowned_ms == dict.fromkeys(partitions(2, 3), 500), "from the response at 1,000 to that at 1,500"


def test_a_dead_member_s_partitions_have_no_owner_since_its_last_heartbeat() -> None:
    scene = Scene()
    scene.stable()
    for at_ms in (3_000, 6_000, 9_000, 11_000):
        scene.beat("a", at_ms)
        scene.expire(at_ms)
    scene.join("a", 13_000)
    scene.sync("a", 13_100, a=(0, 1, 2, 3))
    report = scene.reports[-1]
    assert (report.cause.kind, report.cause.members) == (CauseKind.SESSION_EXPIRED, ("b",))
    assert report.unowned_ms[TopicPartition("t", 2)] == 13_100 - 1_000
    assert report.unowned_ms[TopicPartition("t", 0)] == 100


def test_a_member_that_leaves_has_a_reason_and_its_partitions_no_owner_at_once() -> None:
    scene = Scene()
    scene.stable()
    scene.leave("b", 2_000, "scaled down")
    scene.join("a", 2_500)
    scene.sync("a", 2_600, a=(0, 1, 2, 3))
    report = scene.reports[-1]
    assert (report.cause.kind, report.cause.text) == (CauseKind.LEFT, "b left (scaled down)")
    assert report.unowned_ms == {
        **dict.fromkeys(partitions(0, 1), 100),
        **dict.fromkeys(partitions(2, 3), 600),
    }


def test_members_that_do_not_join_in_time_are_named() -> None:
    scene = Scene()
    scene.stable()
    scene.join("c", 2_000)
    scene.join("a", 2_100)
    for at_ms in range(5_000, 62_000, 3_000):
        scene.beat("b", at_ms)
    scene.expire(62_000)
    assert isinstance(scene.replies["a"], JoinReply)
    scene.sync("c", 62_000)
    scene.sync("a", 62_100, a=(0, 1), c=(2, 3))
    report = scene.reports[-1]
    assert (report.cause.text, report.timed_out, report.join_ms) == ("c joined", ("b",), 60_000)
    assert report.unowned_ms[TopicPartition("t", 2)] == 100, "b may have read until it was removed"


def test_a_rebalance_that_another_one_overtakes_and_the_last_member_s_leaving_are_reported() -> None:
    scene = Scene()
    scene.stable()
    scene.join("b", 2_000, topics=("t", "u"))
    scene.join("a", 2_100)
    scene.leave("b", 2_200)
    overtaken = scene.reports[-1]
    assert (overtaken.outcome, overtaken.assign_ms) == (RebalanceOutcome.OVERTAKEN, None)
    scene.leave("a", 2_300)
    empty = scene.reports[-1]
    assert (empty.outcome, empty.generation, empty.members, empty.join_ms) == (RebalanceOutcome.EMPTY, 4, 0, None)


def test_a_leader_that_joins_again_without_a_change_has_seen_new_metadata() -> None:
    scene = Scene()
    scene.stable()
    scene.join("a", 2_000)
    scene.join("b", 2_100)
    scene.sync("a", 2_200, a=(0, 1), b=(2, 3))
    scene.sync("b", 2_200)
    assert scene.reports[-1].cause.kind is CauseKind.METADATA_CHANGED


def test_a_client_s_own_reason_is_in_the_text() -> None:
    scene = Scene()
    scene.join("talkative", 0)
    scene.sync("talkative", 0, talkative=(0,))
    assert scene.reports[-1].cause.text == "talkative joined (because)"


def test_a_new_coordinator_knows_the_owners_from_the_log() -> None:
    scene = Scene()
    scene.stable()
    scene.log.load(5_000)
    scene.leave("b", 6_000)
    scene.join("a", 6_100)
    scene.sync("a", 6_300, a=(0, 1, 2, 3))
    report = scene.reports[-1]
    assert sorted(report.moved) == list(partitions(2, 3))
    assert report.unowned_ms == {
        **dict.fromkeys(partitions(0, 1), 200),
        **dict.fromkeys(partitions(2, 3), 300),
    }


def test_a_group_without_the_journal_reports_nothing() -> None:
    scene = Scene(GroupSettings(initial_rebalance_delay_ms=0))
    scene.stable()
    assert scene.reports == []


def test_a_report_has_the_owners_at_its_end_and_each_change_since_the_one_before() -> None:
    scene = Scene()
    scene.stable()
    first, second = scene.reports
    assert first.owned == {"a": frozenset(partitions(0, 1, 2, 3))}
    assert second.owned == {"a": frozenset(partitions(0, 1)), "b": frozenset(partitions(2, 3))}
    assert second.changes == (
        OwnershipChange(400, "a", False, frozenset(partitions(0, 1, 2, 3))),
        OwnershipChange(500, "a", True, frozenset(partitions(0, 1))),
        OwnershipChange(500, "b", True, frozenset(partitions(2, 3))),
    )
    scene.leave("b", 2_000)
    scene.join("a", 2_100)
    scene.sync("a", 2_200, a=(0, 1, 2, 3))
    assert scene.reports[-1].changes[0] == OwnershipChange(0, "b", False, frozenset(partitions(2, 3)))


def test_a_member_that_has_joined_is_not_waited_for_when_its_request_is_repeated() -> None:
    scene = Scene()
    scene.stable()
    scene.join("b", 2_000, topics=("t", "u"))
    scene.join("b", 9_000, topics=("t", "u"))
    scene.join("a", 9_500)
    scene.sync("a", 9_500, a=(0, 1), b=(2, 3))
    scene.sync("b", 9_500)
    assert scene.reports[-1].waited_for == (("a", 7_500),)
    assert scene.reports[-1].clients == {"a": "", "b": ""}


def test_a_member_whose_session_expires_before_it_joins_was_waited_for_and_not_the_others() -> None:
    scene = Scene()
    scene.stable()
    scene.join("c", 2_000)
    scene.join("a", 2_100)
    scene.expire(11_000)
    scene.sync("a", 11_100, a=(0, 1), c=(2, 3))
    scene.sync("c", 11_100)
    report = scene.reports[-1]
    assert (report.cause.text, report.waited_for) == ("c joined", (("b", 9_000), ("a", 100)))


def test_the_initial_delay_waits_for_no_member() -> None:
    scene = Scene(GroupSettings(initial_rebalance_delay_ms=3_000, traces_rebalances=True))
    scene.join("a", 0)
    scene.join("b", 1_200)
    scene.expire(3_000)
    scene.expire(6_000)
    scene.sync("a", 6_000, a=(0, 1), b=(2, 3))
    scene.sync("b", 6_000)
    report = scene.reports[-1]
    assert (report.join_ms, report.waited_for) == (6_000, ())
