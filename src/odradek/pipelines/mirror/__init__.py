"""Copies topics to another cluster: records, topic configurations, and committed offsets of consumer groups.

`topics` creates topics and partitions and copies configurations; `copying` writes a batch and stores its offsets in
`offset_syncs`, with which `groups` translates the committed offsets of consumer groups.
"""

from odradek.pipelines.mirror.groups import MirrorGroups
from odradek.pipelines.mirror.topics import MirrorTopics

__all__ = ["MirrorGroups", "MirrorTopics"]
