"""AlterConfigs: replace the configuration of topics, groups or brokers; keys not in the request return to defaults.

With this API two clients undo each other's changes, so IncrementalAlterConfigs replaced it (KIP-339).
"""

from typing import TYPE_CHECKING

from odradek.broker.handlers.config_resources import AlterResource, alter
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.config.altering import Alteration, AlterOperation

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one response per resource, in their order. A key without a value is INVALID_REQUEST."""
    resources = [
        AlterResource(
            type=each.resource_type,
            name=each.resource_name,
            alterations=tuple(
                Alteration(name=key.name, operation=AlterOperation.SET, value=key.value) for key in each.configs
            ),
            replaces=True,
        )
        for each in message.resources
    ]
    return {"responses": await alter(broker, context, resources, validate_only=message.validate_only)}
