"""DescribeConfigs: the configuration of topics, groups, this broker, its loggers or all brokers, with its sources.

Versions: 1 sources and synonyms (KIP-226), 3 types and documentation (KIP-569).
"""

from typing import TYPE_CHECKING

from odradek.broker.handlers.config_resources import acl_resource, describe
from odradek.broker.interfaces import BrokerParts
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import cooperatively
from odradek.config.describe import ConfigEntry
from odradek.model import KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest as Message


async def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> dict[str, object]:
    """Return one result per resource, in their order; one for a resource that is repeated with the same keys."""
    with_documentation = optional(message, "include_documentation", False)
    results = []
    await broker.dispatcher.begin_long(context)
    async for resource in cooperatively(dict.fromkeys(message.resources)):
        result: dict[str, object] = {
            "error_message": None,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }
        try:
            kind, name = acl_resource(resource.resource_type, resource.resource_name)
            context.check(AclOperation.DESCRIBE_CONFIGS, kind, name)
            entries = await describe(broker, resource.resource_type, resource.resource_name)
        except KafkaError as error:
            result |= {"error_code": error.code, "error_message": error.message}
        else:
            # A null list and an empty one both mean all keys, as in Kafka.
            wanted = set(resource.configuration_keys or ())
            result["configs"] = [
                _config(entry, synonyms=message.include_synonyms, documentation=with_documentation)
                for entry in entries
                if not wanted or entry.name in wanted
            ]
        results.append(result)
    return {"results": results}


def _config(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> dict[str, object]:
    value = None if entry.sensitive else entry.value
    return {
        "name": entry.name,
        "value": value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.sensitive,
        "synonyms": [
            {"name": each.name, "value": None if entry.sensitive else each.value, "source": each.source}
            for each in entry.synonyms
        ]
        if synonyms
        else [],
        "config_type": entry.type,
        "documentation": entry.doc if documentation or not entry.doc else None,  # a logger's is empty, as in Kafka
    }
