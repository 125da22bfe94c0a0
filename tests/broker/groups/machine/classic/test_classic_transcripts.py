"""Transcripts of a classic group, one file each: requests, and, indented, the replies.

A line is `<ms> <who> <what>`. Members: `joins`, `syncs`, `beats`, `commits`, `leaves`, with `key=value` words behind.
The log: `log commits`, `log refuses`, `log accepts`, `log loses`. Others: `time passes`, `admin removes
instance=…`, `coordinator dies`, `coordinator resigns`. A member remembers its id and generation from the answers, as a
client does.
"""

import shlex
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordinators.machine import CoordinatorResult, Reply
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceStarted,
    SyncReply,
    SyncRequest,
)
from odradek.broker.groups.machine.records import GroupMetadataRecord, GroupRecord
from odradek.model import ErrorCode
from tests.broker.coordinators.coordinator_transcripts import check_transcript, transcripts
from tests.broker.groups.machine.machine_log import MachineLog


class Actor:
    """A member as its client knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1


class Asked:
    """A request of an actor, as the receiver of its reply."""

    def __init__(self, actor: Actor, what: str) -> None:
        self.actor = actor
        self.what = what


class Play:
    """A group, its log and its members."""

    def __init__(self) -> None:
        self.begin(GroupSettings(initial_rebalance_delay_ms=0))
        self.actors: dict[str, Actor] = {}
        self.ids = 0
        self.lines: list[str] = []
        self.shown = self.look()

    def begin(self, settings: GroupSettings) -> None:
        self.log = MachineLog(settings, self.answered)
        self.log.on_result = self.decided

    def look(self) -> str:
        group = self.log.group("g")
        return "Empty, generation 0" if group is None else f"{group.state}, generation {group.generation}"

    def line(self, text: str) -> None:
        """Run one line of a transcript and collect what follows from it."""
        words = shlex.split(text, comments=True)
        if not words:
            return
        if words[0] == "settings":
            self.begin(GroupSettings(**{key: int(value) for key, value in pairs(words[1:]).items()}))
            return
        now_ms, who, what, options = int(words[0]), words[1], words[2], pairs(words[3:])
        while (due_ms := self.log.machine.next_deadline_ms) is not None and due_ms <= now_ms:
            self.log.expire(due_ms)
        method = {"log": "log", "time": "time", "admin": "admin", "coordinator": "coordinator"}.get(who, "member")
        getattr(self, f"{method}_{what}")(who, options, now_ms)
        if self.look() != self.shown:
            self.shown = self.look()
            self.lines.append(f"    ({self.shown})")

    def ask(self, actor: Actor, what: str, request: Any, now_ms: int) -> None:
        self.log.handle("g", request, Asked(actor, what), now_ms)

    def actor(self, name: str) -> Actor:
        return self.actors.setdefault(name, Actor(name))

    def member_joins(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        self.ids += 1
        version = int(options.get("version", 9))
        session_timeout_ms = int(options.get("session", 10_000))
        protocols = options.get("protocols", "range:").split(",")
        request = JoinRequest(
            member_id=options.get("as", actor.member_id),
            new_member_id=f"{name}-{self.ids}",
            instance_id=options.get("instance"),
            client_id=name,
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple((p.split(":")[0], p.partition(":")[2].encode()) for p in protocols if p),
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
            reason=options.get("because", ""),
        )
        self.ask(actor, "join", request, now_ms)

    def member_syncs(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        given = options.get("gives", "")
        assignments = [pair.split(":") for pair in given.split(",") if pair]
        request = SyncRequest(
            member_id=options.get("as", actor.member_id),
            generation=int(options.get("generation", actor.generation)),
            instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=tuple((self.actor(who).member_id, what.encode()) for who, what in assignments),
        )
        self.ask(actor, "sync", request, now_ms)

    def member_beats(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        request = HeartbeatRequest(
            member_id=options.get("as", actor.member_id),
            instance_id=options.get("instance"),
            generation=int(options.get("generation", actor.generation)),
        )
        self.ask(actor, "heartbeat", request, now_ms)

    def member_commits(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        request = CommitRequest(
            member_id=options.get("as", actor.member_id),
            instance_id=options.get("instance"),
            generation=int(options.get("generation", actor.generation)),
            values={},
        )
        self.ask(actor, "commit", request, now_ms)

    def member_leaves(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        leavers = [LeavingMember(member_id=options.get("as", actor.member_id), instance_id=options.get("instance"))]
        leavers += [
            LeavingMember(member_id=self.actor(other).member_id)
            for other in options.get("with", "").split(",")
            if other
        ]
        self.ask(actor, "leave", LeaveRequest(members=tuple(leavers)), now_ms)

    def admin_removes(self, _: str, options: dict[str, str], now_ms: int) -> None:
        leavers = tuple(
            LeavingMember(member_id="", instance_id=instance) for instance in options["instance"].split(",")
        )
        self.ask(self.actor("admin"), "leave", LeaveRequest(members=leavers), now_ms)

    def time_passes(self, *_: object) -> None:
        """Nothing but that."""

    def log_commits(self, _: str, options: dict[str, str], now_ms: int) -> None:
        self.log.commit(int(options["first"]) if "first" in options else None)

    def log_refuses(self, *_: object) -> None:
        """Nothing can be appended from now on."""
        self.log.refuses = True

    def log_accepts(self, *_: object) -> None:
        self.log.refuses = False

    def log_loses(self, _: str, options: dict[str, str], now_ms: int) -> None:
        """Lose the appended records before they are written."""
        self.log.lose(now_ms, ErrorCode.not_coordinator)

    def coordinator_resigns(self, *_: object) -> None:
        self.log.unload(ErrorCode.not_coordinator)
        self.log.machine.groups.by_id.clear()

    def coordinator_dies(self, _: str, options: dict[str, str], now_ms: int) -> None:
        """Kill the coordinator; the next one loads the committed records, or with `survives=all` all appended ones."""
        log = MachineLog(self.log.settings, self.answered)
        log.on_result = self.decided
        log.committed = self.log.committed
        if options.get("survives") == "all":
            log.committed += self.log.appended
        if "max_size" in options:
            log.settings = GroupSettings(max_size=int(options["max_size"]))
        self.log = log
        log.load(now_ms)

    def decided(self, result: CoordinatorResult[GroupRecord]) -> None:
        for event in result.events:
            self.lines.append(f"    {told_event(event)}")
        for record in result.records:
            self.lines.append(f"    {told_record(record)}")

    def answered(self, reply: Reply) -> None:
        asked = reply.to
        assert isinstance(asked, Asked)
        if isinstance(reply.value, JoinReply):
            self.learn(asked.actor, reply.value)
        self.lines.append(f"    {asked.actor.name}'s {asked.what}: {told(reply.value)}".rstrip())

    def learn(self, actor: Actor, reply: JoinReply) -> None:
        if reply.error in {ErrorCode.none, ErrorCode.member_id_required}:
            actor.member_id = reply.member_id
        if reply.error is ErrorCode.unknown_member_id:
            actor.member_id = ""
        if reply.error is ErrorCode.none:
            actor.generation = reply.generation


def pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def told_record(record: GroupRecord) -> str:
    """Return a record as a line of the transcript."""
    assert isinstance(record, GroupMetadataRecord)
    value = record.value
    assert value is not None
    members = ", ".join(f"{m.member_id}={m.assignment.decode() or '-'}" for m in value.members) or "nobody"
    protocol, leader = value.protocol or "no protocol", value.leader or "no leader"
    return f"append: generation {value.generation}, {protocol}, {leader}: {members}"


def told_event(event: object) -> str:
    """Return an event as a line of the transcript."""
    if isinstance(event, RebalanceStarted):
        return f"rebalance after generation {event.generation}: {event.reason}"
    if isinstance(event, PendingMembersOverdue):
        return f"the rebalance continues without {', '.join(event.member_ids)}"
    assert isinstance(event, PendingMemberExpired)
    return f"the pending member {event.member_id} expires"


def told(value: object) -> str:
    """Return a reply as words of the transcript."""
    if isinstance(value, ErrorCode):
        return value.name.upper()
    if isinstance(value, SyncReply):
        return f"{value.error.name.upper()} {value.assignment.decode()}"
    if isinstance(value, tuple):
        return ", ".join(
            f"{leaver.member_id or leaver.instance_id or 'nobody'} {error.name.upper()}" for leaver, error in value
        )
    assert isinstance(value, JoinReply)
    if value.error is not ErrorCode.none:
        return f"{value.error.name.upper()} {value.member_id}"
    leader = f"leader {value.leader}" + (", assignment kept" if value.skip_assignment else "")
    members = ", ".join(f"{m.member_id}:{m.metadata.decode()}" for m in value.members)
    where = f"in generation {value.generation}, {value.protocol_name}, {leader}"
    return f"{value.member_id} {where}" + (f", of {members}" if members else "")


@pytest.mark.parametrize("path", transcripts(__file__), ids=lambda path: path.stem)
def test_a_group_answers_as_its_transcript_says(path: Path) -> None:
    """M6."""
    check_transcript(path, Play)
