"""Checks and converts arguments of client methods: partitions given as pairs, names, addresses, numbers."""

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex, TypeVar

from odradek.model import ConfigurationError, TopicPartition

T = TypeVar("T")
Partition = TopicPartition | tuple[str, int]
PartitionT = TypeVar("PartitionT", bound=tuple[str, int])
"""The keys of a mapping: for type checkers, a `dict[TopicPartition, int]` is no `Mapping[Partition, int]`."""


def partition_of(partition: Partition) -> TopicPartition:
    """Convert a `(topic, number)` pair. Raises `TypeError` for anything else."""
    if isinstance(partition, tuple | list) and len(partition) == 2 and isinstance(partition[0], str):
        return TopicPartition(partition[0], whole_number("a partition", partition[1]))
    raise TypeError(f"a partition is a topic and a number, such as ('flights', 0), not {partition!r}")


def partitions_of(partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Convert `(topic, number)` pairs. Raises `TypeError` for anything else."""
    return [partition_of(each) for each in _listed(partitions)]


def by_partition(values: Mapping[PartitionT, T]) -> dict[TopicPartition, T]:
    """Convert the keys of `values` from `(topic, number)` pairs. Raises `TypeError` for other keys."""
    if not isinstance(values, Mapping):
        raise TypeError(f"values are given by partition, such as {{('flights', 0): 5}}, not as {values!r}")
    return {partition_of(partition): value for partition, value in values.items()}


def numbers_by_partition(what: str, values: Mapping[PartitionT, SupportsIndex]) -> dict[TopicPartition, int]:
    """Convert keys to partitions and values to ints. Raises `TypeError` for others, with `what` as their name."""
    return {partition: whole_number(what, value) for partition, value in by_partition(values).items()}


def names_of(names: str | Iterable[str]) -> list[str]:
    """Return the names as a list; a string is one name. Raises `TypeError` for a name that is not a string."""
    return instances_of(str, names)


def instances_of(kind: type[T], values: Iterable[T]) -> list[T]:
    """Return `values` as a list. Raises `TypeError` for a value that is not of type `kind`."""
    listed: list[Any] = _listed(values)
    for each in listed:
        if not isinstance(each, kind):
            expected = "a name is a string" if kind is str else f"expected {kind.__name__}"
            raise TypeError(f"{expected}, not {each!r}")
    return listed


def addresses_of(servers: str | Iterable[str]) -> str | tuple[str, ...]:
    """Return `bootstrap_servers` as a string or tuple. Raises `ConfigurationError` for anything else."""
    if isinstance(servers, str):
        return servers
    try:
        return tuple(servers)
    except TypeError:
        raise ConfigurationError(f"bootstrap_servers is HOST:PORT, or a list of these, not {servers!r}") from None


def whole_number(what: str, number: SupportsIndex, *, bits: int | None = None) -> int:
    """Convert an integer of any type to an int, of so many bits.

    Raises `TypeError` for others, and `ValueError` beyond the limits, with `what` as their name.
    """
    try:
        converted = index(number)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {number!r}") from None
    if bits is not None and converted.bit_length() >= bits:
        raise ValueError(f"{what} is a number of {bits} bits, not {converted}")
    return converted


def broker_ids(brokers: Iterable[SupportsIndex]) -> list[int]:
    """Return broker ids as a list of ints. Raises `TypeError` and `ValueError` for anything else."""
    return [whole_number("a broker id", each, bits=32) for each in _listed(brokers)]


def _listed(values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):
        return [values]
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"expected a list, not {values!r}") from None
