"""LeaderAndIsr: the controller says what this broker leads and follows. See `cluster.command_handler`."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """The answer comes when it is so. KAFKA_STORAGE_ERROR for partitions whose logs can't be used."""
    del context
    return await broker.metadata_loop.command_handler.leader_and_isr(message)
