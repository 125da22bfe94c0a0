"""Asyncio clients for any Kafka cluster, without threads.

    async with Producer("localhost:9092") as producer:
        await producer.send("greetings", b"hello")
    async with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        async for record in consumer: ...

`reader` and `offsets` are for applications that keep their own offsets. Names are imported when they are first used,
because importing the protocol's modules takes a while.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.clients.admin import Admin, NewTopic
    from odradek.clients.consumer import Consumer, ConsumerRecord
    from odradek.clients.group_offsets import OffsetAndMetadata
    from odradek.clients.producer import Producer, RecordMetadata

_HOMES: Final = {
    "Admin": "odradek.clients.admin",
    "Consumer": "odradek.clients.consumer",
    "ConsumerRecord": "odradek.clients.consumer",
    "NewTopic": "odradek.clients.admin",
    "OffsetAndMetadata": "odradek.clients.group_offsets",
    "Producer": "odradek.clients.producer",
    "RecordMetadata": "odradek.clients.producer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


__all__ = ["Admin", "Consumer", "ConsumerRecord", "NewTopic", "OffsetAndMetadata", "Producer", "RecordMetadata"]
