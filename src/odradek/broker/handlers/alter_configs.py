"""AlterConfigs: give a topic or a broker exactly the keys of the request; its other keys return to their defaults.

IncrementalAlterConfigs replaced it (KIP-339), because two clients undo each other's changes with this one. Version 2
is flexible.
"""

from typing import Any

from odradek.broker.config_resources import AlterResource, ConfigurableBroker, alter
from odradek.broker.serving.context import RequestContext
from odradek.config import Alteration, AlterOperation


async def handle(broker: ConfigurableBroker, context: RequestContext, message: Any) -> dict[str, Any]:
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
