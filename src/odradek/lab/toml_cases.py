"""Parses a case from a TOML file.

```toml
strategy = "range"                        # optional

[topics]
t = 12
u = { partitions = 3, racks = ["a+b", "c"] }

[members]                                 # or members = 5
c0 = ["t", "u"]
c1 = { topics = ["t"], rack = "a", owned = "t:0-3,7", instance_id = "i1", generation = 4, threads = 2 }
```
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.lab.case import Case, LabError, Member
from odradek.lab.notation import case_of_texts, partitions_of_text
from odradek.model import OdradekError

_TOP: Final = ("strategy", "topics", "members")
_TOPIC: Final = ("partitions", "racks")
_MEMBER: Final = ("topics", "rack", "owned", "instance_id", "generation", "threads")
_TYPES: Final = {"rack": str, "owned": str, "instance_id": str, "generation": int, "threads": int}


class _KeyError(Exception):
    """An invalid key of the file: `path` has the names of its tables and its own."""

    def __init__(self, path: Sequence[str], message: str) -> None:
        self.path = path
        super().__init__(message)


def parse_case(text: str, name: str) -> tuple[Case, str | None]:
    """Return the case of a file's text, and its strategy, if any. Raises `LabError`, which begins with NAME[:LINE]."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{name}: not TOML: {error}") from None
    try:
        return _case(values)
    except _KeyError as error:
        raise LabError(f"{name}:{_line(text, error.path)}: {error}") from None
    except OdradekError as error:
        named = re.search(r"^member (\S+) |the replicas of the topic (\S+),|^topic (\S+) ", str(error))
        path = [each for each in named.groups() if each] if named else []
        where = f"{name}:{_line(text, path)}" if path else name
        raise LabError(f"{where}: {error}") from None


def _case(values: Mapping[str, Any]) -> tuple[Case, str | None]:
    _check_keys(values, _TOP, [])
    strategy = values.get("strategy")
    if not isinstance(strategy, str | None):
        raise _KeyError(["strategy"], f"strategy is {strategy!r}: give the name of one")
    topics, racks = {}, []
    for topic, value in _table(values, "topics").items():
        entry = value if isinstance(value, Mapping) else {"partitions": value}
        _check_keys(entry, _TOPIC, ["topics", topic])
        count = entry.get("partitions")
        if not isinstance(count, int) or isinstance(count, bool):
            raise _KeyError(["topics", topic], f"topic {topic} has no number of partitions: write {topic} = 12")
        topics[topic] = count
        if "racks" in entry:
            racks.append(f"{topic}={','.join(_texts(entry['racks'], ['topics', topic, 'racks']))}")
    members = values.get("members", {})
    if isinstance(members, int) and not isinstance(members, bool):
        base = Case(topics=topics, members={})
        return case_of_texts(topics=[], members=[str(members)], replica_racks=racks, base=base), strategy
    every = tuple(sorted(topics))
    made = {member: _member(member, value, every) for member, value in _table(values, "members").items()}
    return case_of_texts(topics=[], members=[], replica_racks=racks, base=Case(topics=topics, members=made)), strategy


def _member(name: str, value: Any, every: tuple[str, ...]) -> Member:
    entry = value if isinstance(value, Mapping) else {"topics": value}
    path = ["members", name]
    _check_keys(entry, _MEMBER, path)
    for key, kind in _TYPES.items():
        if key in entry and type(entry[key]) is not kind:
            wanted = "a text" if kind is str else "a number"
            raise _KeyError([*path, key], f"{key} of member {name} is {entry[key]!r}: give {wanted}")
    try:
        owned = partitions_of_text(entry.get("owned", ""))
    except LabError as error:
        raise _KeyError([*path, "owned"], str(error)) from None
    return Member(
        topics=tuple(_texts(entry["topics"], [*path, "topics"] if entry is value else path))
        if "topics" in entry
        else every,
        owned=owned,
        generation=entry.get("generation", 0),
        rack=entry.get("rack"),
        instance_id=entry.get("instance_id"),
        threads=entry.get("threads", 1),
    )


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key, {})
    if not isinstance(value, Mapping):
        form = "t = 12" if key == "topics" else 'c0 = ["t"]'
        raise _KeyError([key], f"{key} is {value!r}: write a table [{key}] with lines such as {form}")
    return value


def _texts(value: Any, path: Sequence[str]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise _KeyError(path, f"{'.'.join(path)} is {value!r}: give a list of texts")
    if not value and path[-1] == "racks":
        raise _KeyError(path, f"{'.'.join(path)} is empty: name a rack, or leave the key out")
    return value


def _check_keys(values: Mapping[str, Any], known: Sequence[str], path: Sequence[str]) -> None:
    for key in values:
        if key not in known:
            raise _KeyError([*path, key], f"unknown key {'.'.join([*path, key])}: use {', '.join(known)}")


def _line(text: str, path: Sequence[str]) -> int:
    """Return the line of a key: search each part of `path` from the line of the part before; skip missing parts."""
    lines = text.splitlines()
    found = 0
    for part in path:
        names = re.compile(rf"""(?:^|[\[{{.,\s"'])\s*{re.escape(part)}["']?\s*[\].=]""")
        found = next((number for number in range(found, len(lines)) if names.search(lines[number])), found)
    return found + 1
