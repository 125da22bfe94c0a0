"""UpdateMetadata: the controller's update of the metadata that clients get (`cluster.controller_command_handler`)."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the error code; STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for a stale command."""
    del context
    return {"error_code": await broker.metadata_loop.command_handler.update_metadata(message)}
