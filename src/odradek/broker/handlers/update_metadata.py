"""UpdateMetadata: the controller's update of the metadata that clients get (`ControllerCommandHandler`)."""

from typing import Any

from odradek.broker.parts import HasMetadataLoop
from odradek.broker.serving.context import RequestContext


async def handle(broker: HasMetadataLoop, context: RequestContext, message: Any) -> dict[str, Any]:
    """Execute the command, or return STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for a stale one."""
    del context
    return {"error_code": await broker.metadata_loop.command_handler.update_metadata(message)}
