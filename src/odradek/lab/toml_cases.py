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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from odradek.config.toml import TomlKeyError, converted, place_of
from odradek.lab.case import Case, LabError, Member
from odradek.lab.notation import case_of_texts, partitions_of_text
from odradek.model import OdradekError

_SUBJECT: Final = re.compile(r"(member|the replicas of the topic|topic) ([^\s,]+)")
"""The beginning of an error about a member or a topic of a case."""

Name = Annotated[str, Meta(min_length=1)]


class _File(Struct, forbid_unknown_fields=True):
    strategy: str | None = None
    topics: dict[str, Any] = {}
    members: int | dict[str, Any] = {}


class _Topic(Struct, forbid_unknown_fields=True):
    partitions: int
    racks: Annotated[tuple[Name, ...], Meta(min_length=1)] | None = None


class _Member(Struct, forbid_unknown_fields=True):
    topics: tuple[Name, ...] | None = None
    rack: str | None = None
    owned: str = ""
    instance_id: str | None = None
    generation: int = 0
    threads: int = 1


def parse_case(text: str, name: str) -> tuple[Case, str | None]:
    """Return the case of a file's text, and its strategy, if any. Raises `LabError`, which begins with NAME[:LINE]."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{name}: not TOML: {error}") from None
    try:
        return _case(values)
    except OdradekError as error:
        about: OdradekError = error
        if not isinstance(error, TomlKeyError) and (subject := _SUBJECT.match(str(error))):
            about = TomlKeyError(f"{'members' if subject[1] == 'member' else 'topics'}.{subject[2]}", str(error))
        raise LabError(f"{place_of(Path(name), text, about)}: {error}") from None


def _case(values: Mapping[str, Any]) -> tuple[Case, str | None]:
    file = converted(values, _File)
    topics, racks = {}, []
    for topic, value in file.topics.items():
        entry = value if isinstance(value, Mapping) else {"partitions": value}
        found = converted(entry, _Topic, key=f"topics.{topic}")
        topics[topic] = found.partitions
        if found.racks is not None:
            racks.append(f"{topic}={','.join(found.racks)}")
    members = []
    made: dict[str, Member] = {}
    if isinstance(file.members, int):
        members.append(str(file.members))
    else:
        every = tuple(sorted(topics))
        made = {member: _member(member, value, every) for member, value in file.members.items()}
    base = Case(topics=topics, members=made)
    return case_of_texts(topics=[], members=members, replica_racks=racks, base=base), file.strategy


def _member(name: str, value: Any, every: tuple[str, ...]) -> Member:
    entry = value if isinstance(value, Mapping) else {"topics": value}
    found = converted(entry, _Member, key=f"members.{name}")
    try:
        owned = partitions_of_text(found.owned)
    except LabError as error:
        raise TomlKeyError(f"members.{name}.owned", str(error)) from None
    return Member(
        topics=every if found.topics is None else found.topics,
        owned=owned,
        generation=found.generation,
        rack=found.rack,
        instance_id=found.instance_id,
        threads=found.threads,
    )
