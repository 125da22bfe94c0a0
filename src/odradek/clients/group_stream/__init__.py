"""Batches of a stream that is a member of a consumer group, of which each batch's range is kept in a checkpoint.

`stream` decides what a batch reads and what is committed when; `member` takes part in the group with a `Consumer`. The
Spark source (`consumeMode=group`) and the simulator use both.
"""

from odradek.clients.group_stream.member import ConsumerMember
from odradek.clients.group_stream.stream import Batch, GroupStream, Member, Offsets

__all__ = ["Batch", "ConsumerMember", "GroupStream", "Member", "Offsets"]
