"""ListConfigResources: the names of what can have a configuration (KIP-1000, KIP-1142).

Version 0 was ListClientMetricsResources and knows of those only, version 1 of topics, brokers, loggers and groups too.
Of client metrics, loggers and groups there is no configuration here, and so nothing to list.
"""

from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config_resources import ConfigResourceType
from odradek.broker.serving.context import RequestContext
from odradek.model import ErrorCode
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_KNOWN: Final = {0: frozenset({ConfigResourceType.CLIENT_METRICS}), 1: frozenset(ConfigResourceType)}


def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """Every kind if none is asked for; UNSUPPORTED_VERSION for one that the version does not know."""
    known = _KNOWN[context.api_version]
    asked_for: tuple[int, ...] = optional(message, "resource_types", ())
    wanted = set(asked_for) or known
    if not wanted <= known:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    resources: list[tuple[ConfigResourceType, str]] = []
    if ConfigResourceType.TOPIC in wanted:
        resources += [(ConfigResourceType.TOPIC, name) for name in broker.image.topics]
    if ConfigResourceType.BROKER in wanted:
        resources += [(ConfigResourceType.BROKER, str(broker_id)) for broker_id in broker.image.brokers]
    return {"config_resources": [{"resource_name": name, "resource_type": kind} for kind, name in resources]}
