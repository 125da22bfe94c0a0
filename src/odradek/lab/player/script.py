"""The script of a play: what happens to a group and its cluster, and when.

```
0:join,0:join,12:die-2,20:broker-1,30:zookeeper-away,45:end     seconds : click, in the order of time

join             the next member starts: member-1, member-2, …
leave-2, die-2   member 2 leaves; falls silent without leaving
broker-1         broker 1 of three dies                     broker-1-back     it starts again
zookeeper-away   nobody reaches the tree any more           zookeeper-back    all reach it again
reader           a consumer without a group starts to read partition 0
grow-8           the topic gets partitions until it has 8
upgrade-1        member 1 closes, and starts again with the protocol of generation 3
failover-3       the coordinator dies in phase 3 of `PHASES`, as soon as a rebalance gets there
end              the end of the play; without it, 12 s after the last click
```

`failover-3` alone is the script in which a third member joins, the coordinator dies in phase 3, and the members commit.
"""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from odradek.lab.case import LabError

BROKERS: Final = 3
MOST_MEMBERS: Final = 8
MOST_PARTITIONS: Final = 12
MOST_CLICKS: Final = 20
MOST_MS: Final = 120_000
_TAIL_MS: Final = 12_000
_CLICK: Final = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,3}))?:([a-z-]+?)(?:-([0-9]{1,3}))?(-back)?")
_FAILOVER: Final = re.compile("failover-[1-5]")
_FORM: Final = "write SECONDS:CLICK, such as 12.5:die-2, or failover-1 to failover-5 alone"


class Action(StrEnum):
    """The kinds of clicks."""

    JOIN = "join"
    LEAVE = "leave"
    DIE = "die"
    BROKER_DIES = "broker"
    BROKER_BACK = "broker-back"
    TREE_AWAY = "zookeeper-away"
    TREE_BACK = "zookeeper-back"
    FAILOVER = "failover"
    READER = "reader"
    GROW = "grow"
    UPGRADE = "upgrade"
    END = "end"


PHASES: Final = {
    1: "after it noticed a change and before it acted",
    2: "after it told one member, and not the others",
    3: "with part of the joins in",
    4: "after it recorded the assignment, before any answer",
    5: "after it answered one member",
}
"""The five phases of a coordinator's failover (SPEC 6)."""
_NUMBERED: Final = (
    Action.LEAVE, Action.DIE, Action.BROKER_DIES, Action.BROKER_BACK, Action.FAILOVER, Action.GROW, Action.UPGRADE,
)  # fmt: skip


_TEXTS: Final = {
    Action.JOIN: "a member joins",
    Action.LEAVE: "member-{} leaves",
    Action.DIE: "member-{} dies",
    Action.BROKER_DIES: "broker-{} dies",
    Action.BROKER_BACK: "broker-{} comes back",
    Action.TREE_AWAY: "ZooKeeper goes away",
    Action.TREE_BACK: "ZooKeeper comes back",
    Action.FAILOVER: "the coordinator dies in phase {}",
    Action.READER: "a reader without a group starts",
    Action.GROW: "the topic grows to {} partitions",
    Action.UPGRADE: "member-{} starts again with generation 3",
    Action.END: "the end",
}


class Click(Struct, frozen=True, kw_only=True):
    """One click; `number` is of the member, the broker or the phase, and 0 where there is none."""

    at_ms: int
    action: Action
    number: int = 0

    def __str__(self) -> str:
        """Return the click in the script's notation."""
        name = str(self.action)
        if self.action is Action.BROKER_BACK:
            name = f"broker-{self.number}-back"
        elif self.action in _NUMBERED:
            name = f"{self.action}-{self.number}"
        return f"{self.at_ms / 1000:g}:{name}"

    @property
    def text(self) -> str:
        return _TEXTS[self.action].format(self.number)


class Script(Struct, frozen=True, kw_only=True):
    """The clicks by time. In one with a name, the members read and commit, and the group is checked at the end."""

    clicks: tuple[Click, ...]
    name: str = ""

    def __str__(self) -> str:
        return self.name or ",".join(map(str, self.clicks))

    @property
    def end_ms(self) -> int:
        """The end of the play."""
        last = self.clicks[-1]
        return last.at_ms if last.action is Action.END else min(last.at_ms + _TAIL_MS, MOST_MS)

    @property
    def has_reader(self) -> bool:
        """Whether a consumer without a group starts."""
        return any(click.action is Action.READER for click in self.clicks)

    @property
    def grows(self) -> tuple[int, ...]:
        """The numbers of partitions that the topic grows to."""
        return tuple(click.number for click in self.clicks if click.action is Action.GROW)

    @property
    def members(self) -> int:
        """The number of members that join."""
        return sum(click.action is Action.JOIN for click in self.clicks)

    def present_at(self, at_ms: int) -> tuple[int, ...]:
        """Return the numbers of the members that have joined and neither left nor died."""
        passed = [click for click in self.clicks if click.at_ms <= at_ms]
        joined = sum(click.action is Action.JOIN for click in passed)
        gone = {click.number for click in passed if click.action in (Action.LEAVE, Action.DIE)}
        return tuple(number for number in range(1, joined + 1) if number not in gone)


def parse_script(text: str) -> Script:
    """Parse a script. Raises `LabError` for what it does not understand, and for what cannot happen."""
    name = text.strip() if _FAILOVER.fullmatch(text.strip()) else ""
    if name:
        text = f"0:join,0:join,4:{name},5:join,20:end"
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise LabError(f"the script is empty: {_FORM}")
    if len(parts) > MOST_CLICKS:
        raise LabError(f"the script has {len(parts)} clicks: use at most {MOST_CLICKS}")
    clicks = tuple(sorted(map(_click, parts), key=lambda click: click.at_ms))
    script = Script(clicks=clicks, name=name)
    _check(script)
    return script


def _click(text: str) -> Click:
    found = _CLICK.fullmatch(text)
    if found is None:
        raise LabError(f"{text!r} is not a click: {_FORM}")
    seconds, fraction, name, number, back = found.groups()
    at_ms = int(seconds) * 1000 + int((fraction or "0").ljust(3, "0"))
    if at_ms > MOST_MS:
        raise LabError(f"{text!r} is too late: a play lasts at most {MOST_MS // 1000} s")
    name += back or ""
    action = next((each for each in Action if each == name), None)
    if action is None or (action in _NUMBERED) != (number is not None):
        known = ", ".join(f"{each}-N" if each in _NUMBERED else each for each in Action if each != Action.BROKER_BACK)
        raise LabError(f"{text!r} is not a click: there are {known}, and broker-N-back")
    return Click(at_ms=at_ms, action=action, number=int(number or 0))


def _check(script: Script) -> None:
    """Raise `LabError` if a click cannot happen when it is its turn."""
    members: set[int] = set()
    joined, dead, tree_away, reads, ended, grown = 0, set[int](), False, False, False, 1
    for click in script.clicks:
        number, action = click.number, click.action
        if ended:
            raise LabError(f"{click} comes after the end: give end the latest time")
        if action is Action.JOIN:
            joined += 1
            members.add(joined)
            _require(joined <= MOST_MEMBERS, click, f"a group has at most {MOST_MEMBERS} members here")
        elif action in (Action.LEAVE, Action.DIE, Action.UPGRADE):
            _require(number in members, click, f"then the members are {sorted(members) or 'none'}")
            if action is not Action.UPGRADE:
                members.discard(number)
        elif action is Action.GROW:
            _require(
                grown < number <= MOST_PARTITIONS, click, f"then it has {grown} or more, {MOST_PARTITIONS} at most"
            )
            grown = number
        elif action is Action.BROKER_DIES:
            _require(number < BROKERS and number not in dead, click, "brokers 0 to 2 die once, until they are back")
            dead.add(number)
            _require(len(dead) < BROKERS, click, "one broker has to live")
        elif action is Action.BROKER_BACK:
            _require(number in dead, click, f"then the dead brokers are {sorted(dead) or 'none'}")
            dead.discard(number)
        elif action is Action.FAILOVER:
            _require(1 <= number <= 5, click, "the phases are 1 to 5")
            _require(not dead, click, "all brokers have to live, since it is not known which one dies")
        elif action in (Action.TREE_AWAY, Action.TREE_BACK):
            _require(tree_away == (action is Action.TREE_BACK), click, "ZooKeeper goes away, and then comes back")
            tree_away = not tree_away
        elif action is Action.READER:
            _require(not reads, click, "there is one reader without a group")
            reads = True
        ended = action is Action.END
    _require(script.clicks[-1].at_ms > 0 or not ended, script.clicks[-1], "a play takes time")


def _require(condition: object, click: Click, reason: str) -> None:
    if not condition:
        raise LabError(f"{click} is impossible: {reason}")
