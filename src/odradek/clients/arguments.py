"""Arguments of clients: partitions as pairs, one name or several, addresses. Errors name anything else."""

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex, TypeVar

from odradek.model import ConfigurationError, TopicPartition

T = TypeVar("T")


def partition_of(partition: TopicPartition | tuple[str, int]) -> TopicPartition:
    """Return a partition that is given as a pair. Raises `TypeError`."""
    if isinstance(partition, tuple | list) and len(partition) == 2 and isinstance(partition[0], str):
        return TopicPartition(partition[0], whole_number("a partition", partition[1]))
    raise TypeError(f"a partition is a topic and a number, such as ('flights', 0), not {partition!r}")


def partitions_of(partitions: Iterable[TopicPartition | tuple[str, int]]) -> list[TopicPartition]:
    """Return partitions that are given as pairs. Raises `TypeError`."""
    return [partition_of(each) for each in _listed(partitions)]


def by_partition(values: Mapping[Any, T]) -> dict[TopicPartition, T]:
    """Return values by partition, from those by pair. Raises `TypeError`."""
    if not isinstance(values, Mapping):
        raise TypeError(f"values are given by partition, such as {{('flights', 0): 5}}, not as {values!r}")
    return {partition_of(partition): value for partition, value in values.items()}


def numbers_by_partition(what: str, values: Mapping[Any, SupportsIndex]) -> dict[TopicPartition, int]:
    """Return whole numbers by partition, from those by pair. Raises `TypeError` that names what they are."""
    return {partition: whole_number(what, value) for partition, value in by_partition(values).items()}


def names_of(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list: a string is one name, not its letters. Raises `TypeError`."""
    return instances_of(str, names)


def instances_of(kind: type[T], values: Iterable[T]) -> list[T]:
    """Return `values` as a list. Raises `TypeError` for one that is something else."""
    listed: list[Any] = _listed(values)
    for each in listed:
        if not isinstance(each, kind):
            expected = "a name is a string" if kind is str else f"expected {kind.__name__}"
            raise TypeError(f"{expected}, not {each!r}")
    return listed


def addresses_of(servers: str | Iterable[str]) -> str | tuple[str, ...]:
    """Return `bootstrap_servers` as a setting. Raises `ConfigurationError` if it is neither a string nor a list."""
    if isinstance(servers, str):
        return servers
    try:
        return tuple(servers)
    except TypeError:
        raise ConfigurationError(f"bootstrap_servers is HOST:PORT, or a list of these, not {servers!r}") from None


def whole_number(what: str, number: SupportsIndex) -> int:
    """Return a number as an int. Raises `TypeError` that names what it is of."""
    try:
        return index(number)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {number!r}") from None


def _listed(values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):
        return [values]
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"expected a list, not {values!r}") from None
