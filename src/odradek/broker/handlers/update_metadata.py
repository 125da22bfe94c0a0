"""UpdateMetadata: the controller's command to lead, follow and stop partitions (`ControllerCommandHandler`)."""

from typing import TYPE_CHECKING

from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext

if TYPE_CHECKING:
    from odradek.protocol.messages.controller_messages import UpdateMetadataRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Execute the command; return errors of logs that cannot be used, or one error for a stale command."""
    del context
    return await broker.metadata_loop.command_handler.update_metadata(message)
