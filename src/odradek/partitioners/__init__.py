"""Partitioners: choose the partition of a record for which the application gives none.

`counting`, `sticky` and `adaptive` are Kafka's defaults of three generations, `legacy` is that of Kafka 0.8. A
partitioner is any object with `partition(topic, key, value, cluster)`; `create_partitioner` creates one by name or
import path. Nothing here depends on a producer.
"""

from odradek.partitioners.adaptive import AdaptivePartitioner
from odradek.partitioners.counting import ClassicPartitioner, RoundRobinPartitioner
from odradek.partitioners.create import PARTITIONER_NAMES, create_partitioner
from odradek.partitioners.interface import BatchAware, ClusterView, KeyRule, LoadAware, Partitioner
from odradek.partitioners.legacy import LegacyPartitioner
from odradek.partitioners.murmur2 import murmur2, partition_for_key
from odradek.partitioners.sticky import StickyPartitioner, UniformStickyPartitioner

__all__ = [
    "PARTITIONER_NAMES",
    "AdaptivePartitioner",
    "BatchAware",
    "ClassicPartitioner",
    "ClusterView",
    "KeyRule",
    "LegacyPartitioner",
    "LoadAware",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "UniformStickyPartitioner",
    "create_partitioner",
    "murmur2",
    "partition_for_key",
]
