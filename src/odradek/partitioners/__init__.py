"""Where a record goes when it names no partition: Kafka's three generations of rules, two more classes, one's own.

A partitioner is any object with `partition(topic, key, value, cluster)`; `create_partitioner` makes one from its name
or its import path. Nothing here knows a producer: bytes, queues and the cluster's shape come in as arguments.
"""

from odradek.partitioners.adaptive import AdaptivePartitioner
from odradek.partitioners.counting import ClassicPartitioner, RoundRobinPartitioner
from odradek.partitioners.create import PARTITIONER_NAMES, create_partitioner
from odradek.partitioners.interface import BatchAware, ClusterView, LoadAware, Partitioner
from odradek.partitioners.murmur2 import murmur2, partition_for_key
from odradek.partitioners.sticky import StickyPartitioner, UniformStickyPartitioner

__all__ = [
    "PARTITIONER_NAMES",
    "AdaptivePartitioner",
    "BatchAware",
    "ClassicPartitioner",
    "ClusterView",
    "LoadAware",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "UniformStickyPartitioner",
    "create_partitioner",
    "murmur2",
    "partition_for_key",
]
