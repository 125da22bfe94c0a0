"""Parses a sweep's TOML file; every key is optional.

```toml
out = "sweep"                       # the directory of the results, beside the file; the file's name by default
strategy = ["range", "sticky"]      # names or import paths; all built-in ones by default
failure = ["member-leaves"]         # none, member-leaves, member-joins, member-restarts, rack-fails, topic-grows;
                                    # all by default, rack-fails only if `racks` has a 2 or more
members = [3, 10, 100]              # a number, a list, or { from = 10, to = 100, step = 10 }; 10 by default
partitions = [100, 1000]            # of all topics together; 100 by default
topics = 4                          # 1 by default
skew = [0, 1]                       # topic number k has partitions in proportion to 1 / k ** skew; 0 by default
subscribed = 1.0                    # the share of the topics that each member reads; 1.0 by default
racks = [0, 3]                      # 0 by default
replicas = 2                        # of each partition, on different racks; 2 by default
seed = { from = 0, to = 9 }         # each has other member ids, subscriptions and failing members; 0 by default
batch = 1000                        # scenarios that are saved together; about two seconds' worth by default
heatmap = { x = "partitions", y = "members" }       # the two axes with the most values by default
group = "group.toml"                # a group as `odradek lab assign --file` reads it, instead of members … replicas
```
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any, Final

from odradek.assignors import ASSIGNOR_NAMES
from odradek.lab.case import MAX_MEMBERS, MAX_PARTITIONS, Case, LabError
from odradek.lab.runs import create
from odradek.lab.sweep.groups import FAILURES
from odradek.lab.sweep.settings import AXES, GROUP_AXES, Sweep, Value, batch_of
from odradek.lab.sweep.tables import Table
from odradek.lab.toml_cases import parse_case
from odradek.model import ConfigurationError
from odradek.model.suggestions import similar_names

MAX_SCENARIOS: Final = 100_000_000
_MOST_SUBSCRIPTIONS: Final = 10_000_000
"""Limit of members × topics if members have subscriptions of their own: about a gigabyte."""

_LIMITS: Final[Mapping[str, tuple[float, float, tuple[float, ...]]]] = {
    "members": (1, MAX_MEMBERS, (10,)),
    "topics": (1, 10_000, (1,)),
    "partitions": (1, MAX_PARTITIONS // 2, (100,)),
    "skew": (0, 10, (0.0,)),
    "subscribed": (0, 1, (1.0,)),
    "racks": (0, 1_000, (0,)),
    "replicas": (1, 1_000, (2,)),
    "seed": (0, 2**53, (0,)),
}
"""(Least, greatest, default values) of each numeric axis; a growing topic doubles its partitions."""
_FRACTIONS: Final = ("skew", "subscribed")


def load_sweep(path: Path) -> Sweep:
    """Return the sweep of a file. Raises `ConfigurationError`, which begins with the file's name, and `OSError`."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return parse_sweep(values, directory=path.parent, default_out=path.stem)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def parse_sweep(values: Mapping[str, Any], *, directory: Path, default_out: str) -> Sweep:
    """Return the sweep of a parsed file. Raises `ConfigurationError`, which names the key."""
    top = Table(values)
    out = directory / (top.optional_text("out") or default_out)
    strategies = _names(top, "strategy", ASSIGNOR_NAMES)
    for strategy in strategies:
        _check_strategy(top, strategy)
    group_file = top.optional_text("group")
    batch = top.number("batch", at_least=1)
    heatmap = top.table("heatmap")
    x, y = heatmap.optional_text("x"), heatmap.optional_text("y")
    heatmap.done()
    group, digest = (None, "") if group_file is None else _group(top, directory / group_file)
    numbers = {axis: _numbers(top, axis) for axis in AXES if axis != "failure"}
    failures = _failures(top, racks=group is not None or int(numbers["racks"][-1]) >= 2)
    top.done()
    axes: dict[str, tuple[Value, ...]] = {
        axis: failures if axis == "failure" else numbers[axis] for axis in (AXES if group is None else GROUP_AXES)
    }
    if group is None:
        _check_together(top, axes)
    else:
        for axis in AXES:
            if axis not in GROUP_AXES and axis in values:
                raise top.error(axis, f"is given by group, {group_file}: leave out one of the two")
    if (count := len(strategies) * prod(map(len, axes.values()))) > MAX_SCENARIOS:
        longest = max(axes, key=lambda axis: len(axes[axis]))
        raise top.error(
            longest,
            f"has {len(axes[longest]):,} values, which makes {count:,} scenarios: use at most {MAX_SCENARIOS:,}",
        )
    for key, named in (("x", x), ("y", y)):
        if named is not None and named not in (*axes, "strategy"):
            raise heatmap.error(key, f"is {named!r}: {_known(named, (*axes, 'strategy'))}")
    if x is not None and x == y:
        raise heatmap.error("y", f"is {y!r}, as x is: choose another axis")
    if group is not None:
        parts: float = group.partition_count + len(group.members)
    else:
        parts = _mean(axes["members"], axes["partitions"])
    return Sweep(
        axes=axes,
        strategies=strategies,
        directory=str(out),
        batch=batch or batch_of(parts),
        group=group,
        group_digest=digest,
        x=x,
        y=y,
    )


def _numbers(top: Table, axis: str) -> tuple[Value, ...]:
    least, most, default = _LIMITS[axis]
    values = top.numbers(axis, default)
    for value in values:
        if not (least <= value <= most) or (axis == "subscribed" and value == 0):
            more_than = "more than " if axis == "subscribed" else ""
            raise top.error(axis, f"has {value:,}: use {more_than}{least:,} to {most:,}")
        if axis not in _FRACTIONS and not isinstance(value, int):
            raise top.error(axis, f"has {value}: use whole numbers")
    return _distinct(top, axis, sorted(float(value) if axis in _FRACTIONS else int(value) for value in values))


def _failures(top: Table, *, racks: bool) -> tuple[str, ...]:
    failures = _names(top, "failure", tuple(name for name in FAILURES if racks or name != "rack-fails"))
    for failure in failures:
        if failure not in FAILURES:
            raise top.error("failure", f"has {failure!r}: {_known(failure, FAILURES)}")
    if "rack-fails" in failures and not racks:
        raise top.error("failure", "has rack-fails, but racks has no number from 2: write, for example, racks = 3")
    return tuple(name for name in FAILURES if name in failures)


def _names(top: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    return _distinct(top, key, top.texts(key)) or default


def _check_strategy(top: Table, strategy: str) -> None:
    try:
        create(strategy)
    except LabError as error:
        raise top.error("strategy", f"has {strategy!r}: {error}") from None


def _check_together(top: Table, axes: Mapping[str, tuple[Value, ...]]) -> None:
    topics, partitions = max(map(int, axes["topics"])), min(map(int, axes["partitions"]))
    if partitions < topics:
        raise top.error("partitions", f"has {partitions:,}, less than topics has, {topics:,}: each topic needs one")
    if min(map(float, axes["subscribed"])) < 1 and (
        (count := topics * max(map(int, axes["members"]))) > _MOST_SUBSCRIPTIONS
    ):
        raise top.error(
            "subscribed",
            f"is less than 1 with up to {count:,} subscriptions (members × topics): use at most "
            f"{_MOST_SUBSCRIPTIONS:,}",
        )


def _group(top: Table, path: Path) -> tuple[Case, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise top.error("group", f"names {path}, which is not UTF-8 text") from None
    except OSError as error:
        raise top.error("group", f"names {path}: {error.strerror}") from None
    case, _ = parse_case(text, str(path))
    if not case.members:
        raise top.error("group", f"names {path}, which has no member: write, for example, members = 5 there")
    return case, blake2b(text.encode(), digest_size=16).hexdigest()


def _distinct(top: Table, key: str, values: Iterable[Any]) -> tuple[Any, ...]:
    found = tuple(values)
    if twice := [value for value, count in Counter(found).items() if count > 1]:
        raise top.error(key, f"has {twice[0]} twice")
    return found


def _known(name: str, names: Iterable[str]) -> str:
    near = similar_names(name, names)
    return f"did you mean {near[0]}?" if near else f"use {', '.join(names)}"


def _mean(*axes: tuple[Value, ...]) -> float:
    return sum(sum(map(float, values)) / len(values) for values in axes)
