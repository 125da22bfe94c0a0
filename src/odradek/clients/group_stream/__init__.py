"""Streams in a consumer group, whose owners store the range of each batch in a checkpoint."""

from odradek.clients.group_stream.member import ConsumerMember
from odradek.clients.group_stream.stream import Batch, GroupStream, Member, Offsets

__all__ = ["Batch", "ConsumerMember", "GroupStream", "Member", "Offsets"]
