"""ListGroups: the groups that this broker coordinates.

Versions: 4 filter by state (KIP-518), 5 filter by type (KIP-848). Filters ignore case; an unknown state or type matches
nothing.
"""

from typing import Any, Final

from odradek.broker.parts import HasGroups
from odradek.broker.serving.context import RequestContext
from odradek.groups import ClassicGroup
from odradek.groups.consumer.consumer_group import ConsumerGroup
from odradek.model import KafkaError
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"


def handle(broker: HasGroups, context: RequestContext, message: Any) -> dict[str, Any]:
    """Return the groups, or COORDINATOR_LOAD_IN_PROGRESS while a partition of `__consumer_offsets` is loading."""
    states = _filter(message, "states_filter")
    types = _filter(message, "types_filter")
    try:
        machines = list(broker.groups.machines())
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    groups: list[ClassicGroup | ConsumerGroup] = []
    for machine in machines:
        if not types or _CLASSIC in types:
            groups += machine.classic.groups.values()
        if not types or _CONSUMER in types:
            groups += machine.consumer.groups.values()
    if not context.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        denied = context.denied(AclOperation.DESCRIBE, ResourceType.GROUP, (group.group_id for group in groups))
        groups = [group for group in groups if group.group_id not in denied]
    return {"groups": [_listed(group) for group in groups if not states or group.state.lower() in states]}


def _filter(message: Any, field: str) -> set[str]:
    words: tuple[str, ...] = optional(message, field, ())
    return {word.strip().lower() for word in words}


def _listed(group: ClassicGroup | ConsumerGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": (group.protocol_type or "") if isinstance(group, ClassicGroup) else PROTOCOL_TYPE,
        "group_state": group.state,
        "group_type": _CLASSIC if isinstance(group, ClassicGroup) else _CONSUMER,
    }
