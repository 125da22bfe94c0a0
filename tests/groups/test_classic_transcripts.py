"""Transcripts of a classic group, one file each: requests, and, indented, the replies.

`ODRADEK_REWRITE_TRANSCRIPTS=1` writes what came back into the files; read the difference before you keep it.

A line is `<ms> <who> <what>`. Members: `joins`, `syncs`, `beats`, `commits`, `leaves`, with `key=value` words behind.
The log: `log commits`, `log fails with=…`. Others: `time passes`, `admin removes instance=…`, `coordinator dies`,
`coordinator resigns`. A member remembers its id and generation from the answers, as a client does.
"""

import os
import shlex
from pathlib import Path

import pytest

from odradek.groups import (
    Append,
    ClassicGroup,
    Effect,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeaveRequest,
    LeavingMember,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceStarted,
    SyncReply,
    SyncRequest,
)
from odradek.model import ErrorCode
from odradek.protocol.group_records import GroupMetadataValue

FOLDER = Path(__file__).parent / "transcripts"
PLAYS = sorted(FOLDER.glob("*.txt"))


class Actor:
    """A member as its client knows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1


class Play:
    """A group, its log and its members."""

    def __init__(self) -> None:
        self.settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.group = ClassicGroup("g", self.settings)
        self.actors: dict[str, Actor] = {}
        self.ids = 0
        self.appended: list[Append] = []
        self.log: list[GroupMetadataValue] = []
        self.lines: list[str] = []
        self.shown = self.look()

    def look(self) -> str:
        return f"{self.group.state.shown}, generation {self.group.generation}"

    def line(self, text: str) -> None:
        """Run one line of a transcript and collect the effects."""
        words = shlex.split(text, comments=True)
        if not words:
            return
        if words[0] == "settings":
            self.settings = GroupSettings(**{key: int(value) for key, value in pairs(words[1:]).items()})
            self.group = ClassicGroup("g", self.settings)
            return
        now_ms, who, what, options = int(words[0]), words[1], words[2], pairs(words[3:])
        while (due_ms := self.group.next_deadline_ms) is not None and due_ms <= now_ms:
            self.tell(self.group.expire(due_ms))
        method = {"log": "log", "time": "time", "admin": "admin", "coordinator": "coordinator"}.get(who, "member")
        self.tell(getattr(self, f"{method}_{what}")(who, options, now_ms) or [])
        if self.look() != self.shown:
            self.shown = self.look()
            self.lines.append(f"    ({self.shown})")

    def actor(self, name: str) -> Actor:
        return self.actors.setdefault(name, Actor(name))

    def member_joins(self, name: str, options: dict[str, str], now_ms: int) -> list[Effect]:
        actor = self.actor(name)
        self.ids += 1
        version = int(options.get("version", 9))
        session_timeout_ms = int(options.get("session", 10_000))
        protocols = options.get("protocols", "range:").split(",")
        request = JoinRequest(
            to=actor,
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
        return self.group.join(request, now_ms)

    def member_syncs(self, name: str, options: dict[str, str], now_ms: int) -> list[Effect]:
        actor = self.actor(name)
        given = options.get("gives", "")
        assignments = [pair.split(":") for pair in given.split(",") if pair]
        request = SyncRequest(
            to=actor,
            member_id=options.get("as", actor.member_id),
            generation=int(options.get("generation", actor.generation)),
            instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=tuple((self.actor(who).member_id, what.encode()) for who, what in assignments),
        )
        return self.group.sync(request, now_ms)

    def member_beats(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        generation = int(options.get("generation", actor.generation))
        member_id = options.get("as", actor.member_id)
        error = self.group.heartbeat(member_id, options.get("instance"), generation, now_ms)
        self.lines.append(f"    {name}'s heartbeat: {error.name.upper()}")

    def member_commits(self, name: str, options: dict[str, str], now_ms: int) -> None:
        actor = self.actor(name)
        generation = int(options.get("generation", actor.generation))
        member_id = options.get("as", actor.member_id)
        error = self.group.validate_offset_commit(member_id, options.get("instance"), generation, now_ms)
        self.lines.append(f"    {name}'s commit: {error.name.upper()}")

    def member_leaves(self, name: str, options: dict[str, str], now_ms: int) -> list[Effect]:
        actor = self.actor(name)
        leavers = [LeavingMember(member_id=options.get("as", actor.member_id), instance_id=options.get("instance"))]
        leavers += [
            LeavingMember(member_id=self.actor(other).member_id)
            for other in options.get("with", "").split(",")
            if other
        ]
        return self.group.leave(LeaveRequest(to=actor, members=tuple(leavers)), now_ms)

    def admin_removes(self, _: str, options: dict[str, str], now_ms: int) -> list[Effect]:
        leavers = tuple(
            LeavingMember(member_id="", instance_id=instance) for instance in options["instance"].split(",")
        )
        return self.group.leave(LeaveRequest(to=self.actor("admin"), members=leavers), now_ms)

    def time_passes(self, *_: object) -> None:
        """Nothing but that."""

    def log_commits(self, _: str, options: dict[str, str], now_ms: int) -> None:
        for _ in range(int(options.get("first", len(self.appended)))):
            append = self.appended.pop(0)
            self.log.append(append.metadata)
            self.tell(self.group.committed(append.append_id, now_ms))

    def log_fails(self, _: str, options: dict[str, str], now_ms: int) -> None:
        appended, self.appended = self.appended, []
        for append in appended:
            self.tell(self.group.failed(append.append_id, ErrorCode[options["with"].lower()], now_ms))

    def coordinator_resigns(self, *_: object) -> list[Effect]:
        self.appended.clear()
        return self.group.unload()

    def coordinator_dies(self, _: str, options: dict[str, str], now_ms: int) -> list[Effect]:
        """Kill the coordinator; the next one loads the committed records, or with `survives=all` all appended ones."""
        if options.get("survives") == "all":
            self.log += [append.metadata for append in self.appended]
        self.appended.clear()
        if "max_size" in options:
            self.settings = GroupSettings(max_size=int(options["max_size"]))
        self.group = ClassicGroup("g", self.settings)
        effects: list[Effect] = []
        if self.log:
            self.group, effects = ClassicGroup.load("g", self.log[-1], self.settings, now_ms)
        return effects

    def tell(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.appended.append(effect)
            elif isinstance(effect, JoinReply | SyncReply):
                self.learn(effect)
            self.lines.append(f"    {told(effect)}")

    def learn(self, reply: JoinReply | SyncReply) -> None:
        actor = reply.to
        assert isinstance(actor, Actor)
        if isinstance(reply, SyncReply):
            return
        if reply.error in {ErrorCode.none, ErrorCode.member_id_required}:
            actor.member_id = reply.member_id
        if reply.error is ErrorCode.unknown_member_id:
            actor.member_id = ""
        if reply.error is ErrorCode.none:
            actor.generation = reply.generation


def pairs(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)


def told(effect: Effect) -> str:
    """Return an effect as a line of the transcript."""
    if isinstance(effect, Append):
        metadata = effect.metadata
        members = ", ".join(f"{m.member_id}={m.assignment.decode() or '-'}" for m in metadata.members) or "nobody"
        protocol, leader = metadata.protocol or "no protocol", metadata.leader or "no leader"
        return f"append: generation {metadata.generation}, {protocol}, {leader}: {members}"
    if isinstance(effect, RebalanceStarted):
        return f"rebalance after generation {effect.generation}: {effect.reason}"
    if isinstance(effect, PendingMembersOverdue):
        return f"the round goes on without {', '.join(effect.member_ids)}"
    if isinstance(effect, PendingMemberExpired):
        return f"the pending member {effect.member_id} expires"
    assert isinstance(effect.to, Actor)
    if isinstance(effect, LeaveReply):
        each = ", ".join(
            f"{leaver.member_id or leaver.instance_id or 'nobody'} {error.name.upper()}"
            for leaver, error in effect.members
        )
        return f"{effect.to.name}'s leave: {effect.error.name.upper()} {each}".rstrip()
    if isinstance(effect, SyncReply):
        return f"{effect.to.name}'s sync: {effect.error.name.upper()} {effect.assignment.decode()}".rstrip()
    if effect.error is not ErrorCode.none:
        return f"{effect.to.name}'s join: {effect.error.name.upper()} {effect.member_id}".rstrip()
    leader = f"leader {effect.leader}" + (", assignment kept" if effect.skip_assignment else "")
    members = ", ".join(f"{m.member_id}:{m.metadata.decode()}" for m in effect.members)
    where = f"in generation {effect.generation}, {effect.protocol_name}, {leader}"
    who = f"{effect.to.name}'s join: {effect.member_id} {where}"
    return f"{who}, of {members}" if members else who


def performed(text: str) -> str:
    """Return the transcript with the actual replies."""
    play = Play()
    for line in text.splitlines():
        if not line.startswith("    "):
            play.lines.append(line)
            play.line(line)
    return "\n".join(play.lines) + "\n"


@pytest.mark.parametrize("path", PLAYS, ids=lambda path: path.stem)
def test_a_group_answers_as_its_transcript_says(path: Path) -> None:
    """M6."""
    expected = path.read_text()
    if os.environ.get("ODRADEK_REWRITE_TRANSCRIPTS"):
        path.write_text(performed(expected))
        return
    assert performed(expected) == expected


def test_there_are_transcripts() -> None:
    assert len(PLAYS) >= 10
