"""The view of groups: a list, and each group's members, lag and rebalances, which it shows as they go.

A rebalance that goes on and the past of the lag are seen by looking while a page is open: a session remembers what it
saw of its groups. Of a rebalance that has ended, all figures come from the rebalance journal, which Odradek's brokers
write; only without a journal does the page show what it has measured.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription, GroupListing
from odradek.clients.admin.group_waits import GroupWaits
from odradek.lab.case import LabError
from odradek.lab.group_watch import GroupWatch, is_moving
from odradek.lab.pictures.charts import Chart
from odradek.lab.pictures.drawing import draw, sparkline
from odradek.lab.pictures.views import holdings_chart, timelines_chart
from odradek.lab.replay import replay
from odradek.lab.timeline import Timeline
from odradek.model import KafkaError, OdradekError
from odradek.page.lists import listing
from odradek.page.overview import read_groups
from odradek.page.readings import pause_s
from odradek.page.sessions import Session
from odradek.page.view import Page, PageRequest, View
from odradek.page.views.group_changes import ACTIONS, PAGES, group_id_of, undo_of
from odradek.texts.group_texts import (
    WAITING_STATES,
    assignment_text,
    rebalance_sentence,
    rows,
    slowest,
    suspects,
    waited_for,
)
from odradek.texts.member_names import MemberNames

_MOST_WATCHES: Final = 50
"""Limit of the groups that a session remembers."""
_INTERVAL_S: Final = 0.5
_MOST_TRIES: Final = 10
"""Looks after a rebalance in which its record may come into the journal, which is written about a second later."""
_TRIES_AFTER: Final = 4
"""Looks after the first one, or after a record has come, at the end of which a newer record may have come."""
_MEMBERS: Final = 40
_HISTORY: Final = 20
_MOST_WAITING: Final = 100
"""Limit of the members in the table of those that wait."""

_Record = Mapping[str, Any]
_watches: WeakKeyDictionary[Session, dict[str, "_Watched"]] = WeakKeyDictionary()


class _Watched:
    """A group as a session has seen it, with the last rebalance of the journal."""

    def __init__(self) -> None:
        self.watch = GroupWatch()
        self.newest: _Record | None = None
        """The newest record of the journal."""
        self.before: _Record | None = None
        """The newest record before the rebalance that was seen."""
        self.ended_ms: int | None = None
        """The end of the rebalance whose record is looked for."""
        self.tries = 0
        """The number of looks in which the journal may be read again."""
        self.picture = Markup()
        self.drawn: Timeline | None = None

    @property
    def last(self) -> "_Record | None":
        """The record of the last rebalance; None while one goes on, and until the one that was seen has its record."""
        is_there = self.watch.rebalance is None or self.newest != self.before
        return self.newest if is_there and not self.watch.goes_on else None


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group in the list; it is not described if it cannot be, or if the page does not show it."""

    listed: GroupListing
    group: GroupDescription | None = None

    @property
    def lag(self) -> int | None:
        return None if self.group is None else self.group.lag


async def groups(asked: PageRequest) -> Mapping[str, Any]:
    """Return the groups that the address asks for; only those of its page are described, unless sorted by lag."""
    known, silent = await _listed(asked)
    kind, state = asked.query.get("type", ""), asked.query.get("state", "")
    found = [
        GroupRow(listed=each) for each in known if kind in ("", each.group_type) and state in ("", each.group_state)
    ]
    if asked.query.get("sort", "").removeprefix("-") in ("lag", "members"):
        found = await _described(asked, found)
    shown = listing(
        asked,
        found,
        {
            "name": lambda row: row.listed.group_id,
            "type": lambda row: row.listed.group_type,
            "state": lambda row: row.listed.group_state,
            "lag": lambda row: row.lag,
            "members": lambda row: None if row.group is None else len(row.group.members),
        },
        text=lambda row: row.listed.group_id,
        default="name",
    )
    if all(row.group is None for row in shown.rows):
        shown = replace(shown, rows=await _described(asked, shown.rows))
    return {
        "groups": shown,
        "known": len(known),
        "silent": silent,
        "types": sorted({each.group_type for each in known if each.group_type}),
        "states": sorted({each.group_state for each in known if each.group_state}),
    }


async def _listed(asked: PageRequest) -> tuple[Sequence[GroupListing], Sequence[int]]:
    """Return the groups of all brokers that answer in time, and the brokers that do not."""
    known = await asked.known("groups", Admin.list_groups)
    if known is not None:
        return known, ()
    cluster = await asked.latest("brokers", Admin.describe_cluster)
    alive = [each.broker_id for each in cluster.brokers if not each.is_fenced]
    answers = await asyncio.gather(
        *(asked.known(("groups", each), partial(Admin.list_groups, broker_ids=[each])) for each in alive)
    )
    if all(each is None for each in answers):
        return await asked.reading("groups", Admin.list_groups), ()
    by_id = {group.group_id: group for some in answers for group in some or ()}
    return list(by_id.values()), [each for each, some in zip(alive, answers, strict=True) if some is None]


async def _described(asked: PageRequest, rows: Sequence[GroupRow]) -> list[GroupRow]:
    group_ids = [row.listed.group_id for row in rows]
    described = await asked.known(("groups", *group_ids), partial(read_groups, group_ids=group_ids))
    by_id = {each.group_id: each for each in described or ()}
    return [replace(row, group=by_id.get(row.listed.group_id)) for row in rows]


# ---- one group ------------------------------------------------------------------------------------------------------


class TopicLag(Struct, frozen=True, kw_only=True):
    """The lag of a topic; `change` is since the first look."""

    topic: str
    partitions: int
    lag: int | None
    change: int | None
    line: Markup


async def named_group(asked: PageRequest) -> Response:
    """Lead from `/groups/NAME` to the group's page."""
    return RedirectResponse(f"/group?{urlencode({'id': asked.path['name']})}" if asked.path["name"] else "/groups")


async def group(asked: PageRequest) -> Mapping[str, Any]:
    admin, group_id = await asked.admin(), group_id_of(asked)
    watched = _watched(asked.session, group_id)
    if watched.watch.has_gap(asked.runtime.clock.now_ms()):
        watched.newest, watched.ended_ms, watched.tries = await _newest(asked, group_id), None, _TRIES_AFTER
    described = await read_group(asked, group_id)
    now_ms = asked.runtime.clock.now_ms()
    watched.watch.look(described, now_ms)
    waits = await admin.group_waits(group_id) if is_moving(described) and described.epoch is not None else None
    await _follow_journal(asked, group_id, watched)
    return _group_page(asked, watched, described, waits, now_ms)


async def group_updates(asked: PageRequest) -> AsyncIterator[Any]:
    """Look at the group twice a second, or less often if a look takes long; yield the error of a look that fails."""
    clock = asked.runtime.clock
    while True:
        began_s = clock.monotonic()
        try:
            yield await group(asked)
        except OdradekError as error:
            yield error
        await asyncio.sleep(pause_s(_INTERVAL_S, clock.monotonic() - began_s))


async def read_group(asked: PageRequest, group_id: str) -> GroupDescription:
    """Return a group, at most half a second old."""
    interval_s = min(_INTERVAL_S, asked.settings.interval_s)
    return await asked.reading(("group", group_id), lambda admin: admin.describe_group(group_id), interval_s)


def _watched(session: Session, group_id: str) -> _Watched:
    watches = _watches.setdefault(session, {})
    watched = watches.pop(group_id, None) or _Watched()
    watches[group_id] = watched
    if len(watches) > _MOST_WATCHES:
        del watches[next(iter(watches))]
    return watched


async def _follow_journal(asked: PageRequest, group_id: str, watched: _Watched) -> None:
    """After a rebalance, read the journal until its record is there, and then until it may have no successor."""
    seen = watched.watch.rebalance
    ended_ms = None if seen is None else seen.to_ms
    if ended_ms is not None and ended_ms != watched.ended_ms:
        watched.ended_ms, watched.before, watched.tries = ended_ms, watched.newest, _MOST_TRIES
    if watched.watch.goes_on or not watched.tries:
        return
    watched.tries -= 1
    if watched.last is None or not watched.tries:
        watched.newest = await _newest(asked, group_id) or watched.newest
        if watched.last is not None:
            watched.tries = min(watched.tries, _TRIES_AFTER)


async def _newest(asked: PageRequest, group_id: str) -> _Record | None:
    found = await asked.known(("journal", group_id), lambda admin: admin.rebalance_history(group_id, limit=1), 0.0)
    return found[0] if found else None


def names_of(group: GroupDescription | KafkaError, *records: _Record) -> MemberNames:
    """Return the names of a group's members, and of those that have left in rebalances of the journal."""
    members = () if isinstance(group, KafkaError) else group.members
    left = {member_id: client for each in records for member_id, client in each.get("clients", {}).items()}
    return MemberNames(left | {each.member_id: each.client_id for each in members})


def _group_page(
    asked: PageRequest, watched: _Watched, described: GroupDescription, waits: GroupWaits | None, now_ms: int
) -> Mapping[str, Any]:
    watch, seen, last = watched.watch, watched.watch.rebalance, watched.last
    names = names_of(described, *([] if last is None else [last]))
    outcome, timeline = "", None
    if last is not None:
        with contextlib.suppress(LabError):  # the record names no owners
            timeline = _replay(described.group_id, [last])
    elif seen is not None:
        timeline = watch.timeline(described.group_id)
        if seen.to_ms is not None:
            outcome = seen.sentence(timeline.unowned_partition_ms)
    if watched.drawn != timeline:
        watched.drawn = timeline
        title = "Who reads which partition; red: nobody"
        watched.picture = Markup() if timeline is None else _picture(timelines_chart(title, [_named(timeline, names)]))
    first = watch.lags[0]
    partitions = listing(
        asked,
        described.partitions,
        {"name": lambda p: (p.topic, p.partition), "lag": lambda p: p.lag, "member": lambda p: p.member_id},
        text=lambda p: f"{p.topic}-{p.partition}",
        default="name",
    )
    return {
        "group": described,
        "address": urlencode({"id": described.group_id}),
        "kind": "classic" if described.epoch is None else "consumer",
        # sentences on the wait of the group
        "lines": [names.text(line) for line in _lines(described, waits)],
        "waiting": [] if waits is None else _waiting(waits, now_ms),
        "names": names,
        "seen": seen,
        "goes_on": watch.goes_on,
        "outcome": outcome,
        "picture": watched.picture,
        "last": "" if last is None else names.text(rebalance_sentence(last)),
        # the partitions that nobody reads
        "unread": assignment_text((p.topic, p.partition) for p in described.partitions if p.member_id is None),
        "topics": _topics(described, watch),
        "since_ms": first.at_ms,
        "partitions": partitions,
        "changes": {
            (p.topic, p.partition): p.lag - first.partitions[p.topic, p.partition]  # type: ignore[index]
            for p in partitions.rows
            if p.lag is not None and (p.topic, p.partition) in first.partitions
        },
        "undo_ms": undo_of(asked.session, described.group_id),
    }


def _replay(group_id: str, records: Sequence[_Record]) -> Timeline:
    """Return the owners in rebalances of the journal, with its figures. Raises `LabError` if it names no owners."""
    return replace(replay(group_id, records), measured_ms=sum(each["unowned_partition_ms"] for each in records))


def _lines(described: GroupDescription, waits: GroupWaits | None) -> list[str]:
    if waits is None:
        state = WAITING_STATES.get(described.group_state)
        return [] if state is None else [f"The group {state}.", *suspects(described)]
    behind = sum(member.epoch != waits.assignment_epoch for member in waits.members)
    revoking = sum(bool(member.revokes) for member in waits.members)
    waiting = sum(bool(member.waits_for) for member in waits.members)
    text = (
        f"Members that have not reached epoch {waits.assignment_epoch}: {behind:,} of {len(waits.members):,}. "
        f"Members that have to give up partitions: {revoking:,}; that wait for partitions: {waiting:,}."
    )
    return [text, *([f"Times are unknown: {waits.unreadable}"] if waits.unreadable else [])]


def _waiting(waits: GroupWaits, now_ms: int) -> list[tuple[object, ...]]:
    """Return the rows of members that revoke, wait, or have not sent the heartbeat that they need."""
    found: list[tuple[object, ...]] = []
    for member in waits.members:
        found += [row for row in rows(waits, member, now_ms) if row[3] is not None]
        if len(found) >= _MOST_WAITING:
            break
    return found[:_MOST_WAITING]


def _topics(described: GroupDescription, watch: GroupWatch) -> list[TopicLag]:
    lags: dict[str, list[int | None]] = {}
    for each in described.partitions:
        lags.setdefault(each.topic, []).append(each.lag)
    found = []
    for topic, some in sorted(lags.items()):
        known = [lag for lag in some if lag is not None]
        past = [sample.topics[topic] for sample in watch.lags if topic in sample.topics]
        lag = sum(known) if known else None
        line = Markup(sparkline([*past, lag])) if lag is not None and past else Markup()
        change = lag - past[0] if lag is not None and past else None
        found.append(TopicLag(topic=topic, partitions=len(some), lag=lag, change=change, line=line))
    return sorted(found, key=lambda each: (-(each.lag or 0), each.topic))


def _picture(chart: Chart) -> Markup:
    return Markup(draw(chart, sheet=False))


def _named(timeline: Timeline, names: MemberNames) -> Timeline:
    """Return a timeline with the names of members in place of their ids."""
    spans = tuple(replace(each, member=each.member and names.text(each.member)) for each in timeline.spans)
    return replace(timeline, spans=spans, marks=tuple(replace(m, text=names.text(m.text)) for m in timeline.marks))


# ---- members and history --------------------------------------------------------------------------------------------


async def members(asked: PageRequest) -> Mapping[str, Any]:
    described = await read_group(asked, group_id_of(asked))
    names = names_of(described)
    lags: dict[str, int] = {}
    for each in described.partitions:
        if each.member_id is not None and each.lag is not None:
            lags[each.member_id] = lags.get(each.member_id, 0) + each.lag
    shown = listing(
        asked,
        described.members,
        {
            "name": lambda m: names.text(m.member_id),
            "host": lambda m: m.client_host,
            "partitions": lambda m: len(m.assignment),
            "lag": lambda m: lags.get(m.member_id),
        },
        text=lambda m: f"{m.member_id} {m.client_id} {m.client_host}",
        default="name",
        page_rows=_MEMBERS,
    )
    holdings = {names.text(m.member_id): m.assignment for m in shown.rows}
    return {
        "group": described,
        "names": names,
        "members": shown,
        "address": urlencode({"id": described.group_id}),
        "picture": _picture(holdings_chart("What these members hold", holdings)) if holdings else Markup(),
        "texts": {m.member_id: assignment_text(m.assignment) for m in shown.rows},
        "lags": lags,
    }


async def history(asked: PageRequest) -> Mapping[str, Any]:
    """Return the last rebalances of the journal, with their picture."""
    admin, group_id = await asked.admin(), group_id_of(asked)
    found = await admin.rebalance_history(group_id, limit=asked.number("limit", _HISTORY, least=1, most=200))
    names = names_of((await admin.describe_groups([group_id]))[group_id], *found)
    picture, missing = Markup(), ""
    if found:
        try:
            picture = _picture(timelines_chart("The last rebalances", [_named(_replay(group_id, found), names)]))
        except LabError as error:
            missing = str(error)
    return {
        "group_id": group_id,
        "address": urlencode({"id": group_id}),
        "rebalances": found[::-1],
        "waited": [names.text(waited_for(each) or slowest(each.get("revocations", {})) or "–") for each in found[::-1]],
        "names": names,
        "picture": picture,
        "missing": missing,
    }


VIEW = View(
    title="Groups",
    path="/groups",
    pages=(
        Page(path="/groups", template="groups.html", data=groups, live=("list",), interval_s=2.0),
        Page(path="/groups/{name:path}", template="problem.html", data=named_group),
        Page(path="/group", template="group.html", data=group, live=("now", "lag"), updates=group_updates),
        Page(path="/group/members", template="group_members.html", data=members, live=("members",), interval_s=2.0),
        Page(path="/group/history", template="group_history.html", data=history),
        *PAGES,
    ),
    actions=ACTIONS,
)
