"""A copy of topics to another cluster, with what belongs to them beside their records.

`topics` creates topics and partitions and carries configurations; `copying` writes a batch and notes its offsets in
`offset_syncs`, with which `groups` translates the committed offsets of consumer groups.
"""

from odradek.pipelines.mirror.groups import MirrorGroups
from odradek.pipelines.mirror.topics import MirrorTopics

__all__ = ["MirrorGroups", "MirrorTopics"]
