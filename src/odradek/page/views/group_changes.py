"""The changes of groups: offsets reset, with a preview and undo; groups deleted; members removed.

Each is a form that has the group's name typed again. A reset commits the offsets that its preview showed; the session
remembers the offsets before it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import click
from msgspec import Struct

from odradek.clients import Admin, OffsetAndMetadata
from odradek.clients.admin.descriptions import GroupDescription
from odradek.model import ConfigurationError, KafkaError, TopicPartition
from odradek.page.sessions import Session
from odradek.page.view import Action, Done, Page, PageRequest
from odradek.texts.member_names import MemberNames
from odradek.texts.offset_resets import Goal, new_offset, partition_offsets, refusal
from odradek.texts.offset_specs import duration_ms, time_ms

GOALS: Final = {
    "to_earliest": "the first offset",
    "to_latest": "the end",
    "to_offset": "an offset",
    "shift_by": "so many records forward, or back with a minus",
    "to_datetime": "the first record since a time",
    "by_duration": "the first record since that long ago",
}
_MOST_UNDOS: Final = 50
_MOST_LINES: Final = 500
"""Limit of the partitions in the table of a preview."""


class _Undo(Struct, frozen=True, kw_only=True):
    """The committed offsets before a reset; None where there was none."""

    at_ms: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]


_undos: WeakKeyDictionary[Session, dict[str, _Undo]] = WeakKeyDictionary()


def undo_of(session: Session, group_id: str) -> int | None:
    """Return when the session reset the group's offsets, or None."""
    undo = _undos.get(session, {}).get(group_id)
    return None if undo is None else undo.at_ms


class ResetLine(Struct, frozen=True, kw_only=True):
    """A partition in the preview of a reset: how many records are read again, or skipped."""

    partition: TopicPartition
    committed: int | None
    offset: int
    remark: str

    @property
    def again(self) -> int:
        return max((self.committed or 0) - self.offset, 0)

    @property
    def skipped(self) -> int:
        return 0 if self.committed is None else max(self.offset - self.committed, 0)


async def reset_page(asked: PageRequest) -> Mapping[str, Any]:
    """Return the form of a reset, with the preview of what its address asks for."""
    group_id, admin = group_id_of(asked), await asked.admin()
    found = (await admin.describe_groups([group_id]))[group_id]
    refused = refusal(group_id, found)
    if isinstance(found, KafkaError):
        raise found
    lines = await _preview(admin, found, asked) if asked.query.get("to") and refused is None else []
    return {
        "group_id": group_id,
        "address": urlencode({"id": group_id}),
        "topics": sorted({each.topic for each in found.partitions}),
        "goals": GOALS,
        "lines": lines,
        "shown": lines[:_MOST_LINES],
        "refused": "" if refused is None else str(refused),
        # the offsets to commit
        "plan": "\n".join(f"{line.partition.topic},{line.partition.partition},{line.offset}" for line in lines),
    }


async def _preview(admin: Admin, group: GroupDescription, asked: PageRequest) -> list[ResetLine]:
    goal, topic = _goal(asked.query), asked.query.get("topic", "")
    committed = {
        TopicPartition(each.topic, each.partition): each.committed_offset
        for each in group.partitions
        if each.end_offset is not None and topic in ("", each.topic)
    }
    if not committed:
        raise ConfigurationError(f"group {group.group_id} has no committed offsets{f' in {topic}' if topic else ''}")
    lines = []
    for partition, offsets in sorted((await partition_offsets(admin, committed, goal)).items()):
        try:
            offset, remark = new_offset(goal, committed[partition], offsets)
        except ValueError as error:
            raise ConfigurationError(f"{partition} {error}: choose another place") from None
        lines.append(ResetLine(partition=partition, committed=committed[partition], offset=offset, remark=remark))
    return lines


def _goal(query: Mapping[str, str]) -> Goal:
    option, value = query["to"], query.get("value", "").strip()
    if option not in GOALS:
        raise ConfigurationError(f"there is no place {option[:40]!r}: choose one of the list")
    if option in ("to_earliest", "to_latest"):
        return Goal(option)
    if not value:
        raise ConfigurationError(f"{GOALS[option]}: say which, in the field beside")
    try:
        if option == "to_datetime":
            return Goal(option, time_ms(value))
        if option == "by_duration":
            return Goal(option, duration_ms(value))
        return Goal(option, int(value))
    except click.BadParameter as error:
        raise ConfigurationError(error.message) from None
    except ValueError:
        raise ConfigurationError(f"{value[:40]!r} is not a number") from None


async def reset(asked: PageRequest) -> Done:
    group_id, admin = _confirmed(asked), await asked.admin()
    wanted = _planned(asked.form.get("plan", ""))
    before = (await admin.list_group_offsets([group_id]))[group_id]
    if isinstance(before, KafkaError):
        raise before
    await admin.alter_group_offsets(group_id, wanted)
    undos = _undos.setdefault(asked.session, {})
    undos[group_id] = _Undo(
        at_ms=asked.runtime.clock.now_ms(),
        offsets={each: before.get(each) for each in wanted},
    )
    if len(undos) > _MOST_UNDOS:
        del undos[next(iter(undos))]
    return _done(group_id, f"The offsets of {len(wanted):,} partitions are reset; this can be undone.")


def _planned(text: str) -> dict[TopicPartition, int]:
    try:
        lines = [line.rsplit(",", 2) for line in text.split()]
        wanted = {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in lines}
        if not all(0 <= each.partition < 2**31 and 0 <= offset < 2**63 for each, offset in wanted.items()):
            raise ValueError
    except ValueError:
        raise ConfigurationError("the form's offsets are broken: open the preview again") from None
    if not wanted:
        raise ConfigurationError("the form has no offsets: look at the preview first")
    return wanted


async def undo(asked: PageRequest) -> Done:
    """Commit the offsets that the group had before this session's last reset."""
    group_id, admin = group_id_of(asked), await asked.admin()
    kept = _undos.get(asked.session, {}).get(group_id)
    if kept is None:
        raise ConfigurationError(f"this session has not reset the offsets of group {group_id}: nothing to undo")
    had = {partition: offset for partition, offset in kept.offsets.items() if offset is not None}
    if had:
        await admin.alter_group_offsets(group_id, had)
    if new := [partition for partition, offset in kept.offsets.items() if offset is None]:
        await admin.delete_group_offsets(group_id, new)
    del _undos[asked.session][group_id]
    return _done(group_id, f"The reset is undone: {len(kept.offsets):,} partitions have their offsets of before.")


async def name_page(asked: PageRequest) -> Mapping[str, Any]:
    """Return the form that deletes a group or removes a member."""
    group_id = group_id_of(asked)
    member, clients = asked.query.get("member", ""), dict[str, str]()
    if member and isinstance(
        found := (await (await asked.admin()).describe_groups([group_id]))[group_id], GroupDescription
    ):
        clients = {each.member_id: each.client_id for each in found.members}
    name = MemberNames(clients).text(member)
    return {
        "group_id": group_id,
        "address": urlencode({"id": group_id}),
        "member": member,
        "name": name,
    }


async def delete(asked: PageRequest) -> Done:
    group_id = _confirmed(asked)
    await (await asked.admin()).delete_groups([group_id])
    return Done(address="/groups", message=f"Group {group_id} is deleted.")


async def remove(asked: PageRequest) -> Done:
    """Remove a member, a static one by its `group.instance.id`."""
    group_id, admin = _confirmed(asked), await asked.admin()
    member_id = asked.query.get("member", "")
    for member in (await admin.describe_group(group_id)).members:
        if member.member_id == member_id:
            is_static = member.group_instance_id is not None
            await admin.remove_group_members(
                group_id,
                member_ids=[] if is_static else [member_id],
                group_instance_ids=[member.group_instance_id] if member.group_instance_id is not None else [],
            )
            return _done(group_id, f"Member {member_id} is removed; if it still runs, it joins again.")
    raise ConfigurationError(f"group {group_id} has no member {member_id}: it has left already")


def group_id_of(asked: PageRequest) -> str:
    """Return the group of an address. Raises `ConfigurationError` without one."""
    group_id = asked.query.get("id", "")
    if not group_id:
        raise ConfigurationError("the address names no group: it ends in ?id=GROUP")
    return group_id


def _confirmed(asked: PageRequest) -> str:
    """Return the group, if its name was typed again. Raises `ConfigurationError`."""
    group_id = group_id_of(asked)
    if asked.form.get("name", "").strip() != group_id:
        raise ConfigurationError(f"nothing was changed: type the group's name, {group_id}, to confirm")
    return group_id


def _done(group_id: str, message: str) -> Done:
    return Done(address=f"/group?{urlencode({'id': group_id})}", message=message)


PAGES: Final = (
    Page(path="/group/reset", template="group_reset.html", data=reset_page, operator=True),
    Page(path="/group/delete", template="group_name.html", data=name_page, operator=True),
    Page(path="/group/remove", template="group_name.html", data=name_page, operator=True),
)
ACTIONS: Final = (
    Action(path="/group/reset", act=reset),
    Action(path="/group/undo", act=undo),
    Action(path="/group/delete", act=delete),
    Action(path="/group/remove", act=remove),
)
