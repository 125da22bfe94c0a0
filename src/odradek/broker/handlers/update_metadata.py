"""UpdateMetadata: the controller's command to lead, follow and stop partitions (`ControllerCommandHandler`)."""

from typing import Any

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext


async def handle(broker: BrokerParts, context: RequestContext, message: Any) -> dict[str, Any]:
    """Execute the command; return errors of logs that cannot be used, or one error for a stale command."""
    del context
    return await broker.metadata_loop.command_handler.update_metadata(message)
