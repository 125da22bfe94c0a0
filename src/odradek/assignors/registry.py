"""Lookup of assignors by name or import path, and `assign`, which takes plain dicts."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, MemberSubscription
from odradek.assignors.range_assignor import RangeAssignor
from odradek.assignors.roundrobin import RoundRobinAssignor
from odradek.model import TopicPartition

_ALL: Final[tuple[Assignor, ...]] = (RangeAssignor(), RoundRobinAssignor())
_BUILT_IN: Final = {assignor.name: assignor for assignor in _ALL}
ASSIGNOR_NAMES: Final = tuple(_BUILT_IN)


def create_assignor(strategy: str | Assignor) -> Assignor:
    """Return an assignor by name or import path, or `strategy` itself if it is an assignor.

    Import paths are `package.module:Class` or `package.module.Class`; the class is called without arguments. Raises
    `ValueError` for an unknown name; the message lists the names.
    """
    if not isinstance(strategy, str):
        return strategy
    return _BUILT_IN.get(strategy) or _imported(strategy)


def assign(
    strategy: str | Assignor,
    partitions: Mapping[str, int],
    members: Mapping[str, Collection[str] | MemberSubscription],
    owned: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    *,
    racks: Mapping[str, Sequence[Collection[str]]] | None = None,
) -> Assignment:
    """Return every member's partitions, computed at the first access.

    `partitions`: count by topic. `members`: topics by member, or a `MemberSubscription` with a generation, rack or
    instance id. `owned`: partitions of each member in the last generation. `racks`: the racks with a replica, by topic
    and partition. Raises `ValueError` for an unknown strategy.
    """
    assignor = create_assignor(strategy)
    had = owned or {}
    subscriptions = {member: _subscription(wanted, had.get(member)) for member, wanted in members.items()}
    group = GroupSubscription(partitions=partitions, members=subscriptions, replica_racks=racks or {})
    return assignor.assign(group)


def _subscription(
    wanted: Collection[str] | MemberSubscription, owned: Sequence[tuple[str, int]] | None
) -> MemberSubscription:
    if isinstance(wanted, MemberSubscription):
        if owned is None:
            return wanted
        topics, generation, rack, instance_id = wanted.topics, wanted.generation, wanted.rack, wanted.instance_id
    else:
        topics, generation, rack, instance_id = wanted, 0, None, None
    return MemberSubscription(
        topics=topics,
        owned=tuple(TopicPartition(topic, number) for topic, number in owned or ()),
        generation=generation,
        rack=rack,
        instance_id=instance_id,
    )


def _imported(path: str) -> Assignor:
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    try:
        made: Any = getattr(import_module(module_name), name) if module_name else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{_unknown(path)} ({error})") from error
    if made is None:
        raise ValueError(_unknown(path))
    instance = made() if isinstance(made, type) else made
    if not callable(getattr(instance, "assign", None)) or not isinstance(getattr(instance, "name", None), str):
        raise ValueError(f"{path} is not an assignor: it needs a name and a method assign(group)")  # noqa: TRY004
    return cast("Assignor", instance)


def _unknown(name: str) -> str:
    return f"unknown assignor {name!r}: use one of {' '.join(ASSIGNOR_NAMES)}, or an import path of your own"
