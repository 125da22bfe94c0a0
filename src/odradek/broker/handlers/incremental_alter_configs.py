"""IncrementalAlterConfigs: set, delete, append to or subtract from single keys of topics, groups, brokers (KIP-339).

When the response is sent, this broker uses the new values; other brokers read them from the metadata tree.
"""

from typing import TYPE_CHECKING

from odradek.broker.handlers.config_resources import AlterResource, alter
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.config.altering import Alteration

if TYPE_CHECKING:
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one response per resource, in their order. A repeated resource or key is INVALID_REQUEST."""
    resources = [
        AlterResource(
            type=each.resource_type,
            name=each.resource_name,
            alterations=tuple(
                Alteration(name=key.name, operation=key.config_operation, value=key.value) for key in each.configs
            ),
        )
        for each in message.resources
    ]
    return {"responses": await alter(broker, context, resources, validate_only=message.validate_only)}
