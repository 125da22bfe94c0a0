"""Both ends of a TCP connection that speaks Kafka's protocol.

`connection` is the broker's end: it reads from the transport into pooled buffers (`buffers`), splits them into frames
(`frames`), hands each request to a `Service` as a memoryview, and sends each `reply` in order. It knows no API.
`client_connection` is the client's end: it negotiates API versions, sends requests and matches responses to them.
`connection_group` holds what the connections of one server share: the limits of each (`ConnectionLimits`), memory
(`memory_pressure`), time (`connection_scheduler`). The number of connections is limited in
`broker.security.quotas.connection_quotas`.
"""

from odradek.wire.buffers import BufferPool, ResponseBuffers
from odradek.wire.connection import Connection, Serve, Service
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits, Cork, RequestBudget
from odradek.wire.connection_scheduler import ConnectionScheduler
from odradek.wire.frames import FrameBuffer, FrameSizeError
from odradek.wire.memory_pressure import MemoryPressure
from odradek.wire.reply import LATER, NO_REPLY, Buffers, PendingReply, Reply

__all__ = [
    "LATER",
    "NO_REPLY",
    "BufferPool",
    "Buffers",
    "Connection",
    "ConnectionGroup",
    "ConnectionLimits",
    "ConnectionScheduler",
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
]
