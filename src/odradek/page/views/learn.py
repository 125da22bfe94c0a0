"""The view to learn: lessons, and the generations of groups played side by side on the same clicks."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.lessons import LESSONS, SECTIONS, lesson_of
from odradek.lab.pictures.drawing import draw
from odradek.lab.pictures.views import timelines_chart
from odradek.lab.player import Play, Script, Step, parse_script
from odradek.lab.player.script import BROKERS, MOST_MS, MOST_PARTITIONS, Action, Click
from odradek.page.view import Page, PageRequest, View

DEFAULT: Final = "0:join,0:join,5:join,12:die-2,30:end"
_PICTURE_PIXELS: Final = 280
_SHOWN: Final = 5
"""Steps that each generation shows, the present one last."""
_NAMES: Final = {
    Generation.ZOOKEEPER: "Generation 1: in ZooKeeper",
    Generation.EAGER: "Generation 2: eager",
    Generation.COOPERATIVE: "Generation 2: cooperative",
    Generation.CONSUMER: "Generation 3: in brokers",
}


class Lane(Struct, frozen=True, kw_only=True):
    """A generation at the moment."""

    name: str
    strategy: str
    steps: Sequence[Step]
    """The last steps; the present one is the last."""
    shares: Sequence[tuple[str, Sequence[int]]]
    unread: Sequence[int]
    play: Play | None
    """None while it is being made."""
    picture: Markup = Markup()
    """The readers of each partition over time."""


async def lessons(asked: PageRequest) -> Mapping[str, Any]:
    await asked.plays.prepare()
    return {
        "sections": [
            (title, [each for each in LESSONS if each.section == section]) for section, title in SECTIONS.items()
        ],
    }


async def lesson(asked: PageRequest) -> Mapping[str, Any]:
    """Return one lesson, computed. Raises `LabError` for an unknown one."""
    section = asked.path["section"]
    found = lesson_of(int(section) if section.isdecimal() and len(section) < 3 else 0, asked.path["key"])
    number = LESSONS.index(found)
    pictures = [(example.chart(), "") for example in found.placed]
    pictures += [(example.chart(), example.command) for example in found.assigned]
    played = found.played
    return {
        "lesson": found,
        "section": SECTIONS[found.section],
        "pictures": [(Markup(draw(chart, sheet=False)), command) for chart, command in pictures],
        "tables": [tabulated() for tabulated in found.tables],
        "play": "" if played is None else _address(played.script, played.partitions, 0, played.at_ms),
        "previous": LESSONS[number - 1] if number else None,
        "next": LESSONS[number + 1] if number + 1 < len(LESSONS) else None,
    }


async def playing(asked: PageRequest) -> Mapping[str, Any]:
    """Return the plays of the address's script, at its moment. Raises `LabError` for an invalid script."""
    script = parse_script(asked.query.get("script") or DEFAULT)
    partitions = asked.number("partitions", 6, least=1, most=MOST_PARTITIONS)
    seed = asked.number("seed", 0, most=2**31)
    found = await asked.plays.plays(script, partitions=partitions, seed=seed)
    plays = [play for play in found if play is not None]
    is_pending = len(plays) < len(found)
    at_ms = min(asked.number("at", 0, most=MOST_MS), script.end_ms)
    moments = sorted({0, script.end_ms, *(step.at_ms for play in plays for step in play.steps)})
    now = bisect_right(moments, at_ms) - 1

    def at(moment_ms: int, other: Script = script) -> str:
        return _address(str(other), partitions, seed, moment_ms)

    changes = {click.at_ms for click in script.clicks}
    for play in plays:
        for before, after in pairwise(play.steps):
            if (before.owners, before.unread) != (after.owners, after.unread):
                changes.add(after.at_ms)
    later = sorted(each for each in changes if each > at_ms)
    return {
        "script": script,
        "partitions": partitions,
        "seed": seed,
        "at_ms": at_ms,
        "lanes": [_lane(generation, play, at_ms) for generation, play in zip(Generation, found, strict=True)],
        "is_pending": is_pending,  # then there are neither pictures nor a table of costs
        # each click, the address of its moment, and the address of the script without it
        "clicks": [
            (click, at(click.at_ms), at(at_ms, Script(clicks=rest)) if (rest := _without(script, number)) else "")
            for number, click in enumerate(script.clicks)
        ],
        # the clicks that may be added now, with the address of the script that has each
        "added": [
            (click, at(at_ms, added))
            for click in _possible(script, at_ms, partitions)
            if (added := _with(script, click)) is not None
        ],
        "first": at(0) if at_ms else "",
        "previous": at(moments[now - 1]) if now else "",
        "next": at(moments[now + 1]) if now + 1 < len(moments) else "",
        # the next moment in which a click is made, or other partitions are read
        "next_change": at(later[0]) if later else "",
        "last": at(script.end_ms) if at_ms < script.end_ms else "",
    }


def _address(script: str, partitions: int, seed: int, at_ms: int) -> str:
    given = {"script": script, "partitions": partitions, "seed": seed, "at": at_ms}
    return f"/learn/play?{urlencode(given, safe=':,')}"


def _lane(generation: Generation, play: Play | None, at_ms: int) -> Lane:
    if play is None:
        return Lane(name=_NAMES[generation], strategy=generation.key, steps=(), shares=(), unread=(), play=None)
    passed = bisect_right([step.at_ms for step in play.steps], at_ms)
    now = play.steps[passed - 1] if passed else None
    members: dict[str, list[int]] = {}
    for partition, member in sorted((now.owners if now else {}).items()):
        members.setdefault(member, []).append(partition)
    chart = timelines_chart(generation.key, [replace(play.timeline, now_ms=at_ms)])
    simultaneous = sum(step.at_ms == at_ms for step in play.steps[:passed])
    return Lane(
        name=_NAMES[generation],
        strategy=generation.key,
        steps=play.steps[max(0, passed - max(_SHOWN, simultaneous)) : passed],
        shares=sorted(members.items()),
        unread=now.unread if now else tuple(range(play.partitions)),
        play=play,
        picture=Markup(draw(chart, sheet=False, width=_PICTURE_PIXELS)),
    )


def _possible(script: Script, at_ms: int, partitions: int) -> list[Click]:
    """Return the clicks that may make sense at a moment; the script's check decides."""
    grown = max(partitions, *script.grows, 0)
    wanted = [(Action.JOIN, 0)]
    wanted += [
        (each, number) for number in script.present_at(at_ms) for each in (Action.LEAVE, Action.DIE, Action.UPGRADE)
    ]
    wanted += [(each, number) for number in range(BROKERS) for each in (Action.BROKER_DIES, Action.BROKER_BACK)]
    wanted += [(Action.TREE_AWAY, 0), (Action.TREE_BACK, 0), (Action.READER, 0), (Action.GROW, grown + 2)]
    return [Click(at_ms=at_ms, action=action, number=number) for action, number in wanted]


def _with(script: Script, click: Click) -> Script | None:
    """Return the script with one more click, and time to see what it does; None if it would be impossible."""
    clicks = [each for each in script.clicks if each.action is not Action.END]
    end = script.clicks[-1] if script.clicks[-1].action is Action.END else None
    if end is not None and end.at_ms < click.at_ms + 12_000:
        end = Click(at_ms=min(click.at_ms + 12_000, MOST_MS), action=Action.END)
    made = Script(clicks=tuple(sorted([*clicks, click], key=lambda each: each.at_ms)) + ((end,) if end else ()))
    return _checked(made)


def _without(script: Script, number: int) -> tuple[Click, ...]:
    """Return the clicks without one; none if the rest would be impossible."""
    rest = script.clicks[:number] + script.clicks[number + 1 :]
    return rest if rest and _checked(Script(clicks=rest)) else ()


def _checked(script: Script) -> Script | None:
    try:
        return parse_script(str(script))
    except LabError:
        return None


VIEW = View(
    title="Learn",
    path="/learn",
    pages=(
        Page(path="/learn", template="lessons.html", data=lessons),
        Page(path="/learn/play", template="play.html", data=playing),
        Page(path="/learn/{section}/{key}", template="lesson.html", data=lesson),
    ),
)
