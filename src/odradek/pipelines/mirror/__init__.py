"""Copies topics to another cluster: records, topic configurations, and committed offsets of consumer groups."""

from odradek.pipelines.mirror.groups import MirrorGroups
from odradek.pipelines.mirror.topics import MirrorTopics

__all__ = ["MirrorGroups", "MirrorTopics"]
