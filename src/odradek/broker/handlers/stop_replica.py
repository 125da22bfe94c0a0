"""StopReplica: the controller says which replicas this broker has no more. See `cluster.command_handler`."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """FENCED_LEADER_EPOCH for a replica of which the broker knows a newer leader: that is not stopped (KIP-570)."""
    del context
    return await broker.metadata_loop.command_handler.stop_replica(message)
