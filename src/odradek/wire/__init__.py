"""A connection as the server has it: bytes in, frames up, replies down in order. Knows no API.

Data passes from the transport into a pooled buffer (`buffers`), is cut into frames in place (`frames`), and goes up to
a `Service` as memoryviews; what the service answers, now or later, leaves in the order of the requests (`connection`).
"""

from odradek.wire.buffers import BufferPool
from odradek.wire.connection import Connection, Service
from odradek.wire.frames import FrameBuffer, FrameSizeError
from odradek.wire.pressure import Pressure
from odradek.wire.reply import LATER, NO_REPLY, Buffers, PendingReply, Reply
from odradek.wire.sharing import ConnectionGroup, ConnectionLimits, Cork, RequestBudget

__all__ = [
    "LATER",
    "NO_REPLY",
    "BufferPool",
    "Buffers",
    "Connection",
    "ConnectionGroup",
    "ConnectionLimits",
    "Cork",
    "FrameBuffer",
    "FrameSizeError",
    "PendingReply",
    "Pressure",
    "Reply",
    "RequestBudget",
    "Service",
]
