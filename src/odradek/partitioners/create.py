"""`create_partitioner` creates a partitioner by name or import path."""

from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Final, cast

from odradek.model import ConfigurationError
from odradek.partitioners.adaptive import DEFAULT_BATCH_SIZE, AdaptivePartitioner
from odradek.partitioners.counting import ClassicPartitioner, RoundRobinPartitioner
from odradek.partitioners.interface import Partitioner
from odradek.partitioners.legacy import DEFAULT_REFRESH_MS, LegacyPartitioner
from odradek.partitioners.sticky import StickyPartitioner, UniformStickyPartitioner

PARTITIONER_NAMES: Final = ("classic", "sticky", "adaptive", "round_robin", "uniform_sticky", "legacy")
_KAFKA_CLASSES: Final = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "sticky",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "uniform_sticky",
    "kafka.producer.DefaultPartitioner": "legacy",
}
"""Kafka's class names of partitioners → names. DefaultPartitioner was `classic` until Kafka 2.3."""


def create_partitioner(
    partitioner: str | Partitioner,
    *,
    entropy: Random,
    monotonic: Callable[[], float],
    batch_size: int = DEFAULT_BATCH_SIZE,
    ignore_keys: bool = False,
    adaptive: bool = True,
    refresh_ms: int = DEFAULT_REFRESH_MS,
) -> Partitioner:
    """Return a partitioner by name, Kafka's class name or import path, or `partitioner` itself if it is an object.

    An import path is `package.module:NAME` or `package.module.NAME`; a class is called without arguments.
    `batch_size`, `ignore_keys` (`partitioner.ignore.keys`) and `adaptive` (`partitioner.adaptive.partitioning.enable`)
    are for the partitioner `adaptive` only, `monotonic` (seconds) and `refresh_ms`
    (`topic.metadata.refresh.interval.ms`) for `legacy`. Raises `ConfigurationError` for an unknown name, a class that
    needs arguments, and an object that is not a partitioner.
    """
    if not isinstance(partitioner, str):
        return _checked(partitioner, repr(partitioner))
    partitioner = _KAFKA_CLASSES.get(partitioner, partitioner)
    if partitioner == "adaptive":
        return AdaptivePartitioner(entropy=entropy, batch_size=batch_size, ignore_keys=ignore_keys, adaptive=adaptive)
    if partitioner == "classic":
        return ClassicPartitioner(entropy=entropy)
    if partitioner == "sticky":
        return StickyPartitioner(entropy=entropy)
    if partitioner == "uniform_sticky":
        return UniformStickyPartitioner(entropy=entropy)
    if partitioner == "round_robin":
        return RoundRobinPartitioner()
    if partitioner == "legacy":
        return LegacyPartitioner(entropy=entropy, monotonic=monotonic, refresh_ms=refresh_ms)
    return _imported(partitioner)


def _imported(path: str) -> Partitioner:
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    try:
        made = getattr(import_module(module_name), name) if module_name else None
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{_unknown(path)} ({error})") from error
    if made is None:
        raise ConfigurationError(_unknown(path))
    try:
        return _checked(made() if isinstance(made, type) else made, path)
    except TypeError as error:
        raise ConfigurationError(f"partitioner {path} cannot be created without arguments: {error}") from error


def _checked(instance: object, what: str) -> Partitioner:
    if isinstance(instance, type) or not callable(getattr(instance, "partition", None)):
        raise ConfigurationError(f"{what} is not an object with a method partition(topic, key, value, cluster)")
    return cast("Partitioner", instance)


def _unknown(name: str) -> str:
    return f"unknown partitioner {name!r}: use one of {', '.join(PARTITIONER_NAMES)}, or an import path of your own"
