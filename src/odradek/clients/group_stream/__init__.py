"""Streams in a consumer group, whose owners store the range of each batch in a checkpoint.

`stream` plans the batches and commits offsets between them; `member` takes part in the group with a `Consumer`. The
Spark source (`consumeMode=group`) and the simulator use both.
"""

from odradek.clients.group_stream.member import ConsumerMember
from odradek.clients.group_stream.stream import Batch, GroupStream, Member, Offsets

__all__ = ["Batch", "ConsumerMember", "GroupStream", "Member", "Offsets"]
