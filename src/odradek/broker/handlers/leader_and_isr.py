"""LeaderAndIsr: the controller's command to lead and follow partitions (`cluster.controller_command_handler`)."""

from typing import TYPE_CHECKING, Any

from odradek.broker.serving.context import RequestContext

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


async def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Return when the command is executed; KAFKA_STORAGE_ERROR for partitions whose logs cannot be used."""
    del context
    return await broker.metadata_loop.command_handler.leader_and_isr(message)
