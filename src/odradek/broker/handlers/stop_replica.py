"""StopReplica: the controller's command to stop replicas (`cluster.controller_command_handler`)."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return one error per partition; FENCED_LEADER_EPOCH if the broker knows a newer leader epoch (KIP-570)."""
    del context
    return await broker.metadata_loop.command_handler.stop_replica(message)
