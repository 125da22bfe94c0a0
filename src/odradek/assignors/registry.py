"""Lookup of assignors by name, entry point or import path, and `assign`, which takes plain dicts."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.assignors.custom import CheckedAssignor
from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, MemberSubscription
from odradek.model.suggestions import similar_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS: Final = "odradek.assignors"
"""The entry point group in which packages register assignors."""

_BUILT_IN: Final = {
    "range": "odradek.assignors.range_assignor:RangeAssignor",
    "roundrobin": "odradek.assignors.roundrobin:RoundRobinAssignor",
    "sticky": "odradek.assignors.sticky:StickyAssignor",
    "cooperative-sticky": "odradek.assignors.sticky:CooperativeStickyAssignor",
    "uniform": "odradek.assignors.sticky:UniformAssignor",
    "zookeeper-range": "odradek.assignors.zookeeper:ZookeeperRangeAssignor",
    "zookeeper-roundrobin": "odradek.assignors.zookeeper:ZookeeperRoundRobinAssignor",
    "ceiling-range": "odradek.assignors.zookeeper:CeilingRangeAssignor",
}
"""Import paths by name; only some of these modules import NumPy."""
ASSIGNOR_NAMES: Final = tuple(_BUILT_IN)
KAFKA_CLASSES: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's class names of assignors → names."""
KAFKA_0_8_CLASSES: Final = {
    "kafka.consumer.RangeAssignor": "zookeeper-range",
    "kafka.consumer.RoundRobinAssignor": "zookeeper-roundrobin",
}
"""Class names of Kafka 0.8's assignors → names; only a `ZookeeperConsumer` takes them."""


def create_assignor(strategy: str | Assignor) -> Assignor:
    """Return a new assignor by name, Kafka's class name, entry point or import path; an object is also accepted.

    Import paths are `package.module:Class` or `package.module.Class`; the class is called without arguments. The
    `assign` of an assignor that is not built in raises `InvalidAssignmentError` for an invalid assignment. Raises
    `ValueError` for an unknown name, a class name of Kafka 0.8, or an object that is not an assignor.
    """
    if not isinstance(strategy, str):
        return _checked(strategy, type(strategy).__name__)
    if (own := KAFKA_0_8_CLASSES.get(strategy)) is not None:
        modern = f"org.apache.kafka.clients.consumer.{strategy.rpartition('.')[2]}"
        raise ValueError(
            f"{strategy} is an assignor of Kafka 0.8's consumer, here ZookeeperConsumer: use {KAFKA_CLASSES[modern]} "
            f"({modern}), or {own} for the rule of Kafka 0.8"
        )
    strategy = KAFKA_CLASSES.get(strategy, strategy)
    if strategy in _BUILT_IN:
        return _checked(_imported(_BUILT_IN[strategy])(), strategy)
    found = {each.name: each for each in _entry_points()}.get(strategy)
    made = found.load() if found is not None else _imported(strategy)
    return _checked(made() if isinstance(made, type) else made, strategy)


def assign(
    strategy: str | Assignor,
    partitions: Mapping[str, int],
    members: Mapping[str, Collection[str] | MemberSubscription],
    owned: Mapping[str, Sequence[tuple[str, int]]] | None = None,
    *,
    racks: Mapping[str, Sequence[Collection[str]]] | None = None,
) -> Assignment:
    """Return the partitions of each member; built-in assignors may compute them at the first access.

    `partitions`: count by topic. `members`: topics by member, or a `MemberSubscription` with a generation, rack or
    instance id. `owned`: partitions of each member in the last generation. `racks`: by topic, the racks of each
    partition's replicas. Raises `ValueError` for an unknown strategy and for an invalid assignment of a custom one.
    """
    assignor = create_assignor(strategy)
    had = owned or {}
    subscriptions = {member: _subscription(wanted, had.get(member)) for member, wanted in members.items()}
    group = GroupSubscription(partitions=partitions, members=subscriptions, replica_racks=racks or {})
    return assignor.assign(group)


def _subscription(
    wanted: Collection[str] | MemberSubscription, owned: Sequence[tuple[str, int]] | None
) -> MemberSubscription:
    if not isinstance(wanted, MemberSubscription):
        return MemberSubscription(topics=wanted, owned=owned or (), generation=0)
    if owned is None:
        return wanted
    return MemberSubscription(
        topics=wanted.topics,
        owned=owned,
        generation=wanted.generation,
        rack=wanted.rack,
        instance_id=wanted.instance_id,
        user_data=wanted.user_data,
    )


def _checked(assignor: object, origin: str) -> Assignor:
    kind = type(assignor)
    is_built_in = f"{kind.__module__}:{kind.__qualname__}" in _BUILT_IN.values()
    if is_built_in or isinstance(assignor, CheckedAssignor):
        return cast("Assignor", assignor)
    return CheckedAssignor(assignor, origin)


def _entry_points() -> "Collection[EntryPoint]":
    from importlib.metadata import entry_points  # imported here: takes a megabyte, which few processes need

    return entry_points(group=ENTRY_POINTS)


def _imported(path: str) -> Any:
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    try:
        found = getattr(import_module(module_name), name) if module_name else None
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{_unknown(path)} ({error})") from error
    if found is None:
        raise ValueError(_unknown(path))
    return found


def _unknown(name: str) -> str:
    names = list(dict.fromkeys([*ASSIGNOR_NAMES, *sorted(each.name for each in _entry_points())]))
    near = similar_names(name, names)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown assignor {name!r}{hint}: use one of {' '.join(names)}, or an import path of your own"
