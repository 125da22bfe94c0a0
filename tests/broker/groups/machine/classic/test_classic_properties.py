"""Invariants of a classic group under random events."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from odradek.broker.coordinators.machine import Now, Reply
from odradek.broker.groups.machine.classic.classic_group import TRANSITIONS, Event, GroupSettings, State
from odradek.broker.groups.machine.deadline_queue import Deadlines
from odradek.broker.groups.machine.messages import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.rebalance_trace import CauseKind
from odradek.broker.groups.machine.records import GroupMetadataRecord
from odradek.model import ErrorCode
from odradek.protocol.internal_records.group_records import GroupMetadataValue
from tests.broker.groups.machine.machine_log import MachineLog

NAMES = ("a", "b", "c", "d")
Asked = tuple[str, str, int]
"""A client and its request."""


@dataclass
class SimulatedGroup:
    """A group, its log, its clients, and a record of all requests and replies."""

    settings: GroupSettings
    log: MachineLog = field(init=False)
    now_ms: int = 0
    asked: int = 0
    answered: Counter[object] = field(default_factory=Counter)
    ids: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    last: dict[str, Asked] = field(default_factory=dict)
    errors: dict[object, ErrorCode] = field(default_factory=dict)
    told: dict[int, tuple[str, frozenset[str]]] = field(default_factory=dict)
    assigned: dict[tuple[int, str], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = MachineLog(self.settings, self.take)

    def ask(self, name: str, what: str, request: object) -> None:
        self.asked += 1
        to = self.last[name] = (name, what, self.asked)
        self.log.handle("g", request, to, self.now_ms)  # type: ignore[arg-type]

    @property
    def generation(self) -> int:
        group = self.log.group("g")
        return 0 if group is None else group.generation

    def recorded(self) -> list[GroupMetadataValue]:
        """Every committed record of the group."""
        values = [each.value for each in self.log.committed if isinstance(each, GroupMetadataRecord)]
        return [each for each in values if each is not None]

    def take(self, reply: Reply) -> None:
        to, value = reply.to, reply.value
        assert isinstance(to, tuple)
        self.answered[to] += 1
        assert self.answered[to] == 1, "answered twice"
        if isinstance(value, ErrorCode):
            self.errors[to] = value
        elif isinstance(value, JoinReply):
            self.errors[to] = value.error
            self.joined(to[0], value)
        elif isinstance(value, SyncReply):
            self.errors[to] = value.error
            if value.error is ErrorCode.none:
                self.synced(to[0], value)

    def joined(self, name: str, reply: JoinReply) -> None:
        if reply.error is ErrorCode.unknown_member_id:
            self.ids.pop(name, None)
        elif reply.member_id:
            self.ids[name] = reply.member_id
        if reply.error is not ErrorCode.none:
            return
        self.generations[name] = reply.generation
        committed = [record for record in self.recorded() if record.generation == reply.generation]
        assert committed, "a generation was told before it was committed"
        assert any(reply.member_id == member.member_id for record in committed for member in record.members)
        if reply.members and not reply.skip_assignment:
            members = frozenset(member.member_id for member in reply.members)
            assert reply.leader == reply.member_id
            assert self.told.setdefault(reply.generation, (reply.leader, members)) == (reply.leader, members)

    def synced(self, name: str, reply: SyncReply) -> None:
        member_id, generation = self.ids[name], self.generations[name]
        records = [each for each in self.recorded() if each.generation == generation]
        mine = {member.assignment for record in records for member in record.members if member.member_id == member_id}
        assert reply.assignment in mine, "what was told is not what was recorded"
        known = self.assigned.setdefault((generation, member_id), reply.assignment)
        assert known == reply.assignment, "two assignments in one generation"

    def join(self, name: str, metadata: bytes, *, static: bool, old: bool) -> None:
        request = JoinRequest(
            member_id=self.ids.get(name, ""),
            new_member_id=f"{name}-{self.asked}",
            instance_id=name if static else None,
            client_id=name,
            client_host="/",
            session_timeout_ms=1_000,
            rebalance_timeout_ms=3_000,
            protocol_type="consumer",
            protocols=(("range", metadata),),
            requires_member_id=not old,
            can_skip_assignment=not old,
        )
        self.ask(name, "join", request)

    def sync(self, name: str) -> None:
        leads = self.told.get(self.generations.get(name, -1), ("", frozenset()))
        mine = leads[0] == self.ids.get(name)
        given = tuple((member, f"{member}@{self.asked}".encode()) for member in sorted(leads[1])) if mine else ()
        request = SyncRequest(
            member_id=self.ids.get(name, ""), generation=self.generations.get(name, -1), assignments=given
        )
        self.ask(name, "sync", request)

    def leave(self, name: str) -> None:
        leaver = LeavingMember(member_id=self.ids.get(name, "?"))
        self.ask(name, "leave", LeaveRequest(members=(leaver,)))

    def beat(self, name: str, instance_id: str | None = None) -> None:
        request = HeartbeatRequest(
            member_id=self.ids.get(name, ""), instance_id=instance_id, generation=self.generations.get(name, -1)
        )
        self.ask(name, "beat", request)

    def commit(self) -> None:
        if self.log.appended:
            self.log.commit(1)

    def lose(self) -> None:
        """Lose the appended records before they are written."""
        self.log.lose(self.now_ms, ErrorCode.coordinator_not_available)

    def refuse(self, refuses: bool) -> None:
        """Nothing can be appended, or everything again."""
        self.log.refuses = refuses

    def wait(self, how_long_ms: int) -> None:
        self.now_ms += how_long_ms
        self.log.expire(self.now_ms)

    def move(self) -> None:
        """The coordinator resigns and the next one loads what was appended."""
        appended = list(self.log.appended)
        self.log.unload(ErrorCode.not_coordinator)
        assert sum(self.answered.values()) == self.asked, "somebody was forgotten"
        self.log.appended.clear()
        self.log.committed += appended
        self.log.load(self.now_ms)


class Client:
    """A client that joins, syncs, and sends heartbeats until a rebalance starts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.must = "join"

    def act(self, simulated: SimulatedGroup) -> None:
        asked = simulated.last.get(self.name)
        if asked is not None and not simulated.answered[asked]:
            return
        error = simulated.errors.get(asked, ErrorCode.none)
        if error in {ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id}:
            simulated.ids.pop(self.name, None)
        if error is not ErrorCode.none or self.must == "join":
            self.must = "sync"
            simulated.join(self.name, b"x", static=self.name == "d", old=False)
        elif self.must == "sync":
            self.must = "beat"
            simulated.sync(self.name)
        else:
            simulated.beat(self.name, self.name if self.name == "d" else None)


steps = st.one_of(
    st.tuples(st.just("join"), st.sampled_from(NAMES), st.sampled_from((b"x", b"y")), st.booleans()),
    st.tuples(st.just("sync"), st.sampled_from(NAMES)),
    st.tuples(st.just("beat"), st.sampled_from(NAMES)),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("lose")),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from((1, 500, 1_000, 3_000))),
    st.tuples(st.just("move")),
)


@hypothesis.settings(max_examples=80)
@hypothesis.given(st.lists(steps, max_size=80), st.sampled_from((0, 300)), st.sampled_from((2, 100)))
def test_every_request_is_answered_once_and_every_generation_is_announced_once(
    script: list[tuple[object, ...]], delay_ms: int, max_size: int
) -> None:
    """M6. A generation is announced after its commit, with one leader; members get the recorded assignment."""
    simulated = SimulatedGroup(GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size))
    for verb, *rest in script:
        if verb == "join":
            name, metadata, old = rest
            assert isinstance(name, str)
            assert isinstance(metadata, bytes)
            simulated.join(name, metadata, static=name == "d", old=bool(old))
        else:
            getattr(simulated, str(verb))(*rest)
        assert simulated.generation >= max(simulated.told, default=0), "a generation that was told is forgotten"
    simulated.move()


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.lists(steps, max_size=40))
def test_a_group_of_live_members_becomes_stable_after_any_faults(script: list[tuple[object, ...]]) -> None:
    """M6. Once appends commit and clients follow the protocol, all have assignments of one generation."""
    simulated = SimulatedGroup(GroupSettings(initial_rebalance_delay_ms=0))
    for verb, *rest in script:
        if verb == "join":
            simulated.join(str(rest[0]), b"x", static=rest[0] == "d", old=bool(rest[2]))
        else:
            getattr(simulated, str(verb))(*rest)
    simulated.refuse(False)
    clients = {name: Client(name) for name in NAMES}
    for _ in range(40):
        for client in clients.values():
            client.act(simulated)
            simulated.log.commit()
        simulated.wait(300)
    group = simulated.log.group("g")
    assert group is not None
    assert group.state is State.STABLE
    assert {simulated.generations[name] for name in NAMES} == {group.generation}
    assert len(group.members) == len(NAMES)
    assert all(group.assignment(member.member_id) for member in group.members)


def test_every_state_but_dead_has_a_transition_and_every_event_is_used() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)


@hypothesis.given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 3))))
def test_a_deadline_is_due_once_at_the_time_last_set(moves: list[tuple[int, int | None, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    now_ms = 0
    for key, at_ms, step_ms in moves:
        if at_ms is None:
            deadlines.clear(key)
            plain.pop(key, None)
        else:
            deadlines.set(key, at_ms)
            plain[key] = at_ms
        now_ms += step_ms
        due = []
        while (popped := deadlines.pop_due(now_ms)) is not None:
            due.append(popped)
        assert sorted(due) == sorted(key for key, at in plain.items() if at <= now_ms)
        plain = {key: at for key, at in plain.items() if at > now_ms}
        assert all(key in deadlines for key in plain)
        if plain:
            assert deadlines.next_ms is not None
            assert deadlines.next_ms <= min(plain.values())
        else:
            assert deadlines.next_ms is None


# ---- Rebalance timeouts of zero --------------------------------------------------------------------------------------

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


# ---- The table of states ---------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[5] / "docs" / "groups.md"


def test_the_table_of_states_in_the_docs_is_made_from_the_code() -> None:
    expected = [
        f"| {state} | {event.value} | {after} |"
        for state, events in TRANSITIONS.items()
        for event, after in events.items()
    ]
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    start = lines.index("| state | event | next state |") + 2
    assert lines[start : start + len(expected)] == expected
    assert lines[start + len(expected)] == ""


def test_every_state_but_dead_can_be_left_and_every_cause_is_in_the_docs() -> None:
    assert [state for state, events in TRANSITIONS.items() if not events] == [State.DEAD]
    text = DOCS.read_text(encoding="utf-8")
    assert [kind for kind in CauseKind if f"`{kind}`" not in text] == []
