"""A connection, as a server has it and as whoever asks has it.

A server's (`connection`) takes bytes in and gives replies in order; it knows no API. Data passes from the transport
into a pooled buffer (`buffers`), is cut into frames in place (`frames`), and goes up to a `Service` as memoryviews.
An asker's (`client_connection`) sends requests in versions that both sides know, and finds the answer to each.
"""

from odradek.wire.buffers import BufferPool, ResponseBuffers
from odradek.wire.connection import Connection, Serve, Service
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits, Cork, RequestBudget
from odradek.wire.frames import FrameBuffer, FrameSizeError
from odradek.wire.memory_pressure import MemoryPressure
from odradek.wire.reply import LATER, NO_REPLY, Buffers, PendingReply, Reply
from odradek.wire.turns import Turns

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
    "MemoryPressure",
    "PendingReply",
    "Reply",
    "RequestBudget",
    "ResponseBuffers",
    "Serve",
    "Service",
    "Turns",
]
