"""StopReplica: the controller's command to stop or delete replicas (`ControllerCommandHandler`)."""

from typing import Any

from odradek.broker.parts import HasMetadataLoop
from odradek.broker.serving.context import RequestContext


async def handle(broker: HasMetadataLoop, context: RequestContext, message: Any) -> dict[str, Any]:
    """Execute the command; return FENCED_LEADER_EPOCH for partitions whose known leader epoch is newer (KIP-570)."""
    del context
    return await broker.metadata_loop.command_handler.stop_replica(message)
