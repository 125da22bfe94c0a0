"""ListConfigResources: the names of resources with a configuration (KIP-1000, KIP-1142).

Version 0 was ListClientMetricsResources and has only client metrics; version 1 adds topics, brokers, loggers, groups.
Client metrics have no configuration here, so none are listed. A group is listed if it has overrides.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.broker.handlers.config_resources import ConfigResourceType
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import Steps
from odradek.model import ErrorCode
from odradek.protocol.messages.message_codec import optional

if TYPE_CHECKING:
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest as Message

_KNOWN: Final = {0: frozenset({ConfigResourceType.CLIENT_METRICS}), 1: frozenset(ConfigResourceType)}


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return the resources of the requested types, or of all; UNSUPPORTED_VERSION for types that the version lacks."""
    known = _KNOWN[context.api_version]
    asked_for: tuple[int, ...] = optional(message, "resource_types", ())
    wanted = set(asked_for) or known
    if not wanted <= known:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    image, resources = broker.image, []
    names: dict[ConfigResourceType, Iterable[object]] = {
        ConfigResourceType.TOPIC: image.topics,
        ConfigResourceType.BROKER: image.brokers,
        ConfigResourceType.BROKER_LOGGER: image.brokers,
        ConfigResourceType.GROUP: image.group_configs,
    }
    for kind in sorted(names.keys() & wanted):
        for name in names[kind]:
            resources.append({"resource_name": str(name), "resource_type": kind})
            yield 1
    return {"config_resources": resources}
