"""The view of a live group's assignment beside other strategies, and of what a change of the group would move.

The address has the whole change, so it can be sent: `?id=GROUP&strategy=…&add_members=1&remove=MEMBER&partitions=T=4`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from odradek.assignors import ASSIGNOR_NAMES
from odradek.clients.admin.descriptions import GroupListing
from odradek.lab.case import Case, LabError
from odradek.lab.live import read_case
from odradek.lab.measures import Comparison, compare
from odradek.lab.notation import topic_and_count
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.views import transition_chart
from odradek.lab.transition_texts import counted, transition_sentence
from odradek.lab.what_if import Change, Transition
from odradek.lab.what_if import what_if as compute
from odradek.page.lists import Listing, listing
from odradek.page.view import Page, PageRequest, View
from odradek.page.views.group_changes import group_id_of
from odradek.page.views.groups import names_of, read_group
from odradek.texts.member_names import MemberNames

_MOST: Final = 10_000
"""Limit of new members, and of new partitions of a topic."""
_MEMBERS: Final = 20


class Wish(Struct, frozen=True, kw_only=True):
    """The change that an address asks for."""

    group_id: str
    strategy: str = ""
    add_members: int = 0
    remove: tuple[str, ...] = ()
    partitions: Mapping[str, int] = {}
    """New partitions by topic."""

    def address(self, **changes: Any) -> str:
        wish = replace(self, **changes)
        fields = {
            "id": wish.group_id,
            "strategy": wish.strategy or None,
            "add_members": wish.add_members or None,
            "remove": wish.remove,
            "partitions": [f"{topic}={count}" for topic, count in wish.partitions.items() if count],
        }
        return "?" + urlencode({name: value for name, value in fields.items() if value}, doseq=True)

    def with_partitions(self, topic: str, more: int) -> str:
        """Return the address with more new partitions of a topic, or fewer."""
        count = min(_MOST, max(0, self.partitions.get(topic, 0) + more))
        return self.address(partitions={**self.partitions, topic: count})

    def toggled(self, member: str) -> str:
        """Return the address with a member removed, or kept again."""
        rest = tuple(each for each in self.remove if each != member)
        return self.address(remove=rest if member in self.remove else (*rest, member))


async def choose(asked: PageRequest) -> Listing[GroupListing]:
    known = await (await asked.admin()).list_groups()
    keys = {"name": lambda each: each.group_id, "state": lambda each: each.group_state}
    return listing(asked, known, keys, text=lambda each: each.group_id, default="name")


async def what_if(asked: PageRequest) -> Mapping[str, Any]:
    """Return a group before and after the change. Raises `LabError` if it has no members, or for a wrong change."""
    wish = _wish(asked)
    case, current = await read_case(await asked.admin(), wish.group_id)
    notice = ""
    if current not in ASSIGNOR_NAMES:  # a name from the cluster is never imported
        notice = f"The group's strategy is {current or 'not known yet'}, which the page cannot run: it shows range."
        current = "range"
    change = Change(
        add_members=(str(wish.add_members),) if wish.add_members else (),
        remove_members=wish.remove,
        add_partitions=tuple(f"{topic}={count}" for topic, count in wish.partitions.items()),
        strategy=wish.strategy or None,
    )
    names = names_of(await read_group(asked, wish.group_id))
    made, comparison, picture = await asyncio.to_thread(_computed, case, current, change, names)
    sentence = f"{transition_sentence(made)}."
    if change != Change():
        stopped, members = len(made.stopping_partitions), len(made.stopping_members)
        sentence += f" {counted(stopped, 'partition')} of {counted(members, 'member')} will pause."
    return {
        "wish": wish,
        "current": current,
        "notice": notice,
        "case": case,
        "members": listing(
            asked,
            case.members,
            {"name": names.text, "partitions": lambda name: len(case.members[name].owned)},
            text=names.text,
            default="name",
            page_rows=_MEMBERS,
        ),
        "made": made,
        "sentence": sentence,
        "comparison": comparison,
        "picture": picture,
        "names": names,
    }


def _computed(case: Case, strategy: str, change: Change, names: MemberNames) -> tuple[Transition, Comparison, Markup]:
    made = compute(case, strategy, change)
    chart = transition_chart(made)
    chart = replace(chart, names=tuple(map(names.text, chart.names)))
    return made, compare(case), Markup(draw(chart, sheet=False))


def _wish(asked: PageRequest) -> Wish:
    """Return the change of the address. Raises `ConfigurationError`."""
    query: Mapping[str, Sequence[str]] = parse_qs(urlsplit(asked.address).query)
    strategy = asked.query.get("strategy", "")
    if strategy and strategy not in ASSIGNOR_NAMES:
        raise LabError(f"there is no strategy {strategy[:40]!r}: the strategies are {', '.join(ASSIGNOR_NAMES)}")
    partitions = dict(map(topic_and_count, query.get("partitions", ())))
    if any(count > _MOST for count in partitions.values()):
        raise LabError(f"a topic gets at most {_MOST:,} partitions here: odradek lab what-if takes more")
    return Wish(
        group_id=group_id_of(asked),
        strategy=strategy,
        add_members=asked.number("add_members", 0, most=_MOST),
        remove=tuple(dict.fromkeys(query.get("remove", ()))),
        partitions=partitions,
    )


VIEW = View(
    title="What-if",
    path="/what-if",
    pages=(
        Page(path="/what-if", template="what_if_groups.html", data=choose),
        Page(path="/group/what-if", template="what_if.html", data=what_if),
    ),
)
