"""`NewTopic`, a request to create a topic."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from odradek.metadata.cluster_load import Replicas

DEFAULT: Final = -1


class NewTopic(Struct, frozen=True, kw_only=True):
    """A topic to create: numbers of partitions and replicas (-1: the default), or each partition's replicas."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, Replicas] = field(default_factory=dict)
    config: Mapping[str, str | None] = field(default_factory=dict)
