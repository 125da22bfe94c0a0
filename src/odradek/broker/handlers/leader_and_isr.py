"""LeaderAndIsr: the controller's command to lead and follow partitions (`ControllerCommandHandler`)."""

from typing import Any

from odradek.broker.parts import HasMetadataLoop
from odradek.broker.serving.context import RequestContext


async def handle(broker: HasMetadataLoop, context: RequestContext, message: Any) -> dict[str, Any]:
    """Execute the command; return KAFKA_STORAGE_ERROR for each offline log, or one error for a stale command."""
    del context
    return await broker.metadata_loop.command_handler.leader_and_isr(message)
